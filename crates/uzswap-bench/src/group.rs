//! The suite `group`: eight processes under one limit, beside the kernel's zswap in one cgroup.
//!
//! *What*: processes whose memory together is twice the limit, which all go over theirs again and
//! again, or of which half are idle. The kernel's limit holds beside zswap's pool; uzswap has that
//! limit plus the peak of the pool in the run before, which comes to about half of the data.
//! *Invariants*: sides take turns within each round.
//! *Locking*: none.
//! *Context*: the bench command; the kernel's side needs root.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;

use crate::compare::{self, Figure, Goal, Measured, Values};
use crate::sides::{Completed, Job, Limits, Side, Sides};
use crate::work::{self, Tasks};

/// Peers by default.
pub const DEFAULT_PEERS: [Side; 1] = [Side::KernelZswap];
const PROCESSES: u64 = 8;
/// The kernel's limit in sixteenths of the data: with the pool for the rest, about half of them.
const LIMIT_SIXTEENTHS: u64 = 5;
/// The project's goal for the time, as a part of zswap's.
const GOAL: f64 = 0.60;

/// Fills four processes that stay idle, and runs four beside them. The idle ones, in a session of
/// their own, end with it.
const HALF_IDLE: &str = r#"
setsid "$0" bench work -O -w -n 4 -s 100000 "$1" >/dev/null 2>&1 & idle=$!
trap 'kill -- -$idle' EXIT
"$0" bench work -O -w -y -x -n 4 -r 6 "$1"
"#;

/// Measures, with `mib` MiB of data in all processes together.
///
/// # Errors
/// If the machine is too small, uzswap cannot run the work, or no round was completed.
pub fn measure(sides: &mut Sides, mib: u64, rounds: usize) -> Result<Measured> {
    work::check_memory(mib)?;
    let each_mib = mib / PROCESSES;
    let limit_mib = mib * LIMIT_SIXTEENTHS / 16;
    let mut measured = Measured {
        title: "Eight processes under one limit".into(),
        notes: vec![format!(
            "{PROCESSES} processes of {each_mib} MiB that compress about fourfold: all of them go over \
             their memory three times, or four do so six times while the others are idle. The kernel's \
             zswap has {limit_mib} MiB for all beside its pool; uzswap has that and zswap's pool."
        )],
        sides: sides.columns(),
        figures: vec![
            Figure::new("wall_s", "time", "s").in_chart("Time"),
            Figure::new("cpu_s", "processor time", "CPU s").in_chart("Processor time"),
            Figure::new("ram_mib", "RAM", "MiB"),
        ],
        ratios: Sides::ratios(),
        goals: vec![Goal::new("wall_s", None, ("uzswap", "kernel-zswap"), GOAL)],
        ..Measured::default()
    };
    let jobs = [
        ("all busy", all_busy(&sides.uzswap, each_mib)),
        ("half idle", half_idle(&sides.uzswap, each_mib)),
    ];
    measured.fill(rounds, jobs.len() * Side::ZSWAP_FIRST.len(), |round| {
        for (name, job) in &jobs {
            let mut total_mib = mib / 2;
            for side in Side::ZSWAP_FIRST {
                round.at(name, side.key());
                let beside_pool = matches!(side, Side::KernelZswap | Side::Zram);
                let limits = Limits {
                    ram_mib: if beside_pool { limit_mib } else { total_mib },
                    pool_mib: None,
                    swap_mib: mib * 2,
                };
                let Some(run) = sides.run(side, limits, job, round.progress)? else {
                    continue;
                };
                if let (Side::KernelZswap, Some(ram_mib)) = (side, run.ram_mib) {
                    total_mib = ram_mib;
                }
                round.add(name, side.key(), values(&run));
            }
        }
        Ok(())
    })?;
    Ok(measured)
}

fn all_busy(uzswap: &Path, each_mib: u64) -> Job {
    let tasks = Tasks {
        each_mib,
        processes: PROCESSES,
        repeat: 3,
        ..Tasks::default()
    };
    tasks.job(uzswap)
}

fn half_idle(uzswap: &Path, each_mib: u64) -> Job {
    let script: [OsString; 3] = ["/bin/sh", "-c", HALF_IDLE].map(Into::into);
    let words = [uzswap.into(), format!("{each_mib}m").into()];
    Job {
        argv: script.into_iter().chain(words).collect(),
        ..Job::default()
    }
}

fn values(run: &Completed) -> Values {
    compare::values([
        ("wall_s", run.wall_s),
        ("cpu_s", run.cpu_s),
        ("ram_mib", run.ram_mib.unwrap_or(run.anon_mib) as f64),
    ])
}
