//! *What*: the options of `uzswap completions` and `uzswap man`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// A shell that completions are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    pub shell: Shell,
}

#[derive(Debug, Args)]
pub struct Man {
    /// The directory to write them to: uzswap.1, and one for each subcommand
    pub dir: PathBuf,
}
