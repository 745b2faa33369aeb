//! What a terminal and a page show alike: sections of charts, tables and notes.

use std::fmt;

/// A section.
#[derive(Clone, Debug)]
pub struct Section {
    /// Heading.
    pub title: String,
    /// Sentences that explain it.
    pub notes: Vec<String>,
    /// Charts; on a page they are above the tables.
    pub charts: Vec<Chart>,
    /// Tables.
    pub tables: Vec<Table>,
}

/// A table; the first column names the row.
#[derive(Clone, Debug)]
pub struct Table {
    /// Caption.
    pub caption: String,
    /// Column names.
    pub head: Vec<String>,
    /// Rows, each with as many cells as the head.
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
    /// Title.
    pub title: String,
    /// Form and content.
    pub kind: Kind,
}

/// The forms of a chart.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Labelled points; one colour per series.
    Points {
        /// Label of the horizontal, logarithmic axis.
        x: String,
        /// Label of the vertical, linear axis.
        y: String,
        /// The series.
        series: Vec<Series>,
    },
    /// Curves; one colour per series.
    Lines {
        /// Label of the horizontal axis, linear from zero.
        x: String,
        /// Label of the vertical axis, linear from zero.
        y: String,
        /// The curves, whose points have no labels.
        series: Vec<Series>,
    },
    /// Groups of horizontal bars.
    Bars {
        /// Label of the horizontal axis, linear from zero.
        x: String,
        /// Names of the bars of a group, each with its colour.
        names: Vec<String>,
        /// Each group's name and a value per name.
        groups: Vec<(String, Vec<Option<f64>>)>,
    },
}

/// A series of points in one colour.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Horizontal value, vertical value, label.
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
