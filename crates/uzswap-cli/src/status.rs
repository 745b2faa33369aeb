//! Exit status and the one line that explains it.

use std::fmt;

/// A subcommand that runs no command failed.
pub const FAILURE: u8 = 1;
/// Wrong arguments of such a subcommand.
pub const USAGE: u8 = 2;
/// uzswap itself failed.
pub const FAILED: u8 = 125;
/// The command was found but cannot be executed, as env(1) has it.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command was not found, as env(1) has it.
pub const NOT_FOUND: u8 = 127;
/// SIGINT ended it, as a shell has it.
pub const INTERRUPTED: u8 = 130;

/// An error with an exit status of its own.
#[derive(Debug)]
pub struct Refused {
    /// Exit status of uzswap.
    pub status: u8,
    /// What is wrong and what to do next, in one line.
    pub line: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl std::error::Error for Refused {}

/// An error that ends uzswap with `status`.
pub fn refused(status: u8, line: impl Into<String>) -> anyhow::Error {
    Refused {
        status,
        line: line.into(),
    }
    .into()
}

/// Exit status that belongs to an error; `failed` if it has none of its own.
pub fn of(error: &anyhow::Error, failed: u8) -> u8 {
    error
        .downcast_ref::<Refused>()
        .map_or(failed, |refused| refused.status)
}
