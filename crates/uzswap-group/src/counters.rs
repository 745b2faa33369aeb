//! *What*: what uzswap counts, by the kernel's names where the kernel has one. The shared layout,
//! the JSON names, the Prometheus metrics and the sums over processes are made from this list, so a
//! new counter is one entry here.
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
    /// Ticks of the time stamp counter; reported in seconds.
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

            /// Moves what a process that ended counted to these sums of those that ended.
            pub(crate) fn fold(&self, ended: &Self) {
                let pairs = self.cells().into_iter().zip(ended.cells());
                for ((to, from), what) in pairs.zip(Self::ALL) {
                    let n = from.swap(0, Relaxed);
                    match what.kind {
                        Kind::Counter => to.fetch_add(n, Relaxed),
                        Kind::Peak => to.fetch_max(n, Relaxed),
                        Kind::Gauge => 0,
                    };
                }
            }
        }
    };
}

counters! {
    /// One process's counters, in shared memory.
    Counters:
    /// Reservations that found the limit reached, so that memory was reclaimed first.
    pool_limit_hit: Counter in Count,
    /// Charges above the `high` of a group, after each of which as much was evicted, or it waited.
    high_limit_hit: Counter in Count,
    /// Pages written back from the pool to a swap device.
    written_back_pages: Counter in Count,
    /// Pages charged above the limit because other processes held it and could not give it back.
    over_limit_pages: Counter in Count,
    /// Reclaim attempts that freed nothing.
    reject_reclaim_fail: Counter in Count,
    /// Pages that the compressor failed on.
    reject_compress_fail: Counter in Count,
    /// Pages and blocks rejected because they did not decode to the original.
    verify_compress_fail: Counter in Count,
    /// Pages kept raw because they did not compress below a page.
    reject_compress_poor: Counter in Count,
    /// Stores that found no room in the pool, so that the page stayed resident.
    reject_alloc_fail: Counter in Count,
    /// First touches that found no room for their page table.
    reject_kmemcache_fail: Counter in Count,
    /// Loads of damaged data: it does not decode or does not match its checksum.
    decompress_fail: Counter in Count,
    /// Pages compressed by accelerator workers.
    accel_compressed: Counter in Count,
    /// Pages decompressed by accelerator workers.
    accel_decompressed: Counter in Count,
    /// Submissions retried because the accelerator worker had no free descriptor.
    accel_retries: Counter in Count,
    /// Pages offered to accelerator workers and processed by the program's own thread.
    accel_fallback: Counter in Count,
    /// Pages loaded from the pool.
    zswpin: Counter in Count,
    /// Pages stored into the pool.
    zswpout: Counter in Count,
    /// Pages stored into the pool with the denser codecs of `--compressor auto`.
    zswpout_denser: Counter in Count,
    /// Pool pages recompressed with the denser codecs of `--compressor auto`.
    recompressed_pages: Counter in Count,
    /// Pages written back from the pool to a swap device.
    zswpwb: Counter in Count,
    /// Pages read from a swap device.
    pswpin: Counter in Count,
    /// Pages written to a swap device.
    pswpout: Counter in Count,
    /// Reads from a swap device; reads submitted together count one by one.
    swap_reads: Counter in Count,
    /// Reads from a swap device that a fault overlapped with reclaiming memory for the page.
    swap_reads_early: Counter in Count,
    /// Pages read ahead from a swap device into the pool.
    swap_ra: Counter in Count,
    /// Pages read ahead from a swap device that were faulted on later.
    swap_ra_hit: Counter in Count,
    /// Bytes read from a swap device.
    swap_bytes_in: Counter in Bytes,
    /// Bytes written to a swap device.
    swap_bytes_out: Counter in Bytes,
    /// Pages written back without a write because the copy on the swap device was still valid.
    swap_writes_saved: Counter in Count,
    /// Pages that could not be read back from a swap device, or came back damaged.
    swap_read_fail: Counter in Count,
    /// Runs of slots that a swap device failed to write; they are not used again.
    swap_write_fail: Counter in Count,
    /// Swap devices that failed too often; they are only read from then on.
    swap_device_fail: Counter in Count,
    /// Writebacks that found no room on the swap devices.
    swap_full: Counter in Count,
    /// Writebacks that were due while writeback was switched off.
    reject_writeback_off: Counter in Count,
    /// Pages written back by the proactive shrinker.
    shrinker_written_back: Counter in Count,
    /// Cold pages that the shrinker kept in the pool because as many had just been swapped in.
    shrinker_protected: Counter in Count,
    /// Page faults served.
    faults: Counter in Count,
    /// Faults on evicted pages.
    refaults: Counter in Count,
    /// Refaults so soon after eviction that the folio joined the active list.
    activations: Counter in Count,
    /// Pages installed at first touch.
    first_touch_pages: Counter in Count,
    /// Pages brought in with the faulting page: sequential access, or the same block.
    readahead_pages: Counter in Count,
    /// Folios whose reclaim was cancelled because the program wrote to them meanwhile.
    reclaim_cancelled: Counter in Count,
    /// Reclaim batches run.
    reclaim_batches: Counter in Count,
    /// Reclaim batches run by the reclaimer beside the process.
    reclaim_background: Counter in Count,
    /// Pool pages freed by compaction.
    compacted_pages: Counter in Count,
    /// Cold pool pages recompressed more densely in the background.
    densified_pages: Counter in Count,
    /// Pool bytes saved by recompressing cold pages.
    densified_bytes: Counter in Bytes,
    /// Cold pool pages kept as they were because recompression saved too little.
    reject_densify_poor: Counter in Count,
    /// Times that background recompression paused because the program was under memory pressure.
    densify_paused: Counter in Count,
    /// System calls for which the guard prepared memory.
    guarded_syscalls: Counter in Count,
    /// Pages that the guard brought in for a system call.
    guarded_pages: Counter in Count,
    /// Time spent in faults.
    fault_ticks: Counter in Ticks,
    /// Time spent in reclaim, by the program's threads and by the reclaimer.
    reclaim_ticks: Counter in Ticks,
    /// Time spent in reclaim by the reclaimer beside the process.
    reclaim_background_ticks: Counter in Ticks,
    /// Time spent recompressing cold pages in the background.
    densify_ticks: Counter in Ticks,
    /// Time spent reading from and writing to swap devices, by threads and reclaimer.
    swap_ticks: Counter in Ticks,
    /// Managed pages resident in RAM.
    resident: Gauge in Bytes,
    /// Page table, folio table, operation buffers and pool descriptors.
    metadata: Gauge in Bytes,
    /// RAM held by the compressed pool.
    pool_total_size: Gauge in Bytes,
    /// Pages stored in the pool, same-filled ones included.
    stored_pages: Gauge in Count,
    /// Pages stored raw in the pool.
    stored_incompressible_pages: Gauge in Count,
    /// Stored pages that hold one repeated word and take no pool memory.
    same_filled_pages: Gauge in Count,
    /// Pages on a swap device.
    swapped_pages: Gauge in Count,
    /// Stored and swapped pages that are compressed together with others, in blocks.
    block_pages: Gauge in Count,
    /// Pages in RAM whose copies on a swap device are kept.
    swap_cached_pages: Gauge in Count,
    /// Address space, not memory: anonymous mappings outside the arena because they may not move.
    unmanaged_fixed: Gauge in Bytes,
    /// Address space, not memory: mappings left to the kernel because they are stacks.
    unmanaged_stack: Gauge in Bytes,
    /// Address space, not memory: executable, shared or huge-page anonymous mappings.
    unmanaged_special: Gauge in Bytes,
    /// Highest resident + pool + metadata, of all processes together.
    ram_peak: Peak in Bytes,
    /// Highest resident + stored + swapped pages of all processes: the need without uzswap.
    need_peak: Peak in Bytes,
    /// Highest pool_total_size.
    pool_peak: Peak in Bytes,
    /// Highest stored_pages.
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
    /// Runs of this order that found no contiguous slots on the swap device.
    swpout_fallback: Counter in Count,
    /// Folios of which only part could be stored.
    zswpout_fallback: Counter in Count,
}

counters! {
    /// How long the program's threads waited in faults and guarded system calls; each moment once.
    StallCounters:
    /// Bringing evicted pages in: decompression, copying, locks.
    decompress: Counter in Ticks,
    /// Evicting other pages to make room.
    reclaim: Counter in Ticks,
    /// Reading from swap devices, and writing to them to make room.
    swap: Counter in Ticks,
}
