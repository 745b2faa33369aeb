//! What uzswap counts, by the kernel's names where the kernel has one.
//!
//! *What*: one list of counters and gauges, from which the shared layout, the JSON names, the
//! Prometheus metrics and the sums over processes are made, so that a new counter is one entry here.
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

/// What a cell counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Events or pages, as its meaning says.
    Count,
    /// Bytes.
    Bytes,
    /// Ticks of the time stamp counter; told in seconds.
    Ticks,
}

/// One counter, gauge or peak.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// The kernel's name where it has one.
    pub name: &'static str,
    /// How it adds up.
    pub kind: Kind,
    /// What it counts in.
    pub unit: Unit,
    /// What it counts, in one line.
    pub meaning: &'static str,
}

macro_rules! counters {
    (
        #[doc = $about:literal]
        $cells:ident:
        $(#[doc = $doc:literal] $name:ident: $kind:ident in $unit:ident,)+
    ) => {
        #[doc = $about]
        #[derive(Debug, Default)]
        #[repr(C)]
        pub struct $cells { $(#[doc = $doc] pub $name: AtomicU64,)+ }

        impl $cells {
            /// What every cell is, in the order of `cells`.
            pub const ALL: &'static [Counter] = &[$(Counter {
                name: stringify!($name),
                kind: Kind::$kind,
                unit: Unit::$unit,
                meaning: $doc.trim_ascii(),
            },)+];
            /// Every cell, in the order of `ALL`.
            pub fn cells(&self) -> [&AtomicU64; Self::ALL.len()] { [$(&self.$name,)+] }
        }
    };
}

counters! {
    /// One process's counters, in shared memory.
    Counters:
    /// Reservations that found the limit reached, so that memory had to be reclaimed first.
    pool_limit_hit: Counter in Count,
    /// Entries written back from the pool to a swap device, in pages.
    written_back_pages: Counter in Count,
    /// Reclaim attempts that freed nothing.
    reject_reclaim_fail: Counter in Count,
    /// Pages that the compressor failed on.
    reject_compress_fail: Counter in Count,
    /// Pages and blocks that did not decode to what they were made of, found before they were kept.
    verify_compress_fail: Counter in Count,
    /// Pages that did not compress below a page and are kept raw.
    reject_compress_poor: Counter in Count,
    /// Stores that found no room in the pool and stayed resident.
    reject_alloc_fail: Counter in Count,
    /// First touches that found no room for their page table.
    reject_kmemcache_fail: Counter in Count,
    /// Loads whose compressed data could not be decoded.
    decompress_fail: Counter in Count,
    /// Pages that devices compressed.
    accel_compressed: Counter in Count,
    /// Pages that devices decompressed.
    accel_decompressed: Counter in Count,
    /// Times that a device had no descriptor for what it was to take, and was asked again or another was.
    accel_retries: Counter in Count,
    /// Pages of batches that were done in software, because no device took them or one gave them back.
    accel_fallback: Counter in Count,
    /// Pages loaded from the pool.
    zswpin: Counter in Count,
    /// Pages stored into the pool.
    zswpout: Counter in Count,
    /// Of them, those that `--compressor auto` had stored with its denser codec.
    zswpout_denser: Counter in Count,
    /// Pages of the pool that its fast codec had stored, and its denser one made smaller before any were written back.
    recompressed_pages: Counter in Count,
    /// Pages written back from the pool to a swap device.
    zswpwb: Counter in Count,
    /// Pages read from a swap device.
    pswpin: Counter in Count,
    /// Pages written to a swap device.
    pswpout: Counter in Count,
    /// Reads from a swap device; those made at once count one by one.
    swap_reads: Counter in Count,
    /// Of these, reads of what a fault asked for that went on while memory was made for it.
    swap_reads_early: Counter in Count,
    /// Pages brought into the pool along with others that were read from a swap device.
    swap_ra: Counter in Count,
    /// Of these, pages that were asked for then.
    swap_ra_hit: Counter in Count,
    /// Bytes read from a swap device.
    swap_bytes_in: Counter in Bytes,
    /// Bytes written to a swap device.
    swap_bytes_out: Counter in Bytes,
    /// Pages written back without a write: the copy on the swap device was still right.
    swap_writes_saved: Counter in Count,
    /// Pages that could not be read back from a swap device, or not as they were written.
    swap_read_fail: Counter in Count,
    /// Runs of slots that a swap device failed to write: they are not used again.
    swap_write_fail: Counter in Count,
    /// Swap devices that failed so often that nothing is written to them any more.
    swap_device_fail: Counter in Count,
    /// Writebacks that found no room on the swap devices.
    swap_full: Counter in Count,
    /// Writebacks that were due and found writing back switched off.
    reject_writeback_off: Counter in Count,
    /// Of `written_back_pages`, those that the proactive shrinker wrote.
    shrinker_written_back: Counter in Count,
    /// Cold pages that it left in the pool because as many had just come back from the device.
    shrinker_protected: Counter in Count,
    /// Page faults served.
    faults: Counter in Count,
    /// Faults on pages that had been evicted.
    refaults: Counter in Count,
    /// Refaults so soon after eviction that the folio joined the active list.
    activations: Counter in Count,
    /// Pages installed at first touch.
    first_touch_pages: Counter in Count,
    /// Pages brought in beside the faulting one because access looked sequential, or they are in its block.
    readahead_pages: Counter in Count,
    /// Reclaims given up because the program wrote to the folio meanwhile.
    reclaim_cancelled: Counter in Count,
    /// Reclaim batches run.
    reclaim_batches: Counter in Count,
    /// Reclaim batches run by the background thread.
    reclaim_background: Counter in Count,
    /// Pool pages given back by compaction.
    compacted_pages: Counter in Count,
    /// Cold pages of the pool that were compressed once more, denser.
    densified_pages: Counter in Count,
    /// Bytes of the pool that this saved.
    densified_bytes: Counter in Bytes,
    /// Cold pages that were no smaller that way, and stayed as they were.
    reject_densify_poor: Counter in Count,
    /// Times that this stopped because the program was under pressure.
    densify_paused: Counter in Count,
    /// System calls that the guard prepared memory for.
    guarded_syscalls: Counter in Count,
    /// Pages that the guard brought in for a system call.
    guarded_pages: Counter in Count,
    /// Time spent in faults.
    fault_ticks: Counter in Ticks,
    /// Time spent reclaiming, inside and outside faults.
    reclaim_ticks: Counter in Ticks,
    /// Time spent making cold pages denser.
    densify_ticks: Counter in Ticks,
    /// Time spent reading from swap devices and writing to them.
    swap_ticks: Counter in Ticks,
    /// Managed pages resident in RAM.
    resident: Gauge in Bytes,
    /// Page table, folio table, slots and pool descriptors.
    metadata: Gauge in Bytes,
    /// RAM held by the compressed pool.
    pool_total_size: Gauge in Bytes,
    /// Pages stored in the pool, same-filled ones included.
    stored_pages: Gauge in Count,
    /// Stored pages that are kept raw.
    stored_incompressible_pages: Gauge in Count,
    /// Stored pages that hold one repeated word and take no pool memory.
    same_filled_pages: Gauge in Count,
    /// Pages on a swap device.
    swapped_pages: Gauge in Count,
    /// Of both, pages that are compressed together with others, in blocks.
    block_pages: Gauge in Count,
    /// Pages in RAM whose copies on a swap device are kept.
    swap_cached_pages: Gauge in Count,
    /// Anonymous memory mapped outside the arena because it may not move.
    unmanaged_fixed: Gauge in Bytes,
    /// Mappings left to the kernel because they are stacks.
    unmanaged_stack: Gauge in Bytes,
    /// Executable, shared or huge-page anonymous mappings left to the kernel.
    unmanaged_special: Gauge in Bytes,
    /// Highest of resident + pool + metadata.
    ram_peak: Peak in Bytes,
    /// Highest of resident + stored + swapped pages: what the process would have needed without uzswap.
    need_peak: Peak in Bytes,
    /// Highest `pool_total_size`.
    pool_peak: Peak in Bytes,
    /// Highest `stored_pages`.
    zswapped_peak: Peak in Bytes,
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

counters! {
    /// What is counted per folio order.
    OrderCounters:
    /// Folios stored whole into the pool.
    zswpout: Counter in Count,
    /// Runs of slots of this order written to a swap device.
    swpout: Counter in Count,
    /// Runs of this order that the swap device had no room for in one piece.
    swpout_fallback: Counter in Count,
    /// Folios of which only part could be stored.
    zswpout_fallback: Counter in Count,
}
