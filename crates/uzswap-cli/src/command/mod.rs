//! One module for each subcommand.

pub mod run;
pub mod stat;
