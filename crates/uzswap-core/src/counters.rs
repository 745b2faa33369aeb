//! What uzswap counts, by the kernel's names where the kernel has one.
//!
//! *What*: one list of counters and gauges, from which the shared layout, the JSON names and the
//! sums over processes are made, so that a new counter is one line here.
//! *Invariants*: counters only rise; a gauge is what holds now; a peak is the highest a gauge was.
//! *Locking*: none; every cell is a relaxed atomic, read by other processes at any time.
//! *Context*: written on the fault path, read by `uzswap stat` and the summary at exit.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How a cell adds up over the processes of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only rises; processes add up, those that ended included.
    Counter,
    /// Holds now; live processes add up.
    Gauge,
    /// Highest value in any one process.
    Peak,
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ident,)+) => {
        /// One process's counters, in shared memory.
        #[derive(Debug)]
        #[repr(C)]
        pub struct Counters { $($(#[doc = $doc])+ pub $name: AtomicU64,)+ }

        impl Counters {
            /// All zero.
            #[must_use]
            pub const fn new() -> Self { Self { $($name: AtomicU64::new(0),)+ } }
            /// Name and kind of every cell, in the order of [`Counters::cells`].
            pub const NAMES: &'static [(&'static str, Kind)] = &[$((stringify!($name), Kind::$kind),)+];
            /// Every cell, in the order of [`Counters::NAMES`].
            pub fn cells(&self) -> [&AtomicU64; Self::NAMES.len()] { [$(&self.$name,)+] }
        }
    };
}

counters! {
    /// Reservations that found the limit reached, so that memory had to be reclaimed first.
    pool_limit_hit: Counter,
    /// Entries written back from the pool to a swap device, in pages.
    written_back_pages: Counter,
    /// Reclaim attempts that freed nothing.
    reject_reclaim_fail: Counter,
    /// Pages that the compressor failed on.
    reject_compress_fail: Counter,
    /// Pages that did not compress below a page and are kept raw.
    reject_compress_poor: Counter,
    /// Stores that found no room in the pool and stayed resident.
    reject_alloc_fail: Counter,
    /// First touches that found no room for their page table.
    reject_kmemcache_fail: Counter,
    /// Loads whose compressed data could not be decoded.
    decompress_fail: Counter,
    /// Pages loaded from the pool.
    zswpin: Counter,
    /// Pages stored into the pool.
    zswpout: Counter,
    /// Pages written back from the pool to a swap device.
    zswpwb: Counter,
    /// Pages read from a swap device.
    pswpin: Counter,
    /// Pages written to a swap device.
    pswpout: Counter,
    /// Reads from a swap device; those made at once count one by one.
    swap_reads: Counter,
    /// Bytes read from a swap device.
    swap_bytes_in: Counter,
    /// Bytes written to a swap device.
    swap_bytes_out: Counter,
    /// Pages written back without a write: the copy on the swap device was still right.
    swap_writes_saved: Counter,
    /// Pages that could not be read back from a swap device, or not as they were written.
    swap_read_fail: Counter,
    /// Runs of slots that a swap device failed to write: they are not used again.
    swap_write_fail: Counter,
    /// Swap devices that failed so often that nothing is written to them any more.
    swap_device_fail: Counter,
    /// Writebacks that found no room on the swap devices.
    swap_full: Counter,
    /// Writebacks that were due and found writing back switched off.
    reject_writeback_off: Counter,
    /// Of `written_back_pages`, those that the proactive shrinker wrote.
    shrinker_written_back: Counter,
    /// Cold pages that it left in the pool because as many had just come back from the device.
    shrinker_protected: Counter,
    /// Page faults served.
    faults: Counter,
    /// Faults on pages that had been evicted.
    refaults: Counter,
    /// Refaults so soon after eviction that the folio joined the active list.
    activations: Counter,
    /// Pages installed at first touch.
    first_touch_pages: Counter,
    /// Pages brought in beside the faulting one because access looked sequential, or they are in its block.
    readahead_pages: Counter,
    /// Reclaims given up because the program wrote to the folio meanwhile.
    reclaim_cancelled: Counter,
    /// Reclaim batches run.
    reclaim_batches: Counter,
    /// Reclaim batches run by the background thread.
    reclaim_background: Counter,
    /// Pool pages given back by compaction.
    compacted_pages: Counter,
    /// System calls that the guard prepared memory for.
    guarded_syscalls: Counter,
    /// Pages that the guard brought in for a system call.
    guarded_pages: Counter,
    /// Time spent in faults, in time stamp counter ticks.
    fault_ticks: Counter,
    /// Time spent reclaiming, inside and outside faults, in time stamp counter ticks.
    reclaim_ticks: Counter,
    /// Managed pages resident in RAM, bytes.
    resident: Gauge,
    /// Page table, folio table, slots and pool descriptors, bytes.
    metadata: Gauge,
    /// RAM held by the compressed pool, bytes.
    pool_total_size: Gauge,
    /// Pages stored in the pool, same-filled ones included.
    stored_pages: Gauge,
    /// Stored pages that are kept raw.
    stored_incompressible_pages: Gauge,
    /// Stored pages that hold one repeated word and take no pool memory.
    same_filled_pages: Gauge,
    /// Pages on a swap device.
    swapped_pages: Gauge,
    /// Of both, pages that are compressed together with others, in blocks.
    block_pages: Gauge,
    /// Pages in RAM whose copies on a swap device are kept.
    swap_cached_pages: Gauge,
    /// Anonymous memory mapped outside the arena because it may not move, bytes.
    unmanaged_fixed: Gauge,
    /// Mappings left to the kernel because they are stacks, bytes.
    unmanaged_stack: Gauge,
    /// Executable, shared or huge-page anonymous mappings left to the kernel, bytes.
    unmanaged_special: Gauge,
    /// Highest of resident + pool + metadata, bytes.
    ram_peak: Peak,
    /// Highest of resident + stored + swapped pages: what the process would have needed without uzswap, bytes.
    need_peak: Peak,
    /// Highest `pool_total_size`, bytes.
    pool_peak: Peak,
    /// Highest `stored_pages`, bytes.
    zswapped_peak: Peak,
}

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}

/// Adds to a counter or gauge.
#[inline]
pub fn add(cell: &AtomicU64, n: u64) {
    cell.fetch_add(n, Relaxed);
}

/// Takes from a gauge.
#[inline]
pub fn sub(cell: &AtomicU64, n: u64) {
    cell.fetch_sub(n, Relaxed);
}

/// Folio orders that are counted apart: 4 KiB (0) to 2 MiB (9).
pub const NR_ORDERS: usize = 10;

/// What is counted per folio order.
#[derive(Debug)]
#[repr(C)]
pub struct OrderCounters {
    /// Folios stored whole into the pool.
    pub zswpout: AtomicU64,
    /// Runs of slots of this order written to a swap device.
    pub swpout: AtomicU64,
    /// Runs of this order that the swap device had no room for in one piece.
    pub swpout_fallback: AtomicU64,
    /// Folios of which only part could be stored.
    pub zswpout_fallback: AtomicU64,
}

/// Buckets of a [`Histogram`]: four for each power of two.
pub const NR_BUCKETS: usize = 256;

/// Durations in time stamp counter ticks, in buckets a quarter octave wide.
#[derive(Debug)]
#[repr(C)]
pub struct Histogram {
    /// How many durations fell into each bucket.
    pub buckets: [AtomicU64; NR_BUCKETS],
    /// The longest, in ticks.
    pub max: AtomicU64,
}

impl Histogram {
    /// Bucket of a duration.
    #[inline]
    #[must_use]
    pub fn bucket(ticks: u64) -> usize {
        if ticks < 4 {
            return usize::try_from(ticks).unwrap_or(0);
        }
        let octave = ticks.ilog2();
        let quarter = (ticks >> (octave - 2)) & 3;
        ((octave as usize) * 4 + usize::try_from(quarter).unwrap_or(0)).min(NR_BUCKETS - 1)
    }

    /// Smallest duration that falls into bucket `index`, in ticks: the inverse of [`Histogram::bucket`].
    #[must_use]
    pub fn lower_bound(index: usize) -> u64 {
        if index < 8 {
            return index.min(3) as u64;
        }
        let octave = index / 4;
        (4 + (index % 4) as u64) << (octave - 2)
    }

    /// Counts one duration.
    #[inline]
    pub fn record(&self, ticks: u64) {
        if let Some(bucket) = self.buckets.get(Self::bucket(ticks)) {
            bucket.fetch_add(1, Relaxed);
        }
        if ticks > self.max.load(Relaxed) {
            self.max.fetch_max(ticks, Relaxed);
        }
    }
}
