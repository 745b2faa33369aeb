//! How results are shown, on a terminal and on a page alike: charts, tables, notes.

use std::fmt;

/// What one suite shows.
#[derive(Clone, Debug)]
pub struct Section {
    /// Heading.
    pub title: String,
    /// How to read it: sentences.
    pub notes: Vec<String>,
    /// The charts, above the tables.
    pub charts: Vec<Chart>,
    /// The tables.
    pub tables: Vec<Table>,
}

/// A table; the first column names the row.
#[derive(Clone, Debug)]
pub struct Table {
    /// What it holds.
    pub caption: String,
    /// Names of the columns.
    pub head: Vec<String>,
    /// As many cells each as the head.
    pub rows: Vec<Vec<String>>,
}

impl fmt::Display for Table {
    /// As Markdown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.caption)?;
        writeln!(f, "| {} |", self.head.join(" | "))?;
        writeln!(f, "|{}", "---|".repeat(self.head.len()))?;
        for row in &self.rows {
            writeln!(f, "| {} |", row.join(" | "))?;
        }
        Ok(())
    }
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// How.
    pub kind: Kind,
}

/// The forms of a chart.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Labelled points, in series of one colour.
    Points {
        /// Across, logarithmic.
        x: String,
        /// Upwards, linear.
        y: String,
        /// The series.
        series: Vec<Series>,
    },
    /// Curves, one of each colour.
    Lines {
        /// Across, linear, from zero.
        x: String,
        /// Upwards, linear, from zero.
        y: String,
        /// The curves; their points have no labels.
        series: Vec<Series>,
    },
    /// Horizontal bars in groups, one of each colour.
    Bars {
        /// Across, linear, from zero.
        x: String,
        /// Names of the colours.
        names: Vec<String>,
        /// Each group's name, and as many values as there are names.
        groups: Vec<(String, Vec<Option<f64>>)>,
    },
}

/// Points of one colour.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Across, upwards, label.
    pub points: Vec<(f64, f64, String)>,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## {}\n", self.title)?;
        for note in &self.notes {
            writeln!(f, "{note}")?;
        }
        for table in &self.tables {
            write!(f, "\n{table}")?;
        }
        Ok(())
    }
}
