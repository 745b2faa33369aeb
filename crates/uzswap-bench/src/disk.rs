//! The suite `disk`: a working set three times the memory, or more, that does not fit it even compressed.
//!
//! *What*: fills memory with data that compresses about twofold, then reads, checks and writes pages at random and in order; so
//! compressed it takes one and a half times the memory, and the rest goes to the disk. Pages of real programs, which may be had instead, take 1.2 times
//! the memory by lz4 or lzo; by a codec that makes them a quarter as large they fit, just, and of five times the memory by none. uzswap and plain swap
//! get all of the memory as their limit; the kernel's zswap a pool of about half of it, and a limit of the other half.
//! *Invariants*: sides take turns within each round; all swap to a file on the same disk.
//! *Locking*: none.
//! *Context*: the bench command; the kernel's sides need root.

use std::path::Path;

use anyhow::Result;

use crate::compare::{Figure, Goal, Measured, Run};
use crate::sides::{self, Room, Side, Sides};
use crate::work::{self, Data, Work};

/// Whom uzswap is compared with unless others are asked for.
pub const USUAL: [Side; 2] = [Side::KernelZswap, Side::KernelSwap];
const ORDER: [Side; 4] = [
    Side::KernelZswap,
    Side::Uzswap,
    Side::KernelSwap,
    Side::Native,
];
/// Data, in multiples of the memory, unless something else is asked for.
pub const TIMES: u64 = 3;
/// What the project promises: the figure, the peer, and the share of its.
const GOALS: [(&str, Side, f64); 6] = [
    ("random_us", Side::KernelZswap, 0.7),
    ("random_us", Side::KernelSwap, 0.5),
    ("sequential_us", Side::KernelZswap, 0.7),
    ("sequential_us", Side::KernelSwap, 0.5),
    ("written_mib", Side::KernelZswap, 0.45),
    ("written_mib", Side::KernelSwap, 0.45),
];

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Data, MiB; by default enough that the kernel's pool, which is set in hundredths of the machine's memory, can be half of a third.
    pub mib: Option<u64>,
    /// How many times the memory that is.
    pub times: u64,
    /// Where pages of real programs are, to be used instead of data that compresses about twofold.
    pub corpus: Option<&'a Path>,
    /// Rounds.
    pub rounds: usize,
    /// Fewer threads, fewer accesses.
    pub quick: bool,
}

/// Measures.
///
/// # Errors
/// If the machine is too small, uzswap cannot run the work, or no round was completed.
pub fn measure(sides: &mut Sides, options: Options<'_>) -> Result<Measured> {
    let data = Data::of(options.corpus, 2)?;
    let step = sides::pool_step_mib();
    let least = if options.quick { 256 } else { 512 };
    let ram_mib = options
        .mib
        .map_or((2 * step).max(least), |mib| mib / options.times);
    let pool_mib = (ram_mib / 2 / step).max(1) * step;
    let mib = ram_mib * options.times;
    work::check_memory(mib)?;
    if pool_mib + 32 > ram_mib && sides.takes_part(Side::KernelZswap) {
        sides.skip(
            Side::KernelZswap,
            &format!("its pool can be no smaller than {pool_mib} MiB on this machine, which leaves nothing of {ram_mib} MiB"),
        );
    }
    if sides.takes_part(Side::Zram) {
        sides.skip(Side::Zram, "has no disk behind it");
    }
    let beside_pool_mib = ram_mib.saturating_sub(pool_mib);
    let threads: &[u32] = if options.quick { &[2] } else { &[1, 2] };
    let mut measured = Measured {
        title: "More than fits even compressed".into(),
        notes: vec![format!(
            "{mib} MiB of {data} in {ram_mib} MiB of memory: uzswap and plain swap have it as their limit, the kernel's zswap \
             {beside_pool_mib} MiB beside a pool of {pool_mib} MiB. What is written and read is in MiB of the disk and of memory respectively; uzswap writes compressed data.",
        )],
        sides: sides.columns(),
        figures: figures(),
        ratios: Sides::ratios(),
        goals: goals(),
        ..Measured::default()
    };
    measured.fill(
        options.rounds,
        threads.len() * ORDER.len(),
        |round, progress| {
            let mut runs = Vec::new();
            for &threads in threads {
                let work = Work {
                    mib,
                    threads,
                    seed: round + 1,
                    data,
                    accesses: options.quick.then(|| mib * 256 / u64::from(threads) / 8),
                };
                for side in ORDER {
                    progress.at(&format!(
                        "round {}, {}, {}",
                        round + 1,
                        work.name(),
                        side.key()
                    ));
                    let pooled = side == Side::KernelZswap;
                    let room = Room {
                        limit_mib: if pooled { beside_pool_mib } else { ram_mib },
                        pool_mib: pooled.then_some(pool_mib),
                        swap_mib: mib * 2,
                    };
                    let job = work.job(&sides.uzswap);
                    let Some(ran) = sides.run(side, room, &job, progress)? else {
                        continue;
                    };
                    let mut values = work::values(&ran)?;
                    if let Some(disk) = ran.disk {
                        values.insert("written_mib".into(), disk.written_mib);
                        values.insert("read_mib".into(), disk.read_mib);
                    }
                    runs.push(Run {
                        round,
                        job: work.name(),
                        side: side.key().into(),
                        values,
                    });
                }
            }
            Ok(runs)
        },
    )?;
    Ok(measured)
}

fn figures() -> Vec<Figure> {
    let mut figures = work::figures();
    figures.extend([
        Figure::new("written_mib", "written", "MiB of disk").in_chart("Written to the disk"),
        Figure::new("read_mib", "read back", "MiB of memory"),
    ]);
    figures
}

fn goals() -> Vec<Goal> {
    let goal = |&(figure, peer, bound): &(&str, Side, f64)| Goal {
        figure: figure.into(),
        job: None,
        ratio: (Side::Uzswap.key().into(), peer.key().into()),
        bound,
    };
    GOALS.iter().map(goal).collect()
}
