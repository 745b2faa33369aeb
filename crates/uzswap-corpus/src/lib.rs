//! Pages of real programs, and codecs measured on them: what `bench` and `analyze` share.
//!
//! *What*: samples of process memory ([`sample`]), a corpus of them on disk ([`make`], [`load`]),
//! codecs timed on them ([`codecs`]) in calibrated rounds ([`rounds`]); and what a long measurement
//! needs: temporary directories ([`Scratch`]), facts of `/proc` ([`process`]), progress
//! ([`progress`]) and ^C ([`interrupt`]).
//! *Invariants*: a measurement that was interrupted keeps the rounds it completed.
//! *Locking*: none within the process.
//! *Context*: the command-line tool.

use std::fmt;

pub mod codecs;
mod corpus;
pub mod interrupt;
pub mod process;
mod program;
pub mod progress;
pub mod rounds;
mod sample;
mod scratch;
pub mod source;

pub use corpus::{Dump, load, make, warm};
pub use process::proc_kib;
pub use program::{find, write};
pub use sample::{anonymous, sample};
pub use scratch::Scratch;
pub use uzswap_usemem::PAGE;
pub use uzswap_usemem::corpus::EXTENT;

/// A request that cannot be carried out as given: one line for the user, exit status 2.
#[derive(Debug)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// [`Refused`] as an error.
pub fn refused(line: impl Into<String>) -> anyhow::Error {
    Refused(line.into()).into()
}
