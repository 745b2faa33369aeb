//! The kernel's `scan_swap_map`, as it was for all devices until Linux 3.11 and for rotational ones
//! until 6.11.
//! *What*: after every 256 slots it searches, from the lowest free slot and with the lock dropped,
//! for 256 free ones in a row; if there are none it starts again at the lowest. Single slots only.
//! *Locking*: the device lock guards `SwapInfo` and writes to the map; the map is read without it,
//! too.

use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::Result;
use uzswap_slots::Run;
use uzswap_sync::lock::LockGuard;

use super::Allocator;
use super::memory::Shared;
use super::one_lock::Waited;

/// Free slots in a row that it searches for.
const SWAPFILE_CLUSTER: usize = 256;

/// Its state, with the kernel's names.
struct SwapInfo {
    lowest_bit: usize,
    highest_bit: usize,
    inuse_pages: usize,
    cluster_next: usize,
    cluster_nr: usize,
}

/// The baseline *kernel*.
pub(super) struct ScanSwapMap {
    swap_map: Shared,
    info: Waited<SwapInfo>,
}

impl ScanSwapMap {
    pub(super) fn new(nr_slots: u32) -> Result<Self> {
        Ok(Self {
            swap_map: Shared::new(nr_slots as usize)?,
            info: Waited::new(SwapInfo {
                lowest_bit: 0,
                highest_bit: nr_slots as usize - 1,
                inuse_pages: 0,
                cluster_next: 0,
                cluster_nr: 0,
            }),
        })
    }

    /// Finds the first of 256 free slots in a row.
    fn find_cluster(map: &[AtomicU8], lowest: usize, highest: usize) -> Option<usize> {
        let mut last_in_cluster = lowest + SWAPFILE_CLUSTER - 1;
        let mut offset = lowest;
        while last_in_cluster <= highest {
            if map[offset].load(Ordering::Relaxed) != 0 {
                last_in_cluster = offset + SWAPFILE_CLUSTER;
            } else if offset == last_in_cluster {
                return Some(offset + 1 - SWAPFILE_CLUSTER);
            }
            offset += 1;
        }
        None
    }

    /// Where the search starts, and where it ends after wrapping around.
    fn begin<'l>(
        &'l self,
        map: &[AtomicU8],
        mut info: LockGuard<'l, SwapInfo>,
    ) -> (LockGuard<'l, SwapInfo>, usize, usize) {
        let next = info.cluster_next;
        if info.cluster_nr > 0 {
            info.cluster_nr -= 1;
            return (info, next, next);
        }
        info.cluster_nr = SWAPFILE_CLUSTER - 1;
        if map.len() - info.inuse_pages < SWAPFILE_CLUSTER {
            return (info, next, next);
        }
        let (lowest, highest) = (info.lowest_bit, info.highest_bit);
        drop(info);
        let found = Self::find_cluster(map, lowest, highest);
        (self.info.lock(), found.unwrap_or(lowest), lowest)
    }
}

impl Allocator for ScanSwapMap {
    fn alloc(&self, _cpu: usize, order: u8) -> Option<Run> {
        if order != 0 {
            return None;
        }
        let map = self.swap_map.counts();
        let is_free = |offset: &usize| map[*offset].load(Ordering::Relaxed) == 0;
        let (mut info, mut offset, mut scan_base) = self.begin(map, self.info.lock());
        loop {
            if info.inuse_pages == map.len() {
                return None;
            }
            if offset > info.highest_bit {
                offset = info.lowest_bit;
                scan_base = offset;
            }
            if is_free(&offset) {
                break;
            }
            let (lowest, highest) = (info.lowest_bit, info.highest_bit);
            drop(info);
            let mut round = (offset + 1..=highest).chain(lowest..scan_base);
            offset = round.find(is_free)?;
            info = self.info.lock();
        }
        map[offset].store(1, Ordering::Relaxed);
        if offset == info.lowest_bit {
            info.lowest_bit += 1;
        }
        if offset == info.highest_bit {
            info.highest_bit -= 1;
        }
        info.inuse_pages += 1;
        if info.inuse_pages == map.len() {
            (info.lowest_bit, info.highest_bit) = (map.len(), 0);
        }
        info.cluster_next = offset + 1;
        Some(Run {
            first: u32::try_from(offset).ok()?,
            nr: 1,
        })
    }

    fn put(&self, run: Run) {
        let offset = run.first as usize;
        let mut info = self.info.lock();
        let count = &self.swap_map.counts()[offset];
        let left = count.load(Ordering::Relaxed) - 1;
        count.store(left, Ordering::Relaxed);
        if left == 0 {
            info.lowest_bit = info.lowest_bit.min(offset);
            info.highest_bit = info.highest_bit.max(offset);
            info.inuse_pages -= 1;
        }
    }

    fn waited_ns(&self) -> u64 {
        self.info.ns()
    }
}
