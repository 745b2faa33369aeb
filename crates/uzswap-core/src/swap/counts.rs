//! # What
//! Who counts which slot how often: `dup`, `put`, slots that went bad.
//!
//! # Invariants
//! - Each process has a row of counts, 8 bits a slot, eight slots a word. The supervisor's row says which
//!   slots are bad.
//! - A process is one of a cluster's users from before its first count there until after its last.
//! - Counts change first, taken bits after them.
//!
//! # Locking
//! Counts change under their cluster's lock; reading one without it is a hint.
//!
//! # Context
//! Signal, worker, fork; in every process of the group.

use super::cluster::{CLUSTER_SLOTS, State};
use super::device::{Held, Slots};
use super::memory::{NR_PROCESSES, SUPERVISOR};
use super::{Owner, Run, step};
use crate::primitive::{AtomicU64, Ordering};
use core::hint::black_box;

/// Slots of a word.
const WORD_SLOTS: u32 = 8;
/// Words of a cluster, in each row.
pub(super) const CLUSTER_WORDS: usize = CLUSTER_SLOTS.div_ceil(WORD_SLOTS) as usize;

/// 1 in each byte.
const ONES: u64 = u64::MAX / 0xff;
/// The highest bit of each byte.
const HIGHS: u64 = ONES << 7;

/// 1 in each byte that is not 0.
#[inline]
fn ones_of(word: u64) -> u64 {
    ((((word & !HIGHS) + !HIGHS) | word) & HIGHS) >> 7
}

/// Bit `i` says whether byte `i` is 1; all bytes are 0 or 1.
#[inline]
fn gathered(ones: u64) -> u64 {
    // Byte i's lowest bit goes to the last byte's bit i.
    ones.wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// Bit `i` says whether byte `i` is not 0.
#[inline]
fn nonzero(word: u64) -> u64 {
    gathered(ones_of(word))
}

/// The first eight counts, or as many as there are, as a word.
#[inline]
fn packed(counts: &[u8]) -> u64 {
    match counts.first_chunk() {
        Some(&eight) => u64::from_le_bytes(eight),
        // Not copied to bytes, which the processor is slow to read back as a word.
        None => (0_u32..)
            .zip(counts)
            .fold(0, |word, (i, &count)| word | u64::from(count) << (8 * i)),
    }
}

/// The words that `offsets` of a cluster lie in, each with 1 in the bytes that are meant.
#[inline]
fn words_of(offsets: core::ops::Range<u32>) -> impl Iterator<Item = (u32, u64)> {
    let words = offsets.start / WORD_SLOTS..offsets.end.div_ceil(WORD_SLOTS);
    words.map(move |word| {
        let first = word * WORD_SLOTS;
        let before = offsets.start.saturating_sub(first);
        let after = (first + WORD_SLOTS).saturating_sub(offsets.end);
        (word, ONES >> (8 * (before + after)) << (8 * before))
    })
}

/// The number in its cluster of the word that a slot's count is in.
fn word_of(offset: u32) -> usize {
    (offset / WORD_SLOTS) as usize
}

fn slots_of(cluster: u32) -> core::ops::Range<u32> {
    cluster * CLUSTER_SLOTS..(cluster + 1) * CLUSTER_SLOTS
}

/// The places of a run's slots in its cluster.
fn offsets_of(run: Run) -> core::ops::Range<u32> {
    let first = run.first % CLUSTER_SLOTS;
    first..first + u32::from(run.nr)
}

impl<'m> Slots<'m> {
    /// Adds one count to each slot of `run`, which lies in one cluster and is held by `owner`.
    ///
    /// `false`, and nothing is changed: a slot has 255 counts of this owner's, or none.
    #[must_use]
    pub fn dup(&self, owner: Owner, run: Run) -> bool {
        self.hold_run(owner, run).is_some_and(|held| held.dup(run))
    }

    /// Takes one count of `owner`'s off each slot of `run`, which lies in one cluster. A slot whose last count
    /// this was is free.
    pub fn put(&self, owner: Owner, run: Run) {
        self.look_at(owner, run.first);
        if let Some(held) = self.hold_run(owner, run) {
            held.put(run);
            held.settle();
        }
    }

    /// Counts of `slot` by all processes; `u16::MAX` for a slot that went bad. A hint while others count.
    #[must_use]
    pub fn count(&self, slot: u32) -> u16 {
        let Some(cluster) = self.cluster(slot / CLUSTER_SLOTS) else {
            return 0;
        };
        let counts = cluster.users().map(|index| match index {
            SUPERVISOR if self.row_byte(index, slot) != 0 => u16::MAX,
            _ => self.row_byte(index, slot).into(),
        });
        counts.fold(0, u16::saturating_add)
    }

    /// Counts of `slot` by the process `index`. A hint while that process counts.
    #[must_use]
    pub fn count_of(&self, index: usize, slot: u32) -> u8 {
        if index >= NR_PROCESSES || slot >= self.nr_slots() {
            return 0;
        }
        self.row_byte(index, slot)
    }

    /// Calls `f` with every slot that process `index` holds and its counts, with no lock held: the way to
    /// bring everything back before a device goes.
    pub fn for_each_owned(&self, index: usize, mut f: impl FnMut(u32, u8)) {
        for cluster in self.used_by(index) {
            for slot in slots_of(cluster) {
                match self.count_of(index, slot) {
                    0 => {}
                    count => f(slot, count),
                }
            }
        }
    }

    /// The clusters that process `index` may count slots of.
    pub(super) fn used_by(&self, index: usize) -> impl Iterator<Item = u32> {
        let fresh = self.head.lists.fresh.load(Ordering::Relaxed);
        let clusters = (0..fresh).zip(self.clusters);
        clusters
            .filter(move |(_, cluster)| index < NR_PROCESSES && cluster.has_user(index))
            .map(|(number, _)| number)
    }

    /// Takes the lock of the cluster that `run` lies in; `None` if it lies in none, or in more than one.
    #[inline]
    pub(super) fn hold_run(&self, owner: Owner, run: Run) -> Option<Held<'_, 'm>> {
        let index = run.first / CLUSTER_SLOTS;
        let fits = run.first % CLUSTER_SLOTS + u32::from(run.nr) <= CLUSTER_SLOTS;
        debug_assert!(fits, "{run:?} crosses a cluster's end");
        if !fits || !owner.owns() {
            return None;
        }
        self.hold(owner, index)
    }

    /// What row `index` says of a cluster's slots.
    #[inline]
    fn row(&self, index: usize, cluster: u32) -> &'m [AtomicU64] {
        let at = (index * self.clusters.len() + cluster as usize) * CLUSTER_WORDS;
        self.counts.get(at..at + CLUSTER_WORDS).unwrap_or_default()
    }

    /// Reads what a put of `slot` changes, so that the cache misses come together: once the lock is taken, each
    /// waits for the one before. (Prefetching instructions were slower.)
    #[inline]
    fn look_at(&self, owner: Owner, slot: u32) {
        let (index, offset) = (slot / CLUSTER_SLOTS, slot % CLUSTER_SLOTS);
        if let Some(cluster) = self.cluster(index)
            && owner.owns()
        {
            let own = self.row(owner.index(), index).get(word_of(offset));
            black_box(own.map(|own| own.load(Ordering::Relaxed)));
            cluster.look_at(offset);
        }
    }

    /// The count in row `index` of `slot`, both of them in range.
    fn row_byte(&self, index: usize, slot: u32) -> u8 {
        let (cluster, offset) = (slot / CLUSTER_SLOTS, slot % CLUSTER_SLOTS);
        let counts = self.row(index, cluster).get(word_of(offset));
        let counts = counts.map_or(0, |counts| counts.load(Ordering::Relaxed));
        let [count, ..] = (counts >> (8 * (offset % WORD_SLOTS))).to_le_bytes();
        count
    }
}

/// Makes a change to each word of `row` that `offsets` lie in, and marks at once those slots of each word of taken
/// bits that it names.
#[inline]
fn by_words(
    row: &[AtomicU64],
    offsets: core::ops::Range<u32>,
    mut change: impl FnMut(u32, u64, &AtomicU64) -> u64,
    mark: impl Fn(u32, u64),
) {
    let end = offsets.end;
    let words = row.get(word_of(offsets.start)..).unwrap_or_default();
    let mut mask = 0;
    for ((word, ones), counts) in words_of(offsets).zip(words) {
        let slot = word * WORD_SLOTS;
        mask |= change(word, ones, counts) << (slot % 64);
        let is_last = slot % 64 == 64 - WORD_SLOTS || slot + WORD_SLOTS >= end;
        if is_last && mask != 0 {
            mark(slot, mask);
            step();
            mask = 0;
        }
    }
}

impl<'m> Held<'_, 'm> {
    /// Allocates a run in this cluster, slot `i` with `counts[i]`.
    #[inline]
    pub(super) fn take(&self, order: u8, counts: &[u8]) -> Option<Run> {
        let first = self.cluster.find_run(order)?;
        self.add_user(self.owner.index());
        let nr = u32::try_from(counts.len()).unwrap_or(0);
        // A run that does not begin with a word lies in one.
        let shift = 8 * (first % WORD_SLOTS);
        let mut rest = counts;
        let up = |_, _, own: &AtomicU64| {
            let up = packed(rest) << shift;
            rest = rest.get(WORD_SLOTS as usize..).unwrap_or_default();
            // Release here and below: a user first, then its counts. They are 0 in a free slot.
            own.store(own.load(Ordering::Relaxed) | up, Ordering::Release);
            step();
            nonzero(up)
        };
        let own = self.row(self.owner.index());
        by_words(own, first..first + nr, up, |slot, mask| {
            self.cluster.mark_taken(slot, mask);
        });
        Some(Run {
            first: self.index * CLUSTER_SLOTS + first,
            nr: 1 << order,
        })
    }

    fn row(&self, index: usize) -> &'m [AtomicU64] {
        self.slots.row(index, self.index)
    }

    #[inline]
    fn add_user(&self, index: usize) {
        if !self.cluster.has_user(index) {
            self.cluster.add_user(index);
            step();
        }
    }

    fn dup(&self, run: Run) -> bool {
        let offsets = offsets_of(run);
        let row = self.row(self.owner.index()).get(word_of(offsets.start)..);
        let words = || words_of(offsets.clone()).zip(row.unwrap_or_default());
        let countable = |((_, ones), counts): ((u32, u64), &AtomicU64)| {
            let counts = counts.load(Ordering::Relaxed);
            ones_of(counts) & ones_of(!counts) & ones == ones
        };
        if !words().all(countable) {
            return false;
        }
        for ((_, ones), counts) in words() {
            counts.store(counts.load(Ordering::Relaxed) + ones, Ordering::Release);
            step();
        }
        true
    }

    #[inline]
    fn put(&self, run: Run) {
        self.count_down(self.owner.index(), offsets_of(run), |counts, ones| {
            let counted = ones_of(counts) & ones;
            debug_assert!(
                counted == ones,
                "{run:?} put more often than it was counted"
            );
            counted
        });
    }

    /// Takes `down(counts, ones)` off each word of process `index`.
    #[inline]
    fn count_down(
        &self,
        index: usize,
        offsets: core::ops::Range<u32>,
        down: impl Fn(u64, u64) -> u64,
    ) {
        let is_alone = self.cluster.has_no_user_but(index);
        let change = |word, ones, own: &AtomicU64| {
            let before = own.load(Ordering::Relaxed);
            let after = before - down(before, ones);
            own.store(after, Ordering::Release);
            step();
            let freed = gathered(ones_of(before) & !ones_of(after));
            if is_alone || freed == 0 {
                freed
            } else {
                self.uncounted(index, word, freed)
            }
        };
        by_words(self.row(index), offsets, change, |slot, mask| {
            self.cluster.mark_free(slot, mask);
        });
    }

    /// Those of the slots `wanted` of a word that nobody but process `index` counts.
    fn uncounted(&self, index: usize, word: u32, wanted: u64) -> u64 {
        let mut others = self.cluster.users().filter(|&user| user != index);
        let mut left = wanted;
        while left != 0
            && let Some(user) = others.next()
        {
            left &= !self.counted(user, word);
        }
        left
    }

    /// Which slots of a word process `index` counts.
    fn counted(&self, index: usize, word: u32) -> u64 {
        let counts = self.row(index).get(word as usize);
        counts.map_or(0, |counts| nonzero(counts.load(Ordering::Relaxed)))
    }

    /// Marks slots as never to be handed out again; this owner's counts of them are gone.
    pub(super) fn retire(&self, run: Run) {
        self.add_user(SUPERVISOR);
        let mark = |slot, mask| self.cluster.mark_taken(slot, mask);
        let spoil = |_, ones, bad: &AtomicU64| {
            bad.store(bad.load(Ordering::Relaxed) | ones, Ordering::Release);
            step();
            gathered(ones)
        };
        by_words(self.row(SUPERVISOR), offsets_of(run), spoil, mark);
        let forget = |_, ones: u64, own: &AtomicU64| {
            let kept = own.load(Ordering::Relaxed) & !(ones * 0xff);
            own.store(kept, Ordering::Release);
            step();
            0
        };
        by_words(self.row(self.owner.index()), offsets_of(run), forget, mark);
        // A run used in part had free slots, and there may be no room any more.
        match self.cluster.state() {
            State::Nonfull(order) | State::Frag(order) => self.rest(order),
            _ => {}
        }
    }

    /// Gives `child` the counts of `parent`; it has none yet.
    pub(super) fn copy_counts(&self, parent: usize, child: usize) {
        self.add_user(child);
        for (theirs, own) in self.row(parent).iter().zip(self.row(child)) {
            own.store(theirs.load(Ordering::Relaxed), Ordering::Release);
            step();
        }
    }

    /// Takes off all counts of process `index`, which is gone, and undoes what it was about.
    pub(super) fn drop_counts(&self, index: usize) {
        if index < NR_PROCESSES && self.cluster.has_user(index) {
            self.count_down(index, 0..CLUSTER_SLOTS, |counts, _| counts);
            self.settle();
            self.cluster.remove_user(index);
        }
        if matches!(self.cluster.state(), State::Discarding(by) if usize::from(by) == index) {
            self.slots.lists(self.owner).move_to(self, State::Discard);
        }
    }

    /// Derives everything from the counts: the last holder died in the middle of a change.
    pub(super) fn repair(&self) {
        self.cluster.mark_all_free();
        for (word, _) in words_of(0..CLUSTER_SLOTS) {
            let users = self.cluster.users();
            let counted = users.fold(0, |mask, user| mask | self.counted(user, word));
            let slot = word * WORD_SLOTS;
            self.cluster.mark_taken(slot, counted << (slot % 64));
        }
        match self.cluster.state() {
            State::Current(order)
            | State::Nonfull(order)
            | State::Frag(order)
            | State::Full(order) => self.rest(order),
            State::Free | State::Discard | State::Discarding(_) => {}
        }
    }

    /// Sends the cluster to the list where it belongs now that slots were freed.
    fn settle(&self) {
        match self.cluster.state() {
            State::Nonfull(_) if self.cluster.nr_taken() > 0 => {}
            State::Nonfull(order) | State::Frag(order) | State::Full(order) => self.rest(order),
            State::Current(_) | State::Free | State::Discard | State::Discarding(_) => {}
        }
    }

    /// Sends the cluster to the list where it belongs when nobody allocates from it.
    fn rest(&self, order: u8) {
        let to = self.cluster.resting(order, self.slots.empty());
        if to != self.cluster.state() {
            self.slots.lists(self.owner).move_to(self, to);
        }
    }
}
