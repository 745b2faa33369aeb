//! One module for each subcommand.

pub mod analyze;
pub mod bench;
mod prometheus;
pub mod reclaim;
pub mod run;
pub mod set;
pub mod stat;
pub mod swapoff;

use std::io::{ErrorKind, Write as _, stdout};

use anyhow::{Context, Result};

/// Writes what a subcommand has to tell; its exit status.
pub fn print(text: &str) -> Result<u8> {
    // A reader like head(1) that has seen enough is no failure.
    match stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(0),
    }
}
