//! *What*: the options of the subcommands for a running group.

use std::time::Duration;

use clap::Args;

use super::{parse_pid, parse_time};
use crate::knob::Assignment;
use crate::size::Size;

#[derive(Debug, Args)]
pub struct Stat {
    /// Process id of 'uzswap run' or of any process under it
    #[arg(value_parser = parse_pid())]
    pub pid: u32,

    /// One JSON object, with the keys of 'run --stats'
    #[arg(long, conflicts_with = "prometheus")]
    pub json: bool,

    /// Prometheus text exposition
    #[arg(long)]
    pub prometheus: bool,
}

#[derive(Debug, Args)]
pub struct Top {
    /// Process id of 'uzswap run' or of any process under it [default: every process under uzswap]
    #[arg(value_parser = parse_pid())]
    pub pid: Option<u32>,

    /// Time between updates: 2, 0.5, 1m
    #[arg(long, short = 'd', value_name = "TIME", default_value = "1", value_parser = parse_time)]
    pub interval: Duration,

    /// One snapshot as JSON: an array of processes
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Set {
    /// Process id of 'uzswap run' or of any process under it
    #[arg(value_parser = parse_pid())]
    pub pid: u32,

    /// The knobs to change
    #[arg(value_name = "KNOB=VALUE")]
    pub changes: Vec<Assignment>,

    /// Show the knobs, after the change, as one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct SwapOff {
    /// Process id of 'uzswap run' or of any process under it
    #[arg(value_parser = parse_pid())]
    pub pid: u32,

    /// Name or number of the device in the output of 'uzswap stat'; needed if there are several
    pub device: Option<String>,

    /// One JSON object, sizes in bytes
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Reclaim {
    /// Process id of 'uzswap run' or of any process under it
    #[arg(value_parser = parse_pid())]
    pub pid: u32,

    /// How much to reclaim: 64M, 1.5GiB, 1048576
    pub size: Size,

    /// Write compressed memory to swap; evict nothing
    #[arg(long)]
    pub writeback_only: bool,

    /// One JSON object, sizes in bytes
    #[arg(long)]
    pub json: bool,
}
