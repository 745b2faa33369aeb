//! *What*: exit statuses, and errors that have one.
//!
//! *Locking*: none. *Context*: any.

use std::fmt;

/// A subcommand other than `run` and `stat` failed.
pub const FAILURE: u8 = 1;
/// Such a subcommand had wrong arguments.
pub const USAGE: u8 = 2;
/// `run` or `stat` failed, or `run` ended the command.
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
    /// One line: what is wrong, and what to do.
    pub line: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl std::error::Error for Refused {}

/// An error with an exit status and a line, formatted.
macro_rules! refused {
    ($status:expr, $($line:tt)+) => {
        anyhow::Error::from($crate::status::Refused { status: $status, line: format!($($line)+) })
    };
}
pub(crate) use refused;

/// The exit status of an error; `failed` if it has none of its own.
pub fn of(error: &anyhow::Error, failed: u8) -> u8 {
    error
        .downcast_ref::<Refused>()
        .map_or(failed, |refused| refused.status)
}
