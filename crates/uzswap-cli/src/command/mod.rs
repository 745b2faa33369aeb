//! One module for each subcommand.

pub mod bench;
pub mod run;
pub mod stat;
