//! *What*: alloc and put without a lock, by a process in the clusters that it is the home of.
//!
//! *Invariants*
//! - Every change is of one word of the map, and consistent by itself.
//! - A run is handed out only from a cluster that was current after the run was taken: a run taken
//!   from a cluster that ceased to be current meanwhile is given back.
//! - Whoever frees a slot reads the cluster's state afterwards and moves the cluster if need be.
//!
//! *Locking*: none, but for [`Table::relist_after_free`] where the cluster must move.
//! *Context*: signal, worker; in every process of the group.

use crate::cluster::{CLUSTER_SLOTS, Cluster, MIN_FREE_LISTED, State};
use crate::row::{
    MAX_COUNT, ONES, Row, WORD_ORDER, byte_of, foreign, nr_ones, one_of, ones_of, only_word_of,
    word_of, words_of, words_up,
};
use crate::table::Table;
use crate::{Owner, Run, crash_point};
use core::ops::Range;
use uzswap_sync::primitive::{Ordering, fence};
use uzswap_sync::strict_assert;

impl Table<'_> {
    /// Allocates from cluster `index` if `owner` is its home and it is current for `order`.
    #[inline(always)]
    pub(crate) fn take_at_home(
        &self,
        owner: Owner,
        index: u32,
        order: u8,
        counts: &[u8],
    ) -> Option<Run> {
        let cluster = self.cluster(index)?;
        if !cluster.is_home_of(owner.index()) {
            return None;
        }
        let (map, nr) = (self.row(owner.index(), index), 1 << order);
        while cluster.is_current(order) {
            // Slots freed behind the cursor are found when the search starts over.
            let (first, claimed, is_whole) = if order < WORD_ORDER {
                (map.claim_small(order, cluster.cursor(), counts)?, 1, true)
            } else {
                map.claim_large(order, cluster.cursor(), counts)?
            };
            crash_point();
            if is_whole && cluster.is_current_after_change(order) {
                cluster.set_cursor(first + u32::from(nr));
                let first = index * CLUSTER_SLOTS + first;
                return Some(Run { first, nr });
            }
            // Another thread took a part of it, or the cluster is not current any more.
            if claimed > 0 {
                let ups = words_up(first, counts).take(claimed);
                self.give_back(owner, cluster, index, first..first + u32::from(nr), ups);
            }
        }
        None
    }

    /// Undoes `ups`, which took slots at `offsets`.
    #[cold]
    fn give_back(
        &self,
        owner: Owner,
        cluster: Cluster<'_>,
        index: u32,
        offsets: Range<u32>,
        ups: impl Iterator<Item = (usize, u64)>,
    ) {
        let map = self.row(owner.index(), index);
        map.unclaim(ups);
        let freed = Freed {
            nr: offsets.end - offsets.start,
            may_be_last: true,
        };
        if cluster.should_move(map, freed, offsets) {
            self.relist_after_free(owner, index);
        }
    }

    /// Takes one count off each of `offsets`, which nobody but the home counts.
    #[inline(always)]
    pub(crate) fn put_at_home(
        &self,
        owner: Owner,
        cluster: Cluster<'_>,
        index: u32,
        offsets: Range<u32>,
    ) {
        let map = self.row(owner.index(), index);
        let freed = match only_word_of(&offsets) {
            Some(_) if offsets.len() == 1 => put_slot(map, offsets.start),
            Some((number, ones)) => put_word(map, number, ones),
            None => put_words(map, offsets.clone()),
        };
        crash_point();
        if freed.nr != 0 && cluster.should_move(map, freed, offsets) {
            self.relist_after_free(owner, index);
        }
    }

    #[cold]
    fn relist_after_free(&self, owner: Owner, index: u32) {
        if let Some(held) = self.hold(owner, index) {
            held.relist_after_free();
        }
    }
}

impl Cluster<'_> {
    /// Whether it belongs on another list, now that slots at `offsets` of it were freed.
    ///
    /// The words of its `map` were changed by SeqCst read-modify-writes, or a fence follows: either
    /// the new state is seen here, or whoever changes it sees the freed slots.
    #[inline]
    pub(crate) fn should_move(self, map: Row<'_>, freed: Freed, offsets: Range<u32>) -> bool {
        let is_empty = || freed.may_be_last && map.is_empty(offsets.start);
        match self.state_after_change() {
            State::Full(_) => {
                let nr_free = self.nr_free() + freed.nr;
                self.set_nr_free(nr_free);
                nr_free >= MIN_FREE_LISTED || is_empty()
            }
            State::Frag(order) => map.has_run_at(order, offsets),
            State::Nonfull(_) => is_empty(),
            State::Current(_) | State::Free | State::Discard | State::Discarding(_) => false,
        }
    }
}

/// What a put freed in one cluster.
#[derive(Clone, Copy)]
pub(crate) struct Freed {
    /// How many slots.
    pub(crate) nr: u32,
    /// Whether the cluster may be empty now: the word of the last slot freed is 0.
    pub(crate) may_be_last: bool,
}

/// Takes one count off a slot.
#[inline]
fn put_slot(map: Row<'_>, slot: u32) -> Freed {
    let count = |word| byte_of(word, slot);
    let is_counted = |word| (1..=MAX_COUNT).contains(&count(word));
    let down = |word| word - u64::from(is_counted(word)) * one_of(slot);
    let (before, after) = map.update(word_of(slot), down);
    strict_assert!(is_counted(before), "put more often than counted");
    Freed {
        nr: u32::from(count(before) == 1),
        may_be_last: after == 0,
    }
}

/// Takes one count off each of `ones`.
#[inline]
fn put_word(map: Row<'_>, number: usize, ones: u64) -> Freed {
    let counted = |word: u64| ones & ones_of(word) & !foreign(word);
    let (before, after) = map.update(number, |word| word - counted(word));
    strict_assert!(counted(before) == ones, "put more often than counted");
    Freed {
        nr: nr_ones(ones_of(before) & !ones_of(after)),
        may_be_last: after == 0,
    }
}

/// As [`put_word`], in each word that `offsets` lie in.
#[inline]
fn put_words(map: Row<'_>, offsets: Range<u32>) -> Freed {
    let mut all = Freed {
        nr: 0,
        may_be_last: false,
    };
    for (number, ones) in words_of(offsets) {
        let freed = put_all(map, number, ones).unwrap_or_else(|| put_word(map, number, ones));
        all.nr += freed.nr;
        all.may_be_last |= freed.may_be_last;
        crash_point();
    }
    // Orders plain stores like SeqCst read-modify-writes: see `Cluster::should_move`.
    fence(Ordering::SeqCst);
    all
}

/// As [`put_word`], where all eight slots are counted once: nobody else changes such a word.
#[inline]
fn put_all(map: Row<'_>, number: usize, ones: u64) -> Option<Freed> {
    let word = map.word(number)?;
    if ones != ONES || word.load(Ordering::Relaxed) != ONES {
        return None;
    }
    // Release, as a read-modify-write would be: what the thread did with the slots comes before.
    word.store(0, Ordering::Release);
    Some(Freed {
        nr: nr_ones(ONES),
        may_be_last: true,
    })
}
