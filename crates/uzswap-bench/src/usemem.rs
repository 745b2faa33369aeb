//! The suite `usemem`: the same work natively, under the kernel and under uzswap, with the same
//! total memory.
//!
//! *What*: fills memory with records that compress about fourfold or with pages of real programs,
//! then reads, checks and writes pages at random and sequentially, with 1 and 2 threads. The
//! kernel's zswap has a quarter of that as its limit. uzswap and plain swap have that limit plus
//! the peak of zswap's pool in the run before, or just the limit where the kernel charges the pool
//! to it.
//! *Invariants*: sides take turns within each round.
//! *Locking*: none.
//! *Context*: the bench command; the kernel's sides need root.

use std::path::Path;

use anyhow::Result;

use crate::compare::{Goal, Measured};
use crate::sides::{Limits, Side, Sides};
use crate::work::{self, Data, Phases};

/// Peers by default.
pub const DEFAULT_PEERS: [Side; 2] = [Side::Native, Side::KernelZswap];
const THREADS: [u32; 2] = [1, 2];
/// The project's goals: a figure, and its share of zswap's with 1 and 2 threads.
const GOALS: [(&str, [f64; 2]); 5] = [
    ("random_us", [0.60, 0.40]),
    ("sequential_us", [0.35, 0.25]),
    ("fill_s_per_gib", [0.50, 0.50]),
    ("random_cpu_s", [0.60, 0.60]),
    ("sequential_cpu_s", [0.60, 0.60]),
];

/// Measures, with `mib` MiB of records or of the pages of real programs in `corpus`.
///
/// # Errors
/// If the machine is too small, uzswap cannot run the work, or no round was completed.
pub fn measure(
    sides: &mut Sides,
    mib: u64,
    corpus: Option<&Path>,
    rounds: usize,
) -> Result<Measured> {
    work::check_memory(mib)?;
    let data = Data::of(corpus, 4)?;
    let limit_mib = mib / 4;
    let pool = if sides.takes_part(Side::KernelZswap) {
        "zswap's pool"
    } else {
        "what zswap's pool usually takes"
    };
    let mut measured = Measured {
        title: "Memory under a limit".into(),
        notes: vec![format!(
            "{mib} MiB of {data}. The kernel's zswap and zram have a limit of {limit_mib} MiB beside \
             their pool; uzswap and plain swap have that limit plus {pool}."
        )],
        sides: sides.columns(),
        figures: work::figures(),
        ratios: Sides::ratios(),
        goals: goals(),
        ..Measured::default()
    };
    measured.fill(rounds, THREADS.len() * Side::ZSWAP_FIRST.len(), |round| {
        for threads in THREADS {
            let work = Phases {
                mib,
                threads,
                seed: round.number + 1,
                data,
                accesses: None,
            };
            // About what zswap's pool would take, if it is not measured.
            let mut total_mib = limit_mib + mib * 3 / 16;
            for side in Side::ZSWAP_FIRST {
                round.at(&work.name(), side.key());
                let beside_pool = matches!(side, Side::KernelZswap | Side::Zram);
                let limits = Limits {
                    ram_mib: if beside_pool { limit_mib } else { total_mib },
                    pool_mib: None,
                    swap_mib: mib * 2,
                };
                let job = work.job(&sides.uzswap);
                let Some(run) = sides.run(side, limits, &job, round.progress)? else {
                    continue;
                };
                if let (Side::KernelZswap, Some(ram_mib)) = (side, run.ram_mib) {
                    total_mib = ram_mib;
                }
                round.add(&work.name(), side.key(), work::values(&run)?);
            }
        }
        Ok(())
    })?;
    Ok(measured)
}

fn goals() -> Vec<Goal> {
    let goals = GOALS.iter().flat_map(|(figure, bounds)| {
        let jobs = ["1 thread", "2 threads"].into_iter().zip(bounds);
        jobs.map(|(job, &bound)| Goal::new(figure, Some(job), ("uzswap", "kernel-zswap"), bound))
    });
    goals.collect()
}
