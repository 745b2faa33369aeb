//! *What*: the lists of a device: which cluster is free, to be discarded, or has room for an order.
//!
//! *Invariants*
//! - A cluster is on the list of its state, and on no other; `Current`, `Full` and `Discarding`
//!   have none. A list of full ones would cost cache misses on its neighbours at each put; whoever
//!   looks for full ones scans all clusters in turn. [`Lists::move_to`] is the one place where a
//!   state changes to or from one that has a list.
//! - Clusters from `fresh` on were never used and are on no list.
//! - `nr_nonempty` is the number of clusters whose state is not an empty one.
//! - The lists follow from the states: when the holder of the device lock died, they are linked
//!   anew.
//!
//! *Locking*: [`Lists`] is the device lock, held. It is the last in the order: cluster lock, device
//! lock. Who holds it only *tries* a cluster's lock.
//! *Context*: signal, worker, init; in every process of the group.

use crate::Owner;
use crate::cluster::{Cluster, NR_ORDERS, State};
use crate::crash_point;
use crate::lock::{SharedLock, WaitCounts};
use crate::table::{Held, Table};
use uzswap_sync::primitive::{AtomicU32, Ordering};
use uzswap_sync::{strict_assert, strict_unreachable};

const NR_LISTS: usize = 2 + 2 * NR_ORDERS;

/// First and last of a list, as 1 + index; 0 for none.
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
struct Ends {
    first: AtomicU32,
    last: AtomicU32,
}

/// The shared part: zero is a device that was never used.
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C, align(64))]
pub(crate) struct ListHeads {
    pub(crate) lock: SharedLock,
    pub(crate) fresh: AtomicU32,
    pub(crate) nr_nonempty: AtomicU32,
    pub(crate) peak_nonempty: AtomicU32,
    /// Where [`Lists::next_full`] continues.
    scan_start: AtomicU32,
    ends: [Ends; NR_LISTS],
    pub(crate) waits: WaitCounts,
}

/// The number of a state's list.
fn number_of(state: State) -> Option<usize> {
    Some(match state {
        State::Free => 0,
        State::Discard => 1,
        State::Nonfull(order) => 2 + usize::from(order),
        State::Frag(order) => 2 + NR_ORDERS + usize::from(order),
        State::Current(_) | State::Full(_) | State::Discarding(_) => return None,
    })
}

/// All of `nr` clusters once, from `start` on.
pub(crate) fn round_from(scan_start: u32, nr: u32) -> impl Iterator<Item = u32> {
    (scan_start..nr).chain(0..scan_start.min(nr))
}

impl ListHeads {
    /// Whether there is a cluster on the list of `state`: a hint.
    pub(crate) fn have(&self, state: State) -> bool {
        let ends = number_of(state).and_then(|number| self.ends.get(number));
        ends.is_some_and(|ends| ends.first.load(Ordering::Relaxed) != 0)
    }
}

/// The device lock, held: the lists may be read and changed.
#[derive(Debug)]
#[must_use = "the device lock is freed when this is dropped"]
pub(crate) struct Lists<'a, 'm> {
    table: &'a Table<'m>,
}

impl Drop for Lists<'_, '_> {
    fn drop(&mut self) {
        if crate::has_crashed() {
            return;
        }
        self.table.head.lists.lock.unlock();
    }
}

impl<'a, 'm> Lists<'a, 'm> {
    /// The caller has just taken the device lock.
    pub(crate) fn held(table: &'a Table<'m>) -> Self {
        table.head.lists.lock.assert_held();
        Self { table }
    }

    fn ends(&self, state: State) -> Option<&Ends> {
        let number = number_of(state)?;
        self.table.head.lists.ends.get(number)
    }

    fn linked(&self, link: &AtomicU32) -> Option<(u32, Cluster<'m>)> {
        let index = link.load(Ordering::Relaxed).checked_sub(1)?;
        Some((index, self.table.cluster(index)?))
    }

    /// The clusters on the list of `state`, longest there first.
    pub(crate) fn iter(&self, state: State) -> impl Iterator<Item = u32> {
        let mut at = self.ends(state).and_then(|ends| self.linked(&ends.first));
        core::iter::from_fn(move || {
            let (index, cluster) = at?;
            at = self.linked(&cluster.descriptor.next);
            Some(index)
        })
    }

    /// Takes the next full cluster whose lock is free.
    pub(crate) fn next_full(&self, owner: Owner) -> Option<Held<'a, 'm>> {
        let lists = &self.table.head.lists;
        let (fresh, scan_start) = (
            lists.fresh.load(Ordering::Relaxed),
            lists.scan_start.load(Ordering::Relaxed),
        );
        let held = round_from(scan_start, fresh).find_map(|index| {
            let held = self.table.try_hold(owner, index)?;
            matches!(held.cluster.state(), State::Full(_)).then_some(held)
        })?;
        lists.scan_start.store(held.index + 1, Ordering::Relaxed);
        Some(held)
    }

    /// Gives a cluster its new state and puts it at the end of that state's list.
    pub(crate) fn move_to(&self, held: &Held<'_, '_>, state: State) {
        let (cluster, lists) = (held.cluster, &self.table.head.lists);
        let before = cluster.state();
        self.unlink(held.index, cluster, before);
        crash_point();
        cluster.set_state(state);
        crash_point();
        self.push(held.index, cluster, state);
        crash_point();
        let nr = lists.nr_nonempty.load(Ordering::Relaxed);
        let nr = match (before.is_empty(), state.is_empty()) {
            (true, false) => nr + 1,
            (false, true) => {
                strict_assert!(nr > 0, "nr_nonempty = clusters whose state is not empty");
                nr.saturating_sub(1)
            }
            _ => return,
        };
        strict_assert!(nr <= lists.fresh.load(Ordering::Relaxed));
        lists.nr_nonempty.store(nr, Ordering::Relaxed);
        lists.peak_nonempty.fetch_max(nr, Ordering::Relaxed);
    }

    fn push(&self, index: u32, cluster: Cluster<'m>, state: State) {
        let Some(ends) = self.ends(state) else { return };
        // The empty cluster used last goes first: its memory is in the cache.
        if state == State::Free {
            let first = self.linked(&ends.first);
            let next = first.map_or(0, |(i, _)| i + 1);
            cluster.descriptor.next.store(next, Ordering::Relaxed);
            cluster.descriptor.prev.store(0, Ordering::Relaxed);
            let back = first.map_or(&ends.last, |(_, first)| &first.descriptor.prev);
            back.store(index + 1, Ordering::Relaxed);
            crash_point();
            ends.first.store(index + 1, Ordering::Relaxed);
            return;
        }
        let last = self.linked(&ends.last);
        let prev = last.map_or(0, |(i, _)| i + 1);
        cluster.descriptor.prev.store(prev, Ordering::Relaxed);
        cluster.descriptor.next.store(0, Ordering::Relaxed);
        let link = last.map_or(&ends.first, |(_, last)| &last.descriptor.next);
        link.store(index + 1, Ordering::Relaxed);
        crash_point();
        ends.last.store(index + 1, Ordering::Relaxed);
    }

    fn unlink(&self, index: u32, cluster: Cluster<'m>, state: State) {
        let Some(ends) = self.ends(state) else { return };
        let (next, prev) = (
            self.linked(&cluster.descriptor.next),
            self.linked(&cluster.descriptor.prev),
        );
        let forward = prev.map_or(&ends.first, |(_, prev)| &prev.descriptor.next);
        let back = next.map_or(&ends.last, |(_, next)| &next.descriptor.prev);
        strict_assert!(
            [forward, back].map(|link| link.load(Ordering::Relaxed)) == [index + 1; 2],
            "a cluster is on the list of its state"
        );
        forward.store(next.map_or(0, |(i, _)| i + 1), Ordering::Relaxed);
        crash_point();
        back.store(prev.map_or(0, |(i, _)| i + 1), Ordering::Relaxed);
    }

    /// Puts the next cluster that was never used on the free list.
    pub(crate) fn grow(&self) -> bool {
        let lists = &self.table.head.lists;
        let fresh = lists.fresh.load(Ordering::Relaxed);
        let Some(cluster) = self.table.cluster(fresh) else {
            return false;
        };
        // In this order: a process killed in between leaves a free cluster that relinking finds.
        lists.fresh.store(fresh + 1, Ordering::Relaxed);
        crash_point();
        self.push(fresh, cluster, State::Free);
        true
    }

    /// Links all lists anew from the states: the last holder died in the middle of a change.
    #[cold]
    pub(crate) fn relink(&self) {
        let lists = &self.table.head.lists;
        for ends in &lists.ends {
            ends.first.store(0, Ordering::Relaxed);
            ends.last.store(0, Ordering::Relaxed);
        }
        let mut nr_nonempty = 0;
        for index in 0..lists.fresh.load(Ordering::Relaxed) {
            let Some(cluster) = self.table.cluster(index) else {
                strict_unreachable!("a cluster beyond the device's end was used");
                break;
            };
            let state = cluster.state();
            self.push(index, cluster, state);
            nr_nonempty += u32::from(!state.is_empty());
        }
        lists.nr_nonempty.store(nr_nonempty, Ordering::Relaxed);
        lists
            .peak_nonempty
            .fetch_max(nr_nonempty, Ordering::Relaxed);
    }
}
