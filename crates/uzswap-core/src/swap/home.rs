//! # What
//! What a process does without a lock in the clusters that it is the home of: alloc, put.
//!
//! # Invariants
//! - Every change is of one word of the map at a time, and true by itself.
//! - A run is handed out only from a cluster that was current after the run was taken: what is taken from
//!   another, by a thread that had not seen that the cluster went, is given back.
//! - Whoever frees a slot looks after the cluster's state.
//!
//! # Locking
//! None, but for [`Slots::look_after`] where the cluster must move.
//!
//! # Context
//! Signal, worker; in every process of the group.

use super::cluster::{CLUSTER_SLOTS, FEW, State};
use super::device::Slots;
use super::row::{
    ONES, Row, WORD_ORDER, foreign, nr_ones, ones_of, only_word_of, words_of, words_up,
};
use super::{Owner, Run, step};
use crate::primitive::{Ordering, fence};
use core::ops::Range;

impl Slots<'_> {
    /// Allocates from cluster `index` if `owner` is its home and it is current for `order`.
    #[inline]
    pub(super) fn take_at_home(
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
            // What is put behind the cursor is for the next turn.
            let (first, mut claimed) = if order < WORD_ORDER {
                (map.claim_small(order, cluster.cursor(), counts)?, 1)
            } else {
                (map.find_run(order, cluster.cursor())?, 0)
            };
            step();
            if (claimed > 0 || map.claim(words_up(first, counts), &mut claimed))
                && cluster.is_current_after_change(order)
            {
                cluster.set_cursor(first + u32::from(nr));
                let first = index * CLUSTER_SLOTS + first;
                return Some(Run { first, nr });
            }
            // Another thread was faster, or the cluster is not current any more and nobody's maybe.
            if claimed > 0 {
                map.unclaim(words_up(first, counts).take(claimed));
                let offsets = first..first + u32::from(nr);
                self.look_after(owner, index, u32::from(nr), offsets);
            }
        }
        None
    }

    /// Takes one count off each of `offsets`, which nobody but the home counts.
    #[inline]
    pub(super) fn put_at_home(&self, owner: Owner, index: u32, offsets: Range<u32>) {
        let map = self.row(owner.index(), index);
        let mut nr_freed = 0;
        if let Some((number, ones)) = only_word_of(&offsets) {
            nr_freed = put_word(map, number, ones);
        } else {
            for (number, ones) in words_of(offsets.clone()) {
                nr_freed +=
                    put_all(map, number, ones).unwrap_or_else(|| put_word(map, number, ones));
                step();
            }
            // As if the last one had been a SeqCst read-modify-write.
            fence(Ordering::SeqCst);
        }
        step();
        if nr_freed != 0 {
            self.look_after(owner, index, nr_freed, offsets);
        }
    }

    /// Slots at `offsets` were freed: sends the cluster to the list where it belongs now.
    #[inline]
    fn look_after(&self, owner: Owner, index: u32, nr_freed: u32, offsets: Range<u32>) {
        if self.should_move(index, nr_freed, offsets) {
            self.settle(owner, index);
        }
    }

    /// Whether a cluster, of which slots at `offsets` were freed, belongs elsewhere now.
    ///
    /// The map's words were changed by SeqCst read-modify-writes, or a fence follows: either the state as it is now is
    /// seen here, or whoever is changing it sees the slots freed.
    #[inline]
    pub(super) fn should_move(&self, index: u32, nr_freed: u32, offsets: Range<u32>) -> bool {
        let Some(cluster) = self.cluster(index) else {
            return false;
        };
        match cluster.state_after_change() {
            State::Full(_) => {
                let nr_free = cluster.nr_free() + nr_freed;
                cluster.set_nr_free(nr_free);
                nr_free >= FEW || self.map(index).is_empty(offsets.start)
            }
            State::Frag(order) => self.map(index).has_run_at(order, offsets),
            State::Nonfull(_) => self.map(index).is_empty(offsets.start),
            State::Current(_) | State::Free | State::Discard | State::Discarding(_) => false,
        }
    }

    #[cold]
    fn settle(&self, owner: Owner, index: u32) {
        if let Some(held) = self.hold(owner, index) {
            held.settle();
        }
    }
}

/// Takes one count off each of `ones`; how many slots are free now that were not.
#[inline]
fn put_word(map: Row<'_>, number: usize, ones: u64) -> u32 {
    let counted = |word: u64| ones & ones_of(word) & !foreign(word);
    let before = map.update(number, |word| word - counted(word));
    let down = counted(before);
    debug_assert!(down == ones, "put more often than counted: {before:#x}");
    nr_ones(ones_of(before) & !ones_of(before - down))
}

/// The same, where all eight slots are counted once: nobody else changes such a word.
#[inline]
fn put_all(map: Row<'_>, number: usize, ones: u64) -> Option<u32> {
    let word = map.word(number)?;
    if ones != ONES || word.load(Ordering::Relaxed) != ONES {
        return None;
    }
    // Release, as a read-modify-write would be: what the thread did with the slots comes before.
    word.store(0, Ordering::Release);
    Some(nr_ones(ONES))
}
