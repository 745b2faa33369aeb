//! *What*: one module for each subcommand, and what they share. A command module depends on the
//! views and on the group file; none depends on another command.

pub mod analyze;
pub mod bench;
pub mod doctor;
pub mod jupyter;
pub mod reclaim;
pub mod run;
pub mod set;
pub mod shell;
pub mod stat;
pub mod swapoff;
pub mod top;

use std::io::{ErrorKind, Write as _, stdout};

use anyhow::{Context, Result};
use uzswap_corpus::Refused;

use crate::status::{USAGE, refused};

/// Prints a subcommand's output and returns its exit status.
fn print(text: &str) -> Result<u8> {
    match stdout().write_all(text.as_bytes()) {
        // A reader such as head(1) may close the pipe early.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(0),
    }
}

/// Gives errors about wrong arguments their exit status.
fn with_status(result: Result<u8>) -> Result<u8> {
    result.map_err(|error| match error.downcast::<Refused>() {
        Ok(Refused(line)) => refused!(USAGE, "{line}"),
        Err(error) => error,
    })
}
