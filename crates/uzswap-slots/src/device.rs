//! *What*: [`Slots`], one device: allocation from the CPU's current cluster, its kind and its use.
//!
//! *Invariants*
//! - A run is handed out by the home of its cluster (see `home`) or by the holder of its lock.
//! - The cluster that a CPU names as current may be stale: it is current only while its state says
//!   so, for the same order.
//!
//! *Locking*: alloc by the home of the CPU's current cluster takes no lock; what follows is a
//! [`Search`].
//! *Context*: signal, worker; in every process of the group.

use crate::cluster::{CLUSTER_SLOTS, NR_ORDERS};
use crate::memory::{CLOSED, DISCARD, ROTATIONAL};
use crate::row::MAX_COUNT;
use crate::search::Search;
use crate::table::{Table, named_by};
use crate::{LockWaits, Owner, Run};
use uzswap_sync::primitive::Ordering;

/// One swap device's slots, in shared memory.
#[derive(Debug)]
pub struct Slots<'m> {
    pub(crate) table: Table<'m>,
}

impl<'m> Slots<'m> {
    /// Allocates 2^`order` contiguous slots, aligned to as many.
    /// Slot `i` starts with `counts[i]` (at most 254) of the owner's counts: how many objects
    /// touch it. Slots whose count is 0 or not given stay free. `cpu` is a hint.
    ///
    /// `None`: the device is closed, full or too fragmented; counted in [`Slots::fallbacks`]. The
    /// caller goes on with a smaller order. Order 0 fails only when no slot is free, or others have
    /// just taken the last ones.
    #[must_use]
    #[inline]
    pub fn alloc(&self, owner: Owner, cpu: usize, order: u8, counts: &[u8]) -> Option<Run> {
        match (order, counts) {
            // A copy of its own for single slots: the compiler drops what handles runs and words.
            (0, &[count]) => self.alloc_inline(owner, cpu, 0, &[count]),
            _ => self.alloc_run(owner, cpu, order, counts),
        }
    }

    #[inline(never)]
    fn alloc_run(&self, owner: Owner, cpu: usize, order: u8, counts: &[u8]) -> Option<Run> {
        self.alloc_inline(owner, cpu, order, counts)
    }

    #[inline(always)]
    fn alloc_inline(&self, owner: Owner, cpu: usize, order: u8, counts: &[u8]) -> Option<Run> {
        if usize::from(order) >= NR_ORDERS || counts.len() > 1 << order || !owner.owns() {
            return None;
        }
        let most = counts.iter().copied().max().unwrap_or(0);
        if self.is_closed() || most == 0 || most > MAX_COUNT {
            return None;
        }
        let current = self.table.current(owner, cpu, order)?;
        if let Some(index) = named_by(current)
            && let Some(run) = self.table.take_at_home(owner, index, order, counts)
        {
            return Some(run);
        }
        self.search(owner, cpu, order, counts)
    }

    #[cold]
    fn search(&self, owner: Owner, cpu: usize, order: u8, counts: &[u8]) -> Option<Run> {
        let run = Search::new(&self.table, owner, cpu, order, counts).run();
        if run.is_none()
            && let Some(fallbacks) = self.table.head.fallbacks.get(usize::from(order))
        {
            fallbacks.fetch_add(1, Ordering::Relaxed);
        }
        run
    }

    /// What kind of device this is. Set once by its creator, before others attach.
    ///
    /// `rotational`: all CPUs share one current cluster of each order, so that writes stay
    /// sequential. `discard`: empty clusters are discarded on the device ([`Slots::take_discard`])
    /// before they are free.
    pub fn set_kind(&self, rotational: bool, discard: bool) {
        self.table.head.set(ROTATIONAL, rotational);
        self.table.head.set(DISCARD, discard);
    }

    /// Allocates nothing from now on; calls under way may still succeed.
    pub fn close(&self) {
        self.table.head.set(CLOSED, true);
    }

    /// Undoes [`Slots::close`].
    pub fn open(&self) {
        self.table.head.set(CLOSED, false);
    }

    /// Whether nothing is allocated.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.table.head.has(CLOSED)
    }

    /// Slots of the device.
    #[must_use]
    pub fn nr_slots(&self) -> u32 {
        u32::try_from(self.table.nr_clusters()).map_or(u32::MAX, |nr| nr * CLUSTER_SLOTS)
    }

    /// Slots that are taken; exact while nothing changes. Looks at every cluster that was ever
    /// used.
    #[must_use]
    pub fn used(&self) -> u64 {
        let fresh = self.table.head.lists.fresh.load(Ordering::Relaxed);
        (0..fresh)
            .map(|index| u64::from(self.table.map(index).nr_taken()))
            .sum()
    }

    /// Slots of the clusters that are not empty: what the device occupies at most.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        let nr = self.table.head.lists.nr_nonempty.load(Ordering::Relaxed);
        u64::from(nr) * u64::from(CLUSTER_SLOTS)
    }

    /// The most that [`Slots::in_use`] ever was.
    #[must_use]
    pub fn peak(&self) -> u64 {
        let nr = self.table.head.lists.peak_nonempty.load(Ordering::Relaxed);
        u64::from(nr) * u64::from(CLUSTER_SLOTS)
    }

    /// How often a run of `order` was asked for and not found.
    #[must_use]
    pub fn fallbacks(&self, order: u8) -> u64 {
        let fallbacks = self.table.head.fallbacks.get(usize::from(order));
        fallbacks.map_or(0, |nr| nr.load(Ordering::Relaxed))
    }

    /// How often and how long locks were waited for.
    #[must_use]
    pub fn lock_waits(&self) -> LockWaits {
        let (cluster, device) = (&self.table.head.cluster_waits, &self.table.head.lists.waits);
        LockWaits {
            nr_cluster: cluster.nr.load(Ordering::Relaxed),
            cluster_ns: cluster.ns.load(Ordering::Relaxed),
            nr_device: device.nr.load(Ordering::Relaxed),
            device_ns: device.ns.load(Ordering::Relaxed),
        }
    }
}
