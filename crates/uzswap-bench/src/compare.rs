//! The results of a suite in which two or more sides do the same jobs.
//!
//! *What*: the shape of the results, which names its own figures and what they are compared with,
//! and the loop over the rounds that fills it.
//! *Invariants*: only complete rounds are kept, and of the first also the part before ^C. Every run
//! that is kept succeeded.
//! *Locking*: none.
//! *Context*: the suites; [`crate::report`] shows the results.

mod table;

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use uzswap_corpus::interrupt;
use uzswap_corpus::progress::Progress;
use uzswap_corpus::rounds::{Calibration, Round};

/// What a suite has measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Heading.
    pub title: String,
    /// Sentences about the measurement.
    pub notes: Vec<String>,
    /// The sides, in the order of the columns: key and name.
    pub sides: Vec<(String, String)>,
    /// The figures, in the order of the rows.
    pub figures: Vec<Figure>,
    /// Ratios to show: the first side's figure divided by the second's.
    pub ratios: Vec<(String, String)>,
    /// The project's goals for ratios.
    pub goals: Vec<Goal>,
    /// The rounds.
    pub rounds: Vec<Round>,
    /// Every run of every round.
    pub runs: Vec<Outcome>,
}

/// One figure of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figure {
    /// Its key in [`Outcome::values`].
    pub key: String,
    /// Its name in tables.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Title of its chart, whose figures all have the same unit.
    pub chart: Option<String>,
    /// Whether more is better.
    pub more_is_better: bool,
}

/// A goal for a ratio: at most `bound`, or at least `bound` where more is better.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// Key of the figure.
    pub figure: String,
    /// The job; `None` means all.
    pub job: Option<String>,
    /// The ratio.
    pub ratio: (String, String),
    /// The bound.
    pub bound: f64,
}

/// The outcome of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Number of its round, from 0.
    pub round: usize,
    /// Name of the job.
    pub job: String,
    /// Key of the side.
    pub side: String,
    /// Its figures, by their keys.
    pub values: Values,
}

/// Figures by their keys.
pub type Values = BTreeMap<String, f64>;

/// A round under way.
pub struct CurrentRound<'p> {
    /// Its number, from 0.
    pub number: usize,
    /// The suite's progress.
    pub progress: &'p Progress,
    outcomes: Vec<Outcome>,
}

impl<'p> CurrentRound<'p> {
    pub(crate) fn new(number: usize, progress: &'p Progress) -> Self {
        Self {
            number,
            progress,
            outcomes: Vec::new(),
        }
    }

    /// Shows that `job` runs on `side`.
    pub fn at(&self, job: &str, side: &str) {
        let round = self.number + 1;
        self.progress.at(&format!("round {round}, {job}, {side}"));
    }

    /// Adds the outcome of a run.
    pub fn add(&mut self, job: &str, side: &str, values: Values) {
        self.outcomes.push(Outcome {
            round: self.number,
            job: job.into(),
            side: side.into(),
            values,
        });
    }

    /// The outcomes so far.
    #[must_use]
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }
}

impl Figure {
    /// A figure of which less is better.
    #[must_use]
    pub fn new(key: &str, name: &str, unit: &str) -> Self {
        Self {
            key: key.into(),
            name: name.into(),
            unit: unit.into(),
            chart: None,
            more_is_better: false,
        }
    }

    /// The same, of which more is better.
    #[must_use]
    pub fn more_is_better(self) -> Self {
        Self {
            more_is_better: true,
            ..self
        }
    }

    /// The same, in a chart.
    #[must_use]
    pub fn in_chart(mut self, title: &str) -> Self {
        self.chart = Some(title.into());
        self
    }
}

impl Goal {
    /// A goal for `job`, or for all jobs.
    #[must_use]
    pub fn new(figure: &str, job: Option<&str>, ratio: (&str, &str), bound: f64) -> Self {
        Self {
            figure: figure.into(),
            job: job.map(str::to_owned),
            ratio: pair(ratio),
            bound,
        }
    }
}

/// A side's key and name, or the two sides of a ratio.
#[must_use]
pub fn pair((first, second): (&str, &str)) -> (String, String) {
    (first.to_owned(), second.to_owned())
}

/// The figures of a run.
pub(crate) fn values<const N: usize>(figures: [(&str, f64); N]) -> Values {
    figures.map(|(key, value)| (key.to_owned(), value)).into()
}

impl Measured {
    /// Measures `rounds` rounds of `steps` steps each with `measure`.
    ///
    /// # Errors
    /// `measure`'s, and if the first round was interrupted before any outcome.
    pub fn fill(
        &mut self,
        rounds: usize,
        steps: usize,
        mut measure: impl FnMut(&mut CurrentRound<'_>) -> Result<()>,
    ) -> Result<()> {
        let progress = Progress::new(rounds * steps, "runs");
        let mut calibration = Calibration::start();
        for number in 0..rounds {
            let mut round = CurrentRound::new(number, &progress);
            measure(&mut round)?;
            // Part of the first round is better than nothing.
            if interrupt::happened() && (number > 0 || round.outcomes.is_empty()) {
                break;
            }
            self.rounds.push(calibration.round());
            self.runs.append(&mut round.outcomes);
            if interrupt::happened() {
                break;
            }
        }
        ensure!(
            !self.rounds.is_empty(),
            "interrupted before anything was measured"
        );
        // A side without a run has no column.
        let Self { sides, runs, .. } = self;
        sides.retain(|(key, _)| runs.iter().any(|run| run.side == *key));
        Ok(())
    }
}
