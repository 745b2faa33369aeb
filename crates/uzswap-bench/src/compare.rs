//! What a suite measures that has two or more sides do the same jobs.
//!
//! *What*: the shape of its results, which says by itself what the figures are and what they are compared with, and the rounds that fill it.
//! *Invariants*: only rounds in which every run came to its end, or was left out for good, are kept; of the first also the part before ^C.
//! Every run that is kept came to its end.
//! *Locking*: none.
//! *Context*: the suites; [`crate::report`] shows it.

mod table;

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use uzswap_corpus::interrupt;
use uzswap_corpus::progress::Progress;
use uzswap_corpus::rounds::{Calibration, Round};

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Heading.
    pub title: String,
    /// What was done, in sentences.
    pub notes: Vec<String>,
    /// The sides, in the order of the columns: key and name.
    pub sides: Vec<(String, String)>,
    /// The figures, in the order of the rows.
    pub figures: Vec<Figure>,
    /// What is compared: the first's share of the second.
    pub ratios: Vec<(String, String)>,
    /// What the project wants of ratios.
    pub goals: Vec<Goal>,
    /// The rounds.
    pub rounds: Vec<Round>,
    /// The runs.
    pub runs: Vec<Run>,
}

/// One figure of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figure {
    /// Its key in [`Run::values`].
    pub key: String,
    /// Its name for people.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// The chart that it belongs to, by its title; of figures in the same unit.
    pub chart: Option<String>,
    /// Whether more is better.
    pub more_is_better: bool,
}

/// What is wanted of a ratio: at most so much, or at least where more is better.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// Key of the figure.
    pub figure: String,
    /// The job, or all.
    pub job: Option<String>,
    /// The ratio.
    pub ratio: (String, String),
    /// Its bound.
    pub bound: f64,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Number of its round, from 0.
    pub round: usize,
    /// What was done.
    pub job: String,
    /// Key of who did it.
    pub side: String,
    /// What it took, by the keys of the figures.
    pub values: BTreeMap<String, f64>,
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

    /// The same, in a chart.
    #[must_use]
    pub fn in_chart(mut self, title: &str) -> Self {
        self.chart = Some(title.into());
        self
    }
}

impl Measured {
    /// Does `round` so many times; it returns `None` when it was interrupted.
    ///
    /// # Errors
    /// `round`'s, and if it was interrupted in the first.
    pub fn fill(
        &mut self,
        rounds: usize,
        steps: usize,
        mut round: impl FnMut(usize, &Progress) -> Result<Vec<Run>>,
    ) -> Result<()> {
        let progress = Progress::new(rounds * steps, "runs");
        let mut calibration = Calibration::start();
        for number in 0..rounds {
            let runs = round(number, &progress)?;
            // Of the first round what there is of it is better than nothing.
            if interrupt::happened() && (number > 0 || runs.is_empty()) {
                break;
            }
            self.rounds.push(calibration.round());
            self.runs.extend(runs);
            if interrupt::happened() {
                break;
            }
        }
        ensure!(
            !self.rounds.is_empty(),
            "interrupted before anything was measured"
        );
        // Who never came to a run has no column.
        let Self { sides, runs, .. } = self;
        sides.retain(|(key, _)| runs.iter().any(|run| run.side == *key));
        Ok(())
    }
}
