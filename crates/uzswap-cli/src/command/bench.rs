//! `uzswap bench` and `uzswap report`: their command lines. What they do is in `uzswap-bench`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use uzswap_bench::{Refused, corpus, interrupt};

use crate::size::Size;
use crate::status::refused;

#[derive(Debug, Args)]
pub struct Bench {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Debug, Subcommand)]
enum Suite {
    /// Sample the memory of real programs into a directory, for 'codecs'
    Corpus {
        /// Directory to write to
        dir: PathBuf,
        /// Most memory of each program
        #[arg(long, value_name = "SIZE", default_value = "16M")]
        each: Size,
    },
}

#[derive(Debug, Args)]
pub struct Report {
    /// What 'bench --json' wrote
    file: PathBuf,
}

/// Runs a suite.
pub fn bench(options: &Bench) -> Result<u8> {
    interrupt::catch();
    match &options.suite {
        Suite::Corpus { dir, each } => {
            let made = with_status(corpus::make(dir, usize::try_from(each.0)?))?;
            println!("{made} programs in {}", dir.display());
        }
    }
    Ok(0)
}

/// Makes the page.
pub fn report(_options: &Report) -> Result<u8> {
    Ok(0)
}

/// What the user asked wrongly ends with status 2.
fn with_status<T>(result: Result<T>) -> Result<T> {
    result.map_err(|error| match error.downcast::<Refused>() {
        Ok(Refused(line)) => refused(2, line),
        Err(error) => error,
    })
}
