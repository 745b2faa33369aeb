//! *What*: the options of `uzswap analyze`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use super::{parse_pid, parse_time};

#[derive(Debug, Args)]
pub struct Analyze {
    /// Watch this process
    #[arg(long, value_parser = parse_pid(), conflicts_with = "command")]
    pub pid: Option<u32>,

    /// How long to watch the process: 30s, 2m
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = parse_time, conflicts_with = "command")]
    pub time: Duration,

    /// Run the command once more with the advised options, and compare
    #[arg(long, requires = "command")]
    pub verify: bool,

    /// One JSON object on standard output; the command's own output goes to standard error
    #[arg(long)]
    pub json: bool,

    /// The work of the short run that measures the cost of a fault
    #[arg(long, hide = true, exclusive = true)]
    pub probe: bool,

    /// Run this command without uzswap and watch it until it ends
    #[arg(trailing_var_arg = true, value_name = "COMMAND", required_unless_present_any = ["pid", "probe"])]
    pub command: Vec<OsString>,
}
