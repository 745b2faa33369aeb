//! *What*: [`Stats`]: what a pool has, and has done.
//! *Invariants*: sizes are bytes. *Locking*: none: the figures are read one after the other.
//! *Context*: threads of the host.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use uzswap_core::PAGE_SIZE;
use uzswap_group::group::Process;
use uzswap_swap::size::Size;

use crate::limit::Limit;

/// What a pool has, bytes, and what it has done since it was built.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// The limit.
    pub limit: u64,
    /// RAM charged to the limit: resident, compressed, tables and reserves; with fork children.
    pub used: u64,
    /// The most that was ever used.
    pub peak: u64,
    /// What is allocated or mapped, in RAM or out of it.
    pub mapped: u64,
    /// Of that, in RAM as it is.
    pub resident: u64,
    /// Of that, held compressed in RAM.
    pub stored: u64,
    /// RAM that the compressed takes.
    pub compressed: u64,
    /// Of what is mapped, pages that repeat one word and take no memory.
    pub same_filled: u64,
    /// Of what is mapped, on the swap device.
    pub swapped: u64,
    /// The engine's tables.
    pub metadata: u64,
    /// Page faults served.
    pub faults: u64,
    /// Of these, on pages that had been evicted.
    pub refaults: u64,
    /// Pages that were evicted.
    pub evicted: u64,
    /// System calls that were trapped because of this process's pools.
    pub guarded_calls: u64,
}

impl Stats {
    pub(crate) fn of(limit: &Limit, process: Option<&Process>, mapped: u64) -> Stats {
        let page = PAGE_SIZE as u64;
        let mut stats = Stats {
            limit: limit.bytes(),
            used: limit.used(),
            mapped,
            ..Stats::default()
        };
        if let Some(process) = process {
            let counters = &process.counters;
            let get = |cell: &AtomicU64| cell.load(Relaxed);
            stats.peak = get(&counters.ram_peak);
            stats.resident = get(&counters.resident);
            stats.stored = get(&counters.stored_pages) * page;
            stats.compressed = get(&counters.pool_total_size);
            stats.same_filled = get(&counters.same_filled_pages) * page;
            stats.swapped = get(&counters.swapped_pages) * page;
            stats.metadata = get(&counters.metadata);
            stats.faults = get(&counters.faults);
            stats.refaults = get(&counters.refaults);
            stats.evicted = get(&counters.zswpout);
            stats.guarded_calls = get(&counters.guarded_syscalls);
        }
        stats
    }

    /// How many bytes of data one compressed byte stands for; 0 while nothing is compressed.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn compression_ratio(&self) -> f64 {
        match self.compressed {
            0 => 0.0,
            bytes => self.stored as f64 / bytes as f64,
        }
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} in {} of {}: {} resident, {} compressed to {}, {} swapped",
            Size(self.mapped),
            Size(self.used),
            Size(self.limit),
            Size(self.resident),
            Size(self.stored),
            Size(self.compressed),
            Size(self.swapped),
        )
    }
}
