//! *What*: the options of `uzswap doctor`.

use clap::Args;

#[derive(Debug, Args)]
pub struct Doctor {
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}
