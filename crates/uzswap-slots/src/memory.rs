//! *What*: the layout of a device's shared memory, and how a process finds it.
//!
//! *Invariants*: in this order, each part starting on a page: [`Head`], the clusters' summaries,
//! their descriptors, their users, then a row of counts (1 byte a slot) for each process, and one
//! more for the bad slots. Rows and users are sparse: a process's row is memory only where it has
//! slots.
//! *Locking*: none.
//! *Context*: init.

use crate::cluster::{CLUSTER_SLOTS, Descriptor, NR_ORDERS, Summary};
use crate::device::Slots;
use crate::lists::ListHeads;
use crate::lock::WaitCounts;
use crate::row::Words;
use crate::table::Table;
use crate::users::NR_GROUPS;
use uzswap_sync::primitive::{AtomicU32, AtomicU64, Ordering};
use uzswap_sys::PAGE_SIZE;

/// Processes that can own slots: with the supervisor, as many as [`crate::users`] tells apart. Few
/// under Miri, which looks at each atomic of a slice whenever the slice is borrowed.
pub const NR_PROCESSES: usize = match (cfg!(loom), cfg!(miri)) {
    (true, _) => 2,
    (false, true) => 8,
    (false, false) => 4095,
};
/// The index under which the supervisor joins. It releases dead processes and owns no slots but the
/// bad.
pub const SUPERVISOR: usize = NR_PROCESSES;
/// Rows of counts.
pub(crate) const NR_ROWS: usize = NR_PROCESSES + 1;
/// CPUs that have current clusters of their own; higher numbers share them.
pub const NR_CPUS: usize = match (cfg!(loom), cfg!(miri)) {
    (true, _) => 2,
    (false, true) => 4,
    (false, false) => 64,
};

/// [`Head::flags`]: nothing is handed out any more.
pub(crate) const CLOSED: u32 = 1;
/// [`Head::flags`]: one current cluster for all CPUs, so that writes stay sequential.
pub(crate) const ROTATIONAL: u32 = 2;
/// [`Head::flags`]: empty clusters go over the discard list.
pub(crate) const DISCARD: u32 = 4;

/// The current cluster of each order, as 1 + index; 0 for none. It is set to 0 by the holder of the
/// lock of the cluster named, which is not `Current` of that order any more, and set to another
/// only when it is 0.
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C, align(64))]
pub(crate) struct CurrentClusters(pub(crate) [AtomicU32; NR_ORDERS]);

/// Where the next scan of the full clusters starts; on a cache line of its own.
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C, align(64))]
pub(crate) struct ScanStart(pub(crate) AtomicU32);

#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C, align(4096))]
pub(crate) struct Head {
    pub(crate) lists: ListHeads,
    pub(crate) cluster_waits: WaitCounts,
    // On other cache lines than what is written all the time.
    pub(crate) currents: [CurrentClusters; NR_CPUS],
    pub(crate) flags: AtomicU32,
    /// Where the next scan for a few free slots starts.
    pub(crate) scan_start: ScanStart,
    /// How many lives each process index has had.
    pub(crate) epochs: [AtomicU32; NR_ROWS],
    /// Runs of each order that were asked for and not found.
    pub(crate) fallbacks: [AtomicU64; NR_ORDERS],
}

impl Head {
    pub(crate) fn has(&self, flag: u32) -> bool {
        // Relaxed: nothing depends on the flag's order.
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    pub(crate) fn set(&self, flag: u32, on: bool) {
        if on {
            self.flags.fetch_or(flag, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!flag, Ordering::Relaxed);
        }
    }
}

/// Where each part begins, for a number of clusters.
struct Layout {
    summaries: usize,
    descriptors: usize,
    users: usize,
    counts: usize,
    end: usize,
}

impl Layout {
    fn of(nr_clusters: usize) -> Self {
        let after = |start: usize, len: usize| (start + len).next_multiple_of(PAGE_SIZE);
        let summaries = after(0, size_of::<Head>());
        let descriptors = after(summaries, nr_clusters * size_of::<Summary>());
        let users = after(descriptors, nr_clusters * size_of::<Descriptor>());
        let counts = after(users, NR_GROUPS * nr_clusters * size_of::<AtomicU64>());
        let end = after(counts, NR_ROWS * nr_clusters * size_of::<Words>());
        Self {
            summaries,
            descriptors,
            users,
            counts,
            end,
        }
    }
}

fn clusters_of(nr_slots: u32) -> usize {
    (nr_slots / CLUSTER_SLOTS) as usize
}

/// Whether the process of this index is still there; `false` only when it surely is not. It is
/// there from before it joins.
pub type IsAlive<'m> = &'m (dyn Fn(usize) -> bool + Sync);

impl<'m> Slots<'m> {
    /// Bytes of shared memory that a device of `nr_slots` needs. Mostly address space: about 1.14
    /// bytes a slot in use become memory.
    #[must_use]
    pub fn memory_len(nr_slots: u32) -> usize {
        Layout::of(clusters_of(nr_slots)).end
    }

    /// The device of `nr_slots` slots (less the last ones that fill no cluster) whose state is in
    /// `memory`.
    ///
    /// # Safety
    /// `memory` is page-aligned, readable and writable for [`Slots::memory_len`] bytes for as long
    /// as `'m`, was zero-filled at first, and is written only by this module's calls with the same
    /// `nr_slots`.
    #[must_use]
    pub unsafe fn attach(memory: *mut u8, nr_slots: u32, is_alive: IsAlive<'m>) -> Self {
        let nr_clusters = clusters_of(nr_slots);
        let layout = Layout::of(nr_clusters);
        // SAFETY: each part lies within the memory by `Layout`, is aligned to a page, and consists
        // of atomics alone, for which every bit pattern is valid.
        unsafe {
            let table = Table {
                head: &*memory.cast::<Head>(),
                summaries: part(memory, layout.summaries, nr_clusters),
                descriptors: part(memory, layout.descriptors, nr_clusters),
                users: part(memory, layout.users, NR_GROUPS * nr_clusters),
                counts: part(memory, layout.counts, NR_ROWS * nr_clusters),
                is_alive,
            };
            Slots { table }
        }
    }
}

/// # Safety
/// `nr` values of `T` lie at `offset`, valid for reads and writes through shared references.
unsafe fn part<'m, T>(memory: *mut u8, offset: usize, nr: usize) -> &'m [T] {
    // SAFETY: by this function's contract.
    unsafe { core::slice::from_raw_parts(memory.add(offset).cast(), nr) }
}

#[cfg(loom)]
pub use model::Model;

/// Loom's atomics cannot be made of zeroes: the same parts in memory of their own.
#[cfg(loom)]
mod model {
    extern crate std;
    use super::*;
    use std::{boxed::Box, vec::Vec};

    /// The memory of a device under the model checker.
    #[derive(Debug)]
    pub struct Model {
        head: Box<Head>,
        summaries: Vec<Summary>,
        descriptors: Vec<Descriptor>,
        users: Vec<AtomicU64>,
        counts: Vec<Words>,
    }

    impl Model {
        /// An empty device.
        #[must_use]
        pub fn new(nr_clusters: usize) -> Self {
            fn made<T: Default>(nr: usize) -> Vec<T> {
                (0..nr).map(|_| T::default()).collect()
            }
            Self {
                head: Box::default(),
                summaries: made(nr_clusters),
                descriptors: made(nr_clusters),
                users: made(NR_GROUPS * nr_clusters),
                counts: made(NR_ROWS * nr_clusters),
            }
        }

        /// The device.
        #[must_use]
        pub fn slots<'m>(&'m self, is_alive: IsAlive<'m>) -> Slots<'m> {
            let table = Table {
                head: &self.head,
                summaries: &self.summaries,
                descriptors: &self.descriptors,
                users: &self.users,
                counts: &self.counts,
                is_alive,
            };
            Slots { table }
        }
    }
}
