//! Benchmarks beside the running kernel, and the page that shows their results.
//!
//! *What*: the suites ([`codecs`], [`usemem`], [`disk`], [`store`], [`batch`], [`same_filled`], [`alloc`], [`apps`]), what they need ([`corpus`], [`sides`], [`undo`], [`rounds`]), the
//! shape that most of them fill ([`compare`]), the file of results ([`results`]), that of a run's life ([`trace`]) and the page
//! made of either ([`report`]).
//! *Invariants*: a suite that was interrupted gives what it had measured; what it changed on the machine is put back.
//! *Locking*: none within the process.
//! *Context*: the command line tool.

use std::fmt;

pub mod alloc;
pub mod apps;
pub mod batch;
pub mod codecs;
pub mod compare;
pub mod corpus;
pub mod disk;
pub mod interrupt;
pub mod machine;
pub mod progress;
pub mod report;
pub mod results;
pub mod rounds;
pub mod same_filled;
pub mod section;
pub mod sides;
pub mod store;
pub mod trace;
pub mod undo;
pub mod usemem;
pub mod work;

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
