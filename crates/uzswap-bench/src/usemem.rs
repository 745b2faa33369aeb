//! The suite `usemem`: the same work natively, under the kernel and under uzswap, with the same total memory.
//!
//! *What*: fills memory with data that compresses about fourfold or with pages of real programs, then reads, checks and writes pages at random and in
//! order, with 1 and 2 threads. The kernel's zswap gets a quarter of that as its limit; uzswap and plain swap get
//! that limit plus the largest size of zswap's pool in the run before (just the limit where the kernel charges its pool to it).
//! *Invariants*: sides take turns within each round.
//! *Locking*: none.
//! *Context*: the bench command; the kernel's sides need root.

use std::path::Path;

use anyhow::Result;

use crate::compare::{Goal, Measured, Run};
use crate::sides::{Room, Side, Sides};
use crate::work::{self, Data, Work};

/// Whom uzswap is compared with unless others are asked for.
pub const USUAL: [Side; 2] = [Side::Native, Side::KernelZswap];
/// zswap first: it tells how much memory that takes.
const ORDER: [Side; 5] = [
    Side::KernelZswap,
    Side::Uzswap,
    Side::KernelSwap,
    Side::Zram,
    Side::Native,
];
/// Numbers of threads.
const THREADS: [u32; 2] = [1, 2];
/// What the project promises: the figure, and its share of zswap's with 1 and 2 threads.
const GOALS: [(&str, [f64; 2]); 5] = [
    ("random_us", [0.60, 0.40]),
    ("sequential_us", [0.35, 0.25]),
    ("fill_s_per_gib", [0.50, 0.50]),
    ("random_cpu_s", [0.60, 0.60]),
    ("sequential_cpu_s", [0.60, 0.60]),
];

/// Measures, with `mib` MiB of data, or of the pages of real programs in `corpus`.
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
    let mut measured = Measured {
        title: "Memory under a limit".into(),
        notes: vec![format!(
            "{mib} MiB of {data}. The limit of the kernel's zswap and zram is {limit_mib} MiB beside their pool; uzswap and \
             plain swap get that limit plus zswap's pool{}.",
            if sides.takes_part(Side::KernelZswap) {
                ""
            } else {
                ", as it usually is"
            }
        )],
        sides: sides.columns(),
        figures: work::figures(),
        ratios: Sides::ratios(),
        goals: goals(),
        ..Measured::default()
    };
    measured.fill(rounds, THREADS.len() * ORDER.len(), |round, progress| {
        let mut runs = Vec::new();
        for threads in THREADS {
            let work = Work {
                mib,
                threads,
                seed: round + 1,
                data,
                accesses: None,
            };
            // Without zswap to compare with: about what its pool would have taken.
            let mut total_mib = limit_mib + mib * 3 / 16;
            for side in ORDER {
                progress.at(&format!(
                    "round {}, {}, {}",
                    round + 1,
                    work.name(),
                    side.key()
                ));
                let beside_pool = matches!(side, Side::KernelZswap | Side::Zram);
                let room = Room {
                    limit_mib: if beside_pool { limit_mib } else { total_mib },
                    pool_mib: None,
                    swap_mib: mib * 2,
                };
                let Some(ran) = sides.run(side, room, &work.job(&sides.uzswap), progress)? else {
                    continue;
                };
                if let (Side::KernelZswap, Some(ram)) = (side, ran.ram_mib) {
                    total_mib = ram;
                }
                runs.push(Run {
                    round,
                    job: work.name(),
                    side: side.key().into(),
                    values: work::values(&ran)?,
                });
            }
        }
        Ok(runs)
    })?;
    Ok(measured)
}

fn goals() -> Vec<Goal> {
    let ratio = ("uzswap".to_owned(), "kernel-zswap".to_owned());
    let goal = |figure: &str, job: &str, bound| Goal {
        figure: figure.into(),
        job: Some(job.into()),
        ratio: ratio.clone(),
        bound,
    };
    GOALS
        .iter()
        .flat_map(|(figure, [one, two])| {
            [
                goal(figure, "1 thread", *one),
                goal(figure, "2 threads", *two),
            ]
        })
        .collect()
}
