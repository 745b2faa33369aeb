//! *What*: the options of the subcommands for a running group.

use std::time::Duration;

use clap::Args;

use super::parse_time;
use crate::chosen::Whom;
use crate::control::Change;
use crate::size::Size;

#[derive(Debug, Args)]
pub struct Stat {
    /// Name of a group, or process id of 'uzswap run' or of any process under it
    #[arg(value_name = "GROUP|PID")]
    pub whom: Whom,

    /// One JSON object, with the keys of 'run --stats'
    #[arg(long, conflicts_with = "prometheus")]
    pub json: bool,

    /// Prometheus text exposition
    #[arg(long)]
    pub prometheus: bool,
}

#[derive(Debug, Args)]
pub struct Top {
    /// Name of a group, or process id of 'uzswap run' or of any process under it [default: every
    /// process under uzswap]
    #[arg(value_name = "GROUP|PID")]
    pub whom: Option<Whom>,

    /// Time between updates: 2, 0.5, 1m
    #[arg(long, short = 'd', value_name = "TIME", default_value = "1", value_parser = parse_time)]
    pub interval: Duration,

    /// One snapshot as JSON: an array of processes
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Set {
    /// Name of a group, or process id of 'uzswap run' or of any process under it
    #[arg(value_name = "GROUP|PID")]
    pub whom: Whom,

    /// The knobs to change
    #[arg(value_name = "KNOB=VALUE")]
    pub changes: Vec<Change>,

    /// Show the knobs, after the change, as one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct SwapOff {
    /// Name of a group, or process id of 'uzswap run' or of any process under it
    #[arg(value_name = "GROUP|PID")]
    pub whom: Whom,

    /// Name or number of the device in the output of 'uzswap stat'; needed if there are several
    pub device: Option<String>,

    /// One JSON object, sizes in bytes
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Reclaim {
    /// Name of a group, or process id of 'uzswap run' or of any process under it
    #[arg(value_name = "GROUP|PID")]
    pub whom: Whom,

    /// How much to reclaim: 64M, 1.5GiB, 1048576 [default: with --older-than, all that is]
    #[arg(required_unless_present = "older_than")]
    pub size: Option<Size>,

    /// Evict only what has been in RAM for longer than TIME: 30s, 5m
    #[arg(long, value_name = "TIME", value_parser = parse_time,
          conflicts_with = "writeback_only")]
    pub older_than: Option<Duration>,

    /// Write compressed memory to swap; evict nothing
    #[arg(long)]
    pub writeback_only: bool,

    /// One JSON object, sizes in bytes
    #[arg(long)]
    pub json: bool,
}
