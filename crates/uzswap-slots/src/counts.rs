//! *What*: the counts of slots under the cluster's lock: `dup`, `put`, bad slots.
//!
//! *Invariants*
//! - Each process has a row of counts, 8 bits a slot. The supervisor's row says which slots are
//!   bad.
//! - A process is one of a cluster's users from before its first count there until after its last.
//! - Of two processes that count a slot, at most one is the cluster's home. A slot that others than
//!   the home count is marked as foreign in the map from before it is counted until after, unless
//!   the home counts it too.
//! - So a holder of the lock who dies leaves too many marks at worst, never too few.
//!
//! *Locking*: the cluster's lock is held. Reading a count without it is a hint. The home changes
//! its own counts meanwhile (see `home`).
//! *Context*: signal, worker, fork; in every process of the group.

use crate::cluster::{CLUSTER_SLOTS, MIN_FREE_LISTED, State};
use crate::device::Slots;
use crate::home::Freed;
use crate::memory::{NR_PROCESSES, SUPERVISOR};
use crate::row::{
    CLUSTER_WORDS, Row, bytes, foreign, home_counts, nr_ones, ones_of, words_of, words_up,
};
use crate::table::{Held, Table};
use crate::users::Users;
use crate::{Owner, Run, crash_point};
use core::{mem, ops::Range};
use uzswap_sync::primitive::{Ordering, fence};
use uzswap_sync::{strict_assert, strict_unreachable};

fn slots_of(cluster: u32) -> Range<u32> {
    cluster * CLUSTER_SLOTS..(cluster + 1) * CLUSTER_SLOTS
}

/// The places of a run's slots in its cluster; `None` if it crosses the cluster's end.
#[inline]
fn offsets_of(run: Run) -> Option<Range<u32>> {
    let first = run.first % CLUSTER_SLOTS;
    let end = first + u32::from(run.nr);
    strict_assert!(end <= CLUSTER_SLOTS, "a run crosses a cluster's end");
    (end <= CLUSTER_SLOTS && run.nr > 0).then_some(first..end)
}

impl<'m> Slots<'m> {
    /// Adds one count to each slot of `run`, which lies in one cluster and is held by `owner`.
    ///
    /// `false`, and nothing is changed: a slot has 254 counts of this owner's, or none.
    #[must_use]
    pub fn dup(&self, owner: Owner, run: Run) -> bool {
        let Some(offsets) = offsets_of(run).filter(|_| owner.owns()) else {
            return false;
        };
        let index = run.first / CLUSTER_SLOTS;
        let at_home = self.table.cluster(index);
        if at_home.is_some_and(|cluster| cluster.is_home_of(owner.index())) {
            return self.table.row(owner.index(), index).count_up(offsets);
        }
        let held = self.table.hold(owner, index);
        held.is_some_and(|held| held.row(owner.index()).count_up(offsets))
    }

    /// Takes one count of `owner`'s off each slot of `run`, which lies in one cluster. A slot whose
    /// last count this was is free.
    #[inline]
    pub fn put(&self, owner: Owner, run: Run) {
        match run.nr {
            // A copy of its own for single slots, as in `alloc`.
            1 => self.put_inline(owner, Run { nr: 1, ..run }),
            _ => self.put_run(owner, run),
        }
    }

    #[inline(never)]
    fn put_run(&self, owner: Owner, run: Run) {
        self.put_inline(owner, run);
    }

    #[inline(always)]
    fn put_inline(&self, owner: Owner, run: Run) {
        let Some(offsets) = offsets_of(run).filter(|_| owner.owns()) else {
            return;
        };
        let index = run.first / CLUSTER_SLOTS;
        let Some(cluster) = self.table.cluster(index) else {
            strict_unreachable!("put a slot beyond the device's end");
            return;
        };
        if cluster.is_private_to(owner.index()) {
            self.table.put_at_home(owner, cluster, index, offsets);
        } else {
            self.put_locked(owner, index, offsets);
        }
    }

    #[cold]
    fn put_locked(&self, owner: Owner, index: u32, offsets: Range<u32>) {
        if let Some(held) = self.table.hold(owner, index) {
            let freed = Freed {
                nr: held.put(offsets.clone()),
                may_be_last: true,
            };
            if held.cluster.should_move(held.map(), freed, offsets) {
                held.relist_after_free();
            }
        }
    }

    /// Counts of `slot` by all processes; `u16::MAX` for a slot that went bad. A hint while others
    /// count.
    #[must_use]
    pub fn count(&self, slot: u32) -> u16 {
        let number = slot / CLUSTER_SLOTS;
        let Some(cluster) = self.table.cluster(number) else {
            return 0;
        };
        let users = self.table.users(cluster, number);
        let counts = users.iter().map(|index| match index {
            SUPERVISOR if self.table.count_in_row(index, slot) != 0 => u16::MAX,
            _ => self.table.count_in_row(index, slot).into(),
        });
        counts.fold(0, u16::saturating_add)
    }

    /// Counts of `slot` by the process `index`. A hint while that process counts.
    #[must_use]
    pub fn count_of(&self, index: usize, slot: u32) -> u8 {
        if index >= NR_PROCESSES {
            return 0;
        }
        self.table.count_in_row(index, slot)
    }

    /// Whether process `index` counts any slot. A hint while it counts.
    #[must_use]
    pub fn holds(&self, index: usize) -> bool {
        self.table
            .used_by(index)
            .any(|cluster| slots_of(cluster).any(|slot| self.count_of(index, slot) > 0))
    }

    /// Calls `f` with every slot that process `index` holds and its counts, with no lock held.
    /// Swapoff brings them back so.
    pub fn for_each_owned(&self, index: usize, mut f: impl FnMut(u32, u8)) {
        for cluster in self.table.used_by(index) {
            for slot in slots_of(cluster) {
                match self.count_of(index, slot) {
                    0 => {}
                    count => f(slot, count),
                }
            }
        }
    }
}

impl Table<'_> {
    /// The clusters that process `index` may count slots of.
    pub(crate) fn used_by(&self, index: usize) -> impl Iterator<Item = u32> {
        let fresh = self.head.lists.fresh.load(Ordering::Relaxed);
        (0..fresh).filter(move |&number| {
            let cluster = self.cluster(number);
            let has_user = |cluster| self.users(cluster, number).has(index);
            index < NR_PROCESSES && cluster.is_some_and(has_user)
        })
    }
}

impl<'m> Held<'_, 'm> {
    /// Allocates a run in this cluster, slot `i` with `counts[i]`.
    pub(crate) fn take(&self, order: u8, counts: &[u8]) -> Option<Run> {
        let (map, index) = (self.map(), self.owner.index());
        let at_home = self.cluster.is_home_of(index);
        self.add_user(index);
        loop {
            let first = map.find_run(order, 0)?;
            let ups = || words_up(first, counts);
            let marks = || {
                ups().map(|(number, up)| (number, if at_home { up } else { bytes(ones_of(up)) }))
            };
            let mut claimed = 0;
            if !map.claim(marks(), &mut claimed) {
                // The home took one of them meanwhile.
                map.unclaim(marks().take(claimed));
                continue;
            }
            if !at_home {
                for (number, up) in ups() {
                    self.row(index).update(number, |word| word | up);
                    crash_point();
                }
            }
            let nr = 1 << order;
            self.cluster.set_cursor(first + u32::from(nr));
            let first = self.index * CLUSTER_SLOTS + first;
            return Some(Run { first, nr });
        }
    }

    fn row(&self, index: usize) -> Row<'m> {
        self.table.row(index, self.index)
    }

    pub(crate) fn map(&self) -> Row<'m> {
        self.table.map(self.index)
    }

    fn users(&self) -> Users<'m> {
        self.table.users(self.cluster, self.index)
    }

    fn add_user(&self, index: usize) {
        if !self.users().has(index) {
            self.users().add(index);
            crash_point();
        }
    }

    /// Makes the owner the home of this cluster, which is empty, unless another home may run.
    pub(crate) fn become_home(&self) {
        let index = self.owner.index();
        let home = self.cluster.home().filter(|&home| home != index);
        // A home killed after taking slots from a cluster that was no longer current leaves them
        // taken.
        if home.is_some_and(|home| self.table.may_run(home)) || !self.map().is_empty(0) {
            return;
        }
        self.add_user(index);
        self.cluster.set_home(index);
        crash_point();
        if let Some(home) = home {
            self.users().remove(home);
        }
    }

    /// Takes one count off each slot; how many slots that freed.
    fn put(&self, offsets: Range<u32>) -> u32 {
        self.count_down(self.owner.index(), offsets, |counts, ones| {
            let counted = ones_of(counts) & ones;
            strict_assert!(counted == ones, "put more often than counted");
            counted
        })
    }

    /// Takes `down(counts, ones)` off each word of process `index`; how many slots that freed.
    fn count_down(&self, index: usize, offsets: Range<u32>, down: impl Fn(u64, u64) -> u64) -> u32 {
        let (map, at_home) = (self.map(), self.cluster.is_home_of(index));
        let mut nr_freed = 0;
        for (number, ones) in words_of(offsets) {
            let others = self.counted_by_others(index, number);
            if at_home {
                let after = |word| {
                    let before = home_counts(word);
                    let after = before - down(before, ones);
                    let kept = ones_of(before) & !ones_of(after) & others;
                    after | bytes(foreign(word) | kept)
                };
                let (before, after) = map.update(number, after);
                nr_freed += nr_ones(ones_of(before) & !ones_of(after));
                crash_point();
                continue;
            }
            let after = |before| before - down(before, ones);
            let (before, after) = self.row(index).update(number, after);
            crash_point();
            let freed = ones_of(before) & !ones_of(after) & !others;
            if freed != 0 {
                map.update(number, |word| word & !bytes(freed));
                nr_freed += nr_ones(freed);
                crash_point();
            }
        }
        nr_freed
    }

    /// Which slots of a word others than process `index` count.
    fn counted_by_others(&self, index: usize, number: usize) -> u64 {
        let others = self.users().iter().filter(|&user| user != index);
        others.fold(0, |all, user| all | ones_of(self.counts(user, number)))
    }

    /// The counts of process `index` in a word.
    fn counts(&self, index: usize, number: usize) -> u64 {
        let word = self.row(index).load(number);
        if self.cluster.is_home_of(index) {
            home_counts(word)
        } else {
            word
        }
    }

    /// Marks slots as never to be handed out again; this owner's counts of them are gone.
    pub(crate) fn retire(&self, run: Run) {
        let Some(offsets) = offsets_of(run) else {
            return;
        };
        self.add_user(SUPERVISOR);
        let (map, index) = (self.map(), self.owner.index());
        for (number, ones) in words_of(offsets) {
            self.row(SUPERVISOR).update(number, |bad| bad | ones);
            crash_point();
            if self.cluster.is_home_of(index) {
                map.update(number, |word| word | bytes(ones));
            } else {
                self.row(index).update(number, |own| own & !bytes(ones));
            }
            crash_point();
        }
        // A run used in part had free slots: there may be less room now.
        match self.cluster.state() {
            State::Nonfull(order) | State::Frag(order) => self.relist(order),
            _ => {}
        }
    }

    /// Gives `child` the counts of `parent`; it has none yet.
    pub(crate) fn copy_counts(&self, parent: usize, child: usize) {
        self.add_user(child);
        let to_home = self.cluster.is_home_of(child);
        if to_home || self.cluster.is_home_of(parent) {
            self.cluster.set_shared();
            crash_point();
        }
        for number in 0..CLUSTER_WORDS {
            let counts = self.counts(parent, number);
            self.row(child).update(number, |word| {
                // The map of a home marks what the parent counts as foreign.
                (word & !bytes(ones_of(counts))) | counts
            });
            crash_point();
        }
    }

    /// Drops all counts of process `index`, which is gone, and ends a discard that it began.
    pub(crate) fn drop_counts(&self, index: usize) {
        if index < NR_PROCESSES && self.users().has(index) {
            self.count_down(index, 0..CLUSTER_SLOTS, |counts, _| counts);
            self.relist_after_free();
            if !self.cluster.is_home_of(index) {
                self.users().remove(index);
            }
        }
        if matches!(self.cluster.state(), State::Discarding(by) if usize::from(by) == index) {
            self.table.lists(self.owner).move_to(self, State::Discard);
        }
    }

    /// Removes the foreign marks of a holder of the lock who died in the middle of a change.
    pub(crate) fn repair(&self) {
        let map = self.map();
        for number in 0..CLUSTER_WORDS {
            let counted = self
                .users()
                .iter()
                .filter(|&user| !self.cluster.is_home_of(user))
                .fold(0, |all, user| all | ones_of(self.counts(user, number)));
            let stray = |word| bytes(foreign(word) & !counted);
            map.update(number, |word| word & !stray(word));
            crash_point();
        }
        match self.cluster.state() {
            State::Current(order)
            | State::Nonfull(order)
            | State::Frag(order)
            | State::Full(order) => self.relist(order),
            State::Free | State::Discard | State::Discarding(_) => {}
        }
    }

    /// Moves the cluster to the list where it belongs after slots were freed.
    pub(crate) fn relist_after_free(&self) {
        match self.cluster.state() {
            State::Nonfull(_) if !self.map().is_empty(0) => {}
            State::Nonfull(order) | State::Frag(order) | State::Full(order) => self.relist(order),
            State::Current(_) | State::Free | State::Discard | State::Discarding(_) => {}
        }
    }

    /// Moves the cluster to the list where it belongs when it is no CPU's current one.
    pub(crate) fn relist(&self, order: u8) {
        let mut nr_free = self.nr_free();
        loop {
            let to = self.list_for(order, nr_free);
            self.cluster.set_nr_free(nr_free);
            if to != self.cluster.state() {
                self.change_to(to);
            }
            // The home may have put slots meanwhile: without looking at the number, as the cluster
            // was current, or before the number was stored.
            fence(Ordering::SeqCst);
            let before = mem::replace(&mut nr_free, self.nr_free());
            if before == nr_free {
                return;
            }
        }
    }

    fn nr_free(&self) -> u32 {
        CLUSTER_SLOTS - self.map().nr_taken()
    }

    /// Gives the cluster another state.
    pub(crate) fn change_to(&self, state: State) {
        if self.cluster.state().is_unlisted() && state.is_unlisted() {
            self.cluster.set_state(state);
            crash_point();
        } else {
            self.table.lists(self.owner).move_to(self, state);
        }
    }

    /// The state of this cluster when it is no CPU's current one.
    fn list_for(&self, order: u8, nr_free: u32) -> State {
        match nr_free {
            CLUSTER_SLOTS => self.table.empty(),
            0..MIN_FREE_LISTED => State::Full(order),
            _ if self.map().find_run(order, 0).is_some() => State::Nonfull(order),
            _ => State::Frag(order),
        }
    }
}
