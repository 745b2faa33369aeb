//! Tables and charts of results.

use uzswap_corpus::rounds::{self, median};

use super::{Figure, Measured, Outcome};
use crate::section::{Chart, Kind, Section, Table};

impl Measured {
    /// The charts and the table.
    #[must_use]
    pub fn section(&self) -> Section {
        let mut notes = self.notes.clone();
        notes.push(rounds::describe(&self.rounds));
        Section {
            title: self.title.clone(),
            notes,
            charts: self.charts(),
            tables: vec![self.table()],
        }
    }

    /// The jobs, in the order in which they ran.
    fn jobs(&self) -> Vec<&str> {
        let mut jobs: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !jobs.contains(&run.job.as_str()) {
                jobs.push(&run.job);
            }
        }
        jobs
    }

    /// The figure in every round that counts.
    fn values(&self, figure: &Figure, job: &str, side: &str) -> Vec<f64> {
        let counted = rounds::counted(&self.rounds);
        let is_of =
            |run: &&Outcome| run.job == job && run.side == side && counted.contains(&run.round);
        self.runs
            .iter()
            .filter(is_of)
            .filter_map(|run| run.values.get(&figure.key).copied())
            .collect()
    }

    /// The median of a figure over the rounds that count.
    #[must_use]
    pub fn median(&self, figure: &Figure, job: &str, side: &str) -> Option<f64> {
        median(self.values(figure, job, side))
    }

    /// The median, with the largest deviation of a round.
    fn cell(&self, figure: &Figure, job: &str, side: &str) -> String {
        let Some(value) = self.median(figure, job, side) else {
            return String::new();
        };
        let values = self.values(figure, job, side);
        let farthest = values.iter().map(|v| (v - value).abs()).fold(0.0, f64::max);
        let text = match value.abs() {
            1000.0.. => format!("{value:.0}"),
            100.0.. => format!("{value:.1}"),
            _ => format!("{value:.2}"),
        };
        // Small figures and small deviations need no ±.
        if value < 0.1 || farthest < 0.005 * value {
            text
        } else {
            format!("{text} ±{:.0} %", farthest * 100.0 / value)
        }
    }

    fn name<'a>(&'a self, side: &'a str) -> &'a str {
        let named = self.sides.iter().find(|(key, _)| key == side);
        named.map_or(side, |(_, name)| name)
    }

    /// The ratio of two medians, with its goal.
    fn ratio(&self, figure: &Figure, job: &str, ratio: &(String, String)) -> String {
        let [of, to] = [&ratio.0, &ratio.1].map(|side| self.median(figure, job, side));
        let Some(value) = of
            .zip(to)
            .map(|(of, to)| of / to)
            .filter(|value| value.is_finite())
        else {
            return String::new();
        };
        let goal = self.goals.iter().find(|goal| {
            goal.figure == figure.key
                && goal.ratio == *ratio
                && goal.job.as_deref().is_none_or(|of| of == job)
        });
        let Some(goal) = goal else {
            return format!("{value:.2}");
        };
        let (sign, reached) = if figure.more_is_better {
            ("≥", value >= goal.bound)
        } else {
            ("≤", value <= goal.bound)
        };
        let missed = if reached { "" } else { ", missed" };
        format!("{value:.2} (goal {sign} {:.2}{missed})", goal.bound)
    }

    /// The ratios both of whose sides took part.
    fn ratios(&self) -> impl Iterator<Item = &(String, String)> {
        let took_part = |side: &String| self.sides.iter().any(|(key, _)| key == side);
        self.ratios
            .iter()
            .filter(move |(of, to)| took_part(of) && took_part(to))
    }

    fn table(&self) -> Table {
        let mut head = vec!["figure".to_owned(), "job".into()];
        head.extend(self.sides.iter().map(|(_, name)| name.clone()));
        head.extend(
            self.ratios()
                .map(|(of, to)| format!("{} ÷ {}", self.name(of), self.name(to))),
        );
        let mut rows = Vec::new();
        for figure in &self.figures {
            for job in self.jobs() {
                let cells = self
                    .sides
                    .iter()
                    .map(|(side, _)| self.cell(figure, job, side));
                let mut row = vec![format!("{}, {}", figure.name, figure.unit), job.to_owned()];
                row.extend(cells);
                row.extend(self.ratios().map(|ratio| self.ratio(figure, job, ratio)));
                if row[2..].iter().any(|cell| !cell.is_empty()) {
                    rows.push(row);
                }
            }
        }
        Table {
            caption: "Medians, with the largest deviation of a round".into(),
            head,
            rows,
        }
    }

    /// One for each title, with all its figures and all jobs.
    fn charts(&self) -> Vec<Chart> {
        let mut titles: Vec<&str> = Vec::new();
        for title in self.figures.iter().filter_map(|f| f.chart.as_deref()) {
            if !titles.contains(&title) {
                titles.push(title);
            }
        }
        titles.iter().map(|title| self.chart(title)).collect()
    }

    fn chart(&self, title: &str) -> Chart {
        let of_chart = |figure: &&Figure| figure.chart.as_deref() == Some(title);
        let figures: Vec<&Figure> = self.figures.iter().filter(of_chart).collect();
        let better = |more| if more { "higher" } else { "lower" };
        let mut groups = Vec::new();
        for &figure in &figures {
            for job in self.jobs() {
                let values: Vec<Option<f64>> = self
                    .sides
                    .iter()
                    .map(|(side, _)| self.median(figure, job, side))
                    .collect();
                if values.iter().any(Option::is_some) {
                    groups.push((format!("{}, {job}", figure.name), values));
                }
            }
        }
        let axis = figures.first().map_or(String::new(), |figure| {
            format!(
                "{}, {} is better",
                figure.unit,
                better(figure.more_is_better)
            )
        });
        Chart {
            title: title.to_owned(),
            kind: Kind::Bars {
                x: axis,
                names: self.sides.iter().map(|(_, name)| name.clone()).collect(),
                groups,
            },
        }
    }
}
