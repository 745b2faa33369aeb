//! # What
//! Who holds which slots: each process's counts, `dup` and `put`, and how counts come and go with processes.
//!
//! # Invariants
//! - A process's bit for a cluster in `touched` is set before its first count there, and cleared only
//!   when it has none left.
//! - Counting up: total, then own. Counting down: own, then total.
//! - A process has an index and, each time the index is joined, a new epoch. Both make its *stamp*. A
//!   stamp whose epoch is not the current one belongs to a process that is gone.
//!
//! # Locking
//! Counts change under their cluster's lock. The epochs change by atomic additions; their order against
//! other stores does not matter, because only a process that is gone has an old one.
//!
//! # Context
//! Signal, worker, fork; in every process of the group.

use super::cluster::{CLUSTER_SLOTS, State};
use super::device::{Held, Slots};
use super::memory::{NR_PROCESSES, SUPERVISOR};
use super::{BAD, Run, step};
use crate::primitive::{AtomicU8, AtomicU16, AtomicU64, Ordering};

const INDEX_BITS: u32 = 9;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
const EPOCH_MASK: u32 = (1 << (31 - INDEX_BITS)) - 1;

/// A process as this device knows it: what its counts are kept under, and what it stamps its locks with.
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

    pub(super) fn stamp(self) -> u32 {
        self.stamp
    }

    /// Whether it can own slots: the supervisor cannot.
    pub(super) fn owns(self) -> bool {
        self.index() < NR_PROCESSES
    }
}

impl<'m> Slots<'m> {
    /// Begins a new life of process `index`, which must be this process's alone. What an earlier process of this
    /// index left is freed. An index above [`SUPERVISOR`] counts as that.
    pub fn join(&self, index: usize) -> Owner {
        let owner = self.next_life(index);
        self.release(owner, owner.index());
        owner
    }

    /// Gives the child-to-be `child` all that `parent` holds. To be called before the process is cloned, with
    /// no other thread of the parent in the allocator; the child goes on with the owner returned. If there
    /// is no child after all, [`Slots::release`] takes it back.
    pub fn fork(&self, parent: Owner, child: usize) -> Owner {
        let child = self.next_life(child);
        self.release(parent, child.index());
        if child.owns() {
            for index in self.touched_by(parent.index()) {
                if let Some(held) = self.hold(parent, index) {
                    held.copy_counts(parent.index(), child.index());
                }
            }
        }
        child
    }

    /// Process `index` is gone: gives back what it held, and takes over the locks that it died with.
    ///
    /// May be called by several at once, but not any more when the index is joined anew.
    pub fn release(&self, by: Owner, index: usize) {
        if by.index() != index {
            self.next_life(index);
        }
        // The lists first: what follows needs them in any case.
        drop(self.lists(by));
        let fresh = self.head.lists.fresh.load(Ordering::Relaxed);
        for number in 0..fresh {
            let Some(cluster) = self.cluster(number) else {
                break;
            };
            let holds = self.life_of(cluster.lock.holder()).0 == index;
            let discards =
                matches!(cluster.state(), State::Discarding(by) if usize::from(by) == index);
            if (self.has_touched(index, number) || holds || discards)
                && let Some(held) = self.hold(by, number)
            {
                held.drop_counts(index);
            }
        }
    }

    /// Adds one count to each slot of `run`, which lies in one cluster and is held by `owner`.
    ///
    /// `false`, and nothing is changed: a slot has 255 counts of this owner's, or none.
    #[must_use]
    pub fn dup(&self, owner: Owner, run: Run) -> bool {
        let Some(held) = self.hold_run(owner, run) else {
            return false;
        };
        let countable = |slot| {
            !matches!(
                self.own(owner.index(), slot).load(Ordering::Relaxed),
                0 | u8::MAX
            )
        };
        if !run.slots().all(countable) {
            return false;
        }
        held.count_up(owner.index(), offsets_of(run), |_| 1);
        true
    }

    /// Takes one count of `owner`'s off each slot of `run`, which lies in one cluster. A slot whose last count
    /// this was is free.
    pub fn put(&self, owner: Owner, run: Run) {
        if let Some(held) = self.hold_run(owner, run) {
            held.count_down(owner.index(), offsets_of(run), |_| 1);
            held.settle();
        }
    }

    /// Counts of `slot` by all processes; `u16::MAX` for a slot that went bad. A hint while others count.
    #[must_use]
    pub fn count(&self, slot: u32) -> u16 {
        let total = self.totals.get(slot as usize);
        total.map_or(0, |total| total.load(Ordering::Relaxed))
    }

    /// Counts of `slot` by the process `index`. A hint while that process counts.
    #[must_use]
    pub fn count_of(&self, index: usize, slot: u32) -> u8 {
        if index >= NR_PROCESSES || slot >= self.nr_slots() {
            return 0;
        }
        self.own(index, slot).load(Ordering::Relaxed)
    }

    /// Calls `f` with every slot that process `index` holds and its counts, with no lock held: the way to
    /// bring everything back before a device goes.
    pub fn for_each_owned(&self, index: usize, mut f: impl FnMut(u32, u8)) {
        for cluster in self.touched_by(index) {
            for slot in slots_of(cluster) {
                match self.count_of(index, slot) {
                    0 => {}
                    count => f(slot, count),
                }
            }
        }
    }

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
    pub(super) fn life_of(&self, stamp: u32) -> (usize, bool) {
        let index = ((stamp & INDEX_MASK) as usize).wrapping_sub(1);
        let epoch = self.head.epochs.get(index);
        let present = epoch
            .is_some_and(|epoch| epoch.load(Ordering::Relaxed) & EPOCH_MASK == stamp >> INDEX_BITS);
        (index, present)
    }

    /// Takes the lock of the cluster that `run` lies in; `None` if it lies in none, or in more than one.
    pub(super) fn hold_run(&self, owner: Owner, run: Run) -> Option<Held<'_, 'm>> {
        let index = run.first / CLUSTER_SLOTS;
        let fits = run.first % CLUSTER_SLOTS + u32::from(run.nr) <= CLUSTER_SLOTS;
        debug_assert!(fits, "{run:?} crosses a cluster's end");
        if !fits || !owner.owns() {
            return None;
        }
        self.hold(owner, index)
    }

    /// The total of `slot`, which is one of the device's.
    fn total(&self, slot: u32) -> &AtomicU16 {
        debug_assert!((slot as usize) < self.totals.len());
        // SAFETY: callers pass slots of a cluster that `cluster` found, and all of its slots exist.
        unsafe { self.totals.get_unchecked(slot as usize) }
    }

    /// The counts that process `index` has of `slot`, both of them in range.
    fn own(&self, index: usize, slot: u32) -> &AtomicU8 {
        debug_assert!(index < NR_PROCESSES && (slot as usize) < self.totals.len());
        // SAFETY: as in `total`; and callers pass an index below `NR_PROCESSES`.
        unsafe {
            self.owned
                .get_unchecked(index * self.totals.len() + slot as usize)
        }
    }

    fn touched_word(&self, index: usize, cluster: u32) -> Option<(&AtomicU64, u64)> {
        if index >= NR_PROCESSES {
            return None;
        }
        let words = self.clusters.len().div_ceil(64);
        let word = self.touched.get(index * words + cluster as usize / 64)?;
        Some((word, 1 << (cluster % 64)))
    }

    fn has_touched(&self, index: usize, cluster: u32) -> bool {
        let word = self.touched_word(index, cluster);
        word.is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    fn touched_by(&self, index: usize) -> impl Iterator<Item = u32> {
        let fresh = self.head.lists.fresh.load(Ordering::Relaxed);
        (0..fresh).filter(move |&cluster| self.has_touched(index, cluster))
    }
}

fn slots_of(cluster: u32) -> core::ops::Range<u32> {
    cluster * CLUSTER_SLOTS..(cluster + 1) * CLUSTER_SLOTS
}

/// The places of a run's slots in its cluster.
fn offsets_of(run: Run) -> core::ops::Range<u32> {
    let first = run.first % CLUSTER_SLOTS;
    first..first + u32::from(run.nr)
}

/// Makes a change to each slot, and marks at once those of each word for which it said yes.
#[inline]
fn by_words(
    offsets: core::ops::Range<u32>,
    mut change: impl FnMut(u32) -> bool,
    mark: impl Fn(u32, u64),
) {
    let mut at = offsets.start;
    while at < offsets.end {
        let end = offsets.end.min((at / 64 + 1) * 64);
        let changed = (at..end).fold(0, |mask, offset| {
            mask | u64::from(change(offset)) << (offset % 64)
        });
        if changed != 0 {
            mark(at, changed);
            step();
        }
        at = end;
    }
}

impl Held<'_, '_> {
    /// Allocates a run in this cluster, slot `i` with `counts[i]`.
    pub(super) fn take(&self, order: u8, counts: &[u8]) -> Option<Run> {
        let first = self.cluster.find_run(order)?;
        let nr = u32::try_from(counts.len()).unwrap_or(0);
        self.count_up(self.owner.index(), first..first + nr, |offset| {
            let count = counts.get((offset - first) as usize);
            count.copied().unwrap_or(0)
        });
        Some(Run {
            first: self.first() + first,
            nr: 1 << order,
        })
    }

    /// The number of the cluster's first slot.
    fn first(&self) -> u32 {
        self.index * CLUSTER_SLOTS
    }

    /// Adds `nr(offset)` counts of process `index` to each slot.
    #[inline]
    fn count_up(&self, index: usize, offsets: core::ops::Range<u32>, nr: impl Fn(u32) -> u8) {
        if let Some((word, bit)) = self.slots.touched_word(index, self.index)
            && word.load(Ordering::Relaxed) & bit == 0
        {
            // Other clusters' bits are in the same word.
            word.fetch_or(bit, Ordering::Relaxed);
            step();
        }
        let up = |offset| {
            let (slot, nr) = (self.first() + offset, nr(offset));
            if nr == 0 {
                return false;
            }
            let (total, own) = (self.slots.total(slot), self.slots.own(index, slot));
            let before = total.load(Ordering::Relaxed);
            if before != BAD {
                // Release here and below: the second store never passes the first.
                total.store(before.saturating_add(nr.into()), Ordering::Release);
                step();
            }
            let owned = own.load(Ordering::Relaxed);
            own.store(owned.saturating_add(nr), Ordering::Release);
            step();
            before == 0
        };
        by_words(offsets, up, |offset, mask| {
            self.cluster.mark_taken(offset, mask)
        });
    }

    /// Takes `nr(own counts)` counts of process `index` off each slot.
    #[inline]
    fn count_down(&self, index: usize, offsets: core::ops::Range<u32>, nr: impl Fn(u8) -> u8) {
        let down = |offset| {
            let slot = self.first() + offset;
            let (total, own) = (self.slots.total(slot), self.slots.own(index, slot));
            let owned = own.load(Ordering::Relaxed);
            let nr = nr(owned);
            debug_assert!(
                owned >= nr,
                "slot {slot} put more often than it was counted"
            );
            let nr = nr.min(owned);
            if nr == 0 {
                return false;
            }
            own.store(owned - nr, Ordering::Release);
            step();
            let before = total.load(Ordering::Relaxed);
            if before == BAD {
                return false;
            }
            let after = before.saturating_sub(nr.into());
            total.store(after, Ordering::Release);
            step();
            after == 0
        };
        by_words(offsets, down, |offset, mask| {
            self.cluster.mark_free(offset, mask)
        });
    }

    /// Sends the cluster to the list where it belongs now that slots were freed.
    pub(super) fn settle(&self) {
        let state = self.cluster.state();
        let to = match state {
            State::Nonfull(_) if self.cluster.nr_taken() > 0 => return,
            State::Nonfull(order) | State::Frag(order) | State::Full(order) => {
                self.cluster.resting(order, self.slots.empty())
            }
            State::Current(_) | State::Free | State::Discard | State::Discarding(_) => return,
        };
        if to != state {
            self.slots.lists(self.owner).move_to(self, to);
        }
    }

    /// Marks slots as never to be handed out again; this owner's counts of them are gone.
    pub(super) fn retire(&self, run: Run) {
        let spoil = |offset| {
            let slot = self.first() + offset;
            let was_free = self.slots.total(slot).swap(BAD, Ordering::AcqRel) == 0;
            step();
            let own = self.slots.own(self.owner.index(), slot);
            own.store(0, Ordering::Release);
            was_free
        };
        by_words(offsets_of(run), spoil, |offset, mask| {
            self.cluster.mark_taken(offset, mask)
        });
        // A run used in part had free slots, and there may be no room any more.
        match self.cluster.state() {
            State::Nonfull(order) | State::Frag(order) => self.rest(order),
            _ => {}
        }
    }

    /// Sends the cluster to the list where it belongs when nobody allocates from it.
    fn rest(&self, order: u8) {
        let to = self.cluster.resting(order, self.slots.empty());
        if to != self.cluster.state() {
            self.slots.lists(self.owner).move_to(self, to);
        }
    }

    fn copy_counts(&self, parent: usize, child: usize) {
        self.count_up(child, 0..CLUSTER_SLOTS, |offset| {
            let slot = self.first() + offset;
            self.slots.own(parent, slot).load(Ordering::Relaxed)
        });
    }

    /// Takes off all counts of process `index`, which is gone, and undoes what it was about.
    fn drop_counts(&self, index: usize) {
        if let Some((word, bit)) = self.slots.touched_word(index, self.index) {
            self.count_down(index, 0..CLUSTER_SLOTS, |owned| owned);
            self.settle();
            word.fetch_and(!bit, Ordering::Relaxed);
        }
        if matches!(self.cluster.state(), State::Discarding(by) if usize::from(by) == index) {
            self.slots.lists(self.owner).move_to(self, State::Discard);
        }
    }

    /// Derives everything from the owners' counts: the last holder died in the middle of a change.
    #[cold]
    pub(super) fn repair(&self) {
        self.cluster.mark_all_free();
        for slot in slots_of(self.index) {
            let total = self.slots.total(slot);
            if total.load(Ordering::Relaxed) != BAD {
                total.store(0, Ordering::Relaxed);
            }
        }
        for index in (0..NR_PROCESSES).filter(|&index| self.slots.has_touched(index, self.index)) {
            for slot in slots_of(self.index) {
                let total = self.slots.total(slot);
                let before = total.load(Ordering::Relaxed);
                if before != BAD {
                    let count = self.slots.own(index, slot).load(Ordering::Relaxed);
                    total.store(before.saturating_add(count.into()), Ordering::Relaxed);
                }
            }
        }
        let is_taken = |offset| {
            let total = self.slots.total(self.first() + offset);
            total.load(Ordering::Relaxed) != 0
        };
        by_words(0..CLUSTER_SLOTS, is_taken, |offset, mask| {
            self.cluster.mark_taken(offset, mask)
        });
        match self.cluster.state() {
            State::Current(order)
            | State::Nonfull(order)
            | State::Frag(order)
            | State::Full(order) => self.rest(order),
            State::Free | State::Discard | State::Discarding(_) => {}
        }
    }
}
