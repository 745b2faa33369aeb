//! One lock around a linear scan.
//!
//! *What*: the baselines *map* and *owners*.
//! *Locking*: one lock each, around everything.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Result;
use uzswap_slots::Run;
use uzswap_sync::lock::{Lock, LockGuard};

use super::Allocator;
use super::memory::Shared;

/// The data under the lock.
struct Map {
    memory: Shared,
    /// Whether the process's own counts follow the totals.
    owners: bool,
    /// Where the next search starts.
    next: usize,
}

impl Map {
    /// The totals, and the process's own counts.
    fn counts(&mut self) -> (&mut [u8], &mut [u8]) {
        let bytes = self.memory.bytes();
        bytes.split_at_mut(bytes.len() / 2)
    }

    fn alloc(&mut self, nr: usize) -> Option<usize> {
        let (owners, next) = (self.owners, self.next);
        let (totals, own) = self.counts();
        let from = next.next_multiple_of(nr).min(totals.len());
        let is_free = |first: &usize| totals[*first..first + nr].iter().all(|&count| count == 0);
        let first = (from..totals.len())
            .step_by(nr)
            .find(is_free)
            .or_else(|| (0..from).step_by(nr).find(is_free))?;
        totals[first..first + nr].fill(1);
        if owners {
            own[first..first + nr].fill(1);
        }
        self.next = first + nr;
        Some(first)
    }

    fn put(&mut self, slots: std::ops::Range<usize>) {
        let owners = self.owners;
        let (totals, own) = self.counts();
        let minus_one = |count: &mut u8| *count -= 1;
        if owners {
            own[slots.clone()].iter_mut().for_each(minus_one);
        }
        totals[slots].iter_mut().for_each(minus_one);
    }
}

/// The baseline *map* or *owners*.
pub(super) struct OneLock {
    map: Lock<Map>,
    waited_ns: AtomicU64,
}

impl OneLock {
    pub(super) fn new(nr_slots: u32, owners: bool) -> Result<Self> {
        let map = Map {
            memory: Shared::new(2 * nr_slots as usize)?,
            owners,
            next: 0,
        };
        Ok(Self {
            map: Lock::new(map),
            waited_ns: AtomicU64::new(0),
        })
    }

    /// Locks the map and counts the time waited.
    fn lock(&self) -> LockGuard<'_, Map> {
        if let Some(guard) = self.map.try_lock() {
            return guard;
        }
        let start = Instant::now();
        let guard = self.map.lock();
        let waited = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.waited_ns.fetch_add(waited, Ordering::Relaxed);
        guard
    }
}

impl Allocator for OneLock {
    fn alloc(&self, _cpu: usize, order: u8) -> Option<Run> {
        let first = self.lock().alloc(1 << order)?;
        Some(Run {
            first: u32::try_from(first).ok()?,
            nr: 1 << order,
        })
    }

    fn put(&self, run: Run) {
        let first = run.first as usize;
        self.lock().put(first..first + usize::from(run.nr));
    }

    fn waited_ns(&self) -> u64 {
        self.waited_ns.load(Ordering::Relaxed)
    }
}
