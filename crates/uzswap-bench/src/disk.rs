//! The suite `disk`: a working set of three times the memory or more, which does not fit even
//! compressed.
//!
//! *What*: fills memory with records that compress about twofold, then reads, checks and writes
//! pages at random and sequentially. Compressed they take one and a half times the memory; the rest
//! goes to disk. Pages of real programs take 1.2 times the memory by lz4 or lzo; by a codec with a
//! ratio of four they just fit. uzswap and plain swap have all of the memory as their limit; the
//! kernel's zswap has a pool of about half of it, and a limit of the other half.
//! *Invariants*: sides take turns within each round; all swap to a file on the same disk.
//! *Locking*: none.
//! *Context*: the bench command; the kernel's sides need root.

use std::path::Path;

use anyhow::Result;

use crate::compare::{Figure, Goal, Measured};
use crate::sides::{self, Limits, Side, Sides};
use crate::work::{self, Data, Phases};

/// Peers by default.
pub const DEFAULT_PEERS: [Side; 2] = [Side::KernelZswap, Side::KernelSwap];
const ORDER: [Side; 4] = [
    Side::KernelZswap,
    Side::Uzswap,
    Side::KernelSwap,
    Side::Native,
];
/// Data in multiples of the memory, by default.
pub const TIMES: u64 = 3;
/// The project's goals: the figure, the peer, and the share of the peer's figure.
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
    /// Data, MiB. By default enough for a kernel pool of half the memory: it is set in hundredths
    /// of the machine's memory.
    pub mib: Option<u64>,
    /// Data in multiples of the memory.
    pub times: u64,
    /// Directory of pages of real programs, to use instead of records.
    pub corpus: Option<&'a Path>,
    /// Rounds.
    pub rounds: usize,
    /// Fewer threads and accesses.
    pub quick: bool,
}

/// Measures.
///
/// # Errors
/// If the machine is too small, uzswap cannot run the work, or no round was completed.
pub fn measure(sides: &mut Sides, options: Options<'_>) -> Result<Measured> {
    let data = Data::of(options.corpus, 2)?;
    let step = sides::pool_step_mib();
    let min_ram_mib = if options.quick { 256 } else { 512 };
    let ram_mib = options
        .mib
        .map_or((2 * step).max(min_ram_mib), |mib| mib / options.times);
    let pool_mib = (ram_mib / 2 / step).max(1) * step;
    let mib = ram_mib * options.times;
    work::check_memory(mib)?;
    if pool_mib + 32 > ram_mib && sides.takes_part(Side::KernelZswap) {
        let why = format!(
            "its pool cannot be smaller than {pool_mib} MiB on this machine, which leaves nothing of {ram_mib} MiB"
        );
        sides.skip(Side::KernelZswap, &why);
    }
    if sides.takes_part(Side::Zram) {
        sides.skip(Side::Zram, "has no disk behind it");
    }
    let beside_pool_mib = ram_mib.saturating_sub(pool_mib);
    let threads: &[u32] = if options.quick { &[2] } else { &[1, 2] };
    let mut measured = Measured {
        title: "More than fits even compressed".into(),
        notes: vec![format!(
            "{mib} MiB of {data} in {ram_mib} MiB of memory: that is the limit of uzswap and plain \
             swap; the kernel's zswap has {beside_pool_mib} MiB beside a pool of {pool_mib} MiB. \
             Written: MiB on disk, which uzswap writes compressed. Read: MiB of memory.",
        )],
        sides: sides.columns(),
        figures: figures(),
        ratios: Sides::ratios(),
        goals: goals(),
        ..Measured::default()
    };
    let steps = threads.len() * ORDER.len();
    measured.fill(options.rounds, steps, |round| {
        for &threads in threads {
            let work = Phases {
                mib,
                threads,
                seed: round.number + 1,
                data,
                accesses: options.quick.then(|| mib * 256 / u64::from(threads) / 8),
            };
            for side in ORDER {
                round.at(&work.name(), side.key());
                let has_pool = side == Side::KernelZswap;
                let limits = Limits {
                    ram_mib: if has_pool { beside_pool_mib } else { ram_mib },
                    pool_mib: has_pool.then_some(pool_mib),
                    swap_mib: mib * 2,
                };
                let job = work.job(&sides.uzswap);
                let Some(run) = sides.run(side, limits, &job, round.progress)? else {
                    continue;
                };
                let mut values = work::values(&run)?;
                if let Some(disk) = run.disk {
                    values.insert("written_mib".into(), disk.written_mib);
                    values.insert("read_mib".into(), disk.read_mib);
                }
                round.add(&work.name(), side.key(), values);
            }
        }
        Ok(())
    })?;
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
    GOALS
        .map(|(figure, peer, bound)| Goal::new(figure, None, ("uzswap", peer.key()), bound))
        .to_vec()
}
