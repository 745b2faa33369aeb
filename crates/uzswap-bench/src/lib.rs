//! Benchmarks beside the running kernel, and the page that shows their results.

use std::fmt;

pub mod corpus;
pub mod interrupt;
mod progress;

/// What was asked for cannot be done as it was asked: one line, exit status 2.
#[derive(Debug)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

fn refused(line: impl Into<String>) -> anyhow::Error {
    Refused(line.into()).into()
}
