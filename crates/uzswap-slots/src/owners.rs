//! *What*: the processes that hold slots: they join, fork, die and are released.
//!
//! *Invariants*
//! - A process has an index and, each time the index is joined, a new epoch. Both make its *stamp*.
//!   A stamp whose epoch is not the current one belongs to a process that is gone.
//!
//! *Locking*: one cluster's lock after the other. The epochs change by atomic additions; their
//! order against other stores does not matter, because only a process that is gone has an old one.
//! *Context*: signal, worker, fork; in every process of the group.

use crate::cluster::State;
use crate::device::Slots;
use crate::memory::{NR_PROCESSES, SUPERVISOR};
use crate::table::Table;
use uzswap_sync::primitive::Ordering;
use uzswap_sync::strict_unreachable;

const INDEX_BITS: u32 = 13;
const _: () = assert!(SUPERVISOR < INDEX_MASK as usize);
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
const EPOCH_MASK: u32 = (1 << (31 - INDEX_BITS)) - 1;

/// A process as this device knows it: the row of its counts, and the stamp on the locks that it
/// holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    index: u16,
    stamp: u32,
}

impl Owner {
    /// The index that was joined.
    #[must_use]
    pub fn index(self) -> usize {
        self.index.into()
    }

    pub(crate) fn stamp(self) -> u32 {
        self.stamp
    }

    /// Whether it can own slots: the supervisor cannot.
    pub(crate) fn owns(self) -> bool {
        self.index() < NR_PROCESSES
    }
}

impl Slots<'_> {
    /// Begins a new life of process `index`, which must be this process's alone. What an earlier
    /// process of this index left is freed. An index above [`SUPERVISOR`] counts as that.
    pub fn join(&self, index: usize) -> Owner {
        let owner = self.table.next_life(index);
        self.release(owner, owner.index());
        owner
    }

    /// Gives the child-to-be `child` all that `parent` holds. To be called before the process is
    /// cloned, with no other thread of the parent in the allocator; the child goes on with the
    /// owner returned. If there is no child after all, [`Slots::release`] takes it back.
    pub fn fork(&self, parent: Owner, child: usize) -> Owner {
        // What ends the life before must come first: it would end this one.
        self.release(parent, child);
        let child = self.table.next_life(child);
        if child.owns() {
            for index in self.table.used_by(parent.index()) {
                if let Some(held) = self.table.hold(parent, index) {
                    held.copy_counts(parent.index(), child.index());
                }
            }
        }
        child
    }

    /// Process `index` is gone: gives back what it held, and takes over the locks that it died
    /// with.
    ///
    /// May be called by several at once, but not any more when the index is joined anew.
    pub fn release(&self, by: Owner, index: usize) {
        let index = index.min(SUPERVISOR);
        if by.index() != index {
            self.table.next_life(index);
        }
        // The device lock first: all that follows needs it.
        drop(self.table.lists(by));
        let fresh = self.table.head.lists.fresh.load(Ordering::Relaxed);
        for number in 0..fresh {
            let Some(cluster) = self.table.cluster(number) else {
                strict_unreachable!("a cluster beyond the device's end was used");
                break;
            };
            let holds = self.table.life_of(cluster.descriptor.lock.holder()).0 == index;
            let discards =
                matches!(cluster.state(), State::Discarding(by) if usize::from(by) == index);
            if (self.table.users(cluster, number).has(index) || holds || discards)
                && let Some(held) = self.table.hold(by, number)
            {
                held.drop_counts(index);
            }
        }
    }
}

impl Table<'_> {
    fn next_life(&self, index: usize) -> Owner {
        let index = index.min(SUPERVISOR);
        let epoch = self.head.epochs.get(index);
        let epoch = epoch.map_or(0, |epoch| {
            epoch.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
        });
        let low = u32::try_from(index).unwrap_or(0);
        Owner {
            index: u16::try_from(index).unwrap_or(u16::MAX),
            stamp: (low + 1) | (epoch & EPOCH_MASK) << INDEX_BITS,
        }
    }

    /// Which index a stamp names, and whether it is of that index's present life.
    pub(crate) fn life_of(&self, stamp: u32) -> (usize, bool) {
        let index = ((stamp & INDEX_MASK) as usize).wrapping_sub(1);
        let epoch = self.head.epochs.get(index);
        let present = epoch
            .is_some_and(|epoch| epoch.load(Ordering::Relaxed) & EPOCH_MASK == stamp >> INDEX_BITS);
        (index, present)
    }
}
