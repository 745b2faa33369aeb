//! *What*: [`Row`]: the counts of one process in one cluster, eight slots a word; and the same row
//! read as a cluster's *map*, which says which slots are free.
//!
//! *Invariants*
//! - A byte is 0, a count from 1 to [`MAX_COUNT`], or (in a map alone) 255, *foreign*: taken, and
//!   not counted by the home.
//! - A word changes at once. Whole words may be stored by who counts all of their slots alone:
//!   nobody else changes a word with no 0 in it.
//!
//! *Locking*: the caller's; see `cluster`.
//! *Context*: signal, worker, fork; in every process of the group.

use crate::cluster::CLUSTER_SLOTS;
use crate::crash_point;
use core::ops::Range;
use uzswap_sync::primitive::{AtomicU64, Ordering};
use uzswap_sync::{strict_assert, strict_unreachable};

/// Slots of a word.
const WORD_SLOTS: u32 = 8;
/// Words of a row.
pub(crate) const CLUSTER_WORDS: usize = CLUSTER_SLOTS.div_ceil(WORD_SLOTS) as usize;
/// The most that a process can count a slot.
pub(crate) const MAX_COUNT: u8 = 0xfe;

/// 1 in each byte.
pub(crate) const ONES: u64 = u64::MAX / 0xff;
/// The highest bit of each byte.
const HIGHS: u64 = ONES << 7;
/// The bytes of a word that stand for no slots, in clusters smaller than a word.
const BEYOND: u64 = if CLUSTER_SLOTS < WORD_SLOTS {
    u64::MAX << (8 * CLUSTER_SLOTS)
} else {
    0
};
/// The lowest bit of each byte that a run begins with, for the orders that lie within a word.
const STARTS: [u64; 3] = [ONES, u64::MAX / 0xffff, u64::MAX / 0xffff_ffff];
/// Orders from this one on are of whole words.
pub(crate) const WORD_ORDER: u8 = 3;

/// 1 in each byte that is not 0.
#[inline]
pub(crate) fn ones_of(word: u64) -> u64 {
    ((((word & !HIGHS) + !HIGHS) | word) & HIGHS) >> 7
}

/// 1 in each byte that is foreign.
#[inline]
pub(crate) fn foreign(word: u64) -> u64 {
    !ones_of(!word) & ONES
}

/// How many bytes of `ones` have 1, all others being 0. (Not every processor that this runs on
/// counts bits.)
#[inline]
pub(crate) fn nr_ones(ones: u64) -> u32 {
    let [.., nr] = ones.wrapping_mul(ONES).to_le_bytes();
    nr.into()
}

/// All bits of the bytes that `ones` has 1 in.
#[inline]
pub(crate) fn bytes(ones: u64) -> u64 {
    ones * 0xff
}

/// What a map's word says of the home's own counts.
#[inline]
pub(crate) fn home_counts(word: u64) -> u64 {
    word & !bytes(foreign(word))
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

/// The number of the word that a slot's count is in.
#[inline]
pub(crate) fn word_of(offset: u32) -> usize {
    (offset / WORD_SLOTS) as usize
}

/// 1 in the byte of its word that is a slot's count.
#[inline]
pub(crate) fn one_of(offset: u32) -> u64 {
    1 << (8 * (offset % WORD_SLOTS))
}

/// A slot's count, of the word that it is in.
#[inline]
pub(crate) fn byte_of(word: u64, offset: u32) -> u8 {
    let [byte, ..] = (word >> (8 * (offset % WORD_SLOTS))).to_le_bytes();
    byte
}

/// Where `offsets` lie in one word: its number, with 1 in the bytes that are meant.
#[inline]
pub(crate) fn only_word_of(offsets: &Range<u32>) -> Option<(usize, u64)> {
    let (start, nr) = (offsets.start % WORD_SLOTS, offsets.end - offsets.start);
    (start + nr <= WORD_SLOTS).then(|| {
        let ones = ONES >> (8 * (WORD_SLOTS - nr)) << (8 * start);
        (word_of(offsets.start), ones)
    })
}

/// The words that `offsets` of a cluster lie in, each with 1 in the bytes that are meant.
#[inline]
pub(crate) fn words_of(offsets: Range<u32>) -> impl Iterator<Item = (usize, u64)> + Clone {
    let words = offsets.start / WORD_SLOTS..offsets.end.div_ceil(WORD_SLOTS);
    words.map(move |word| {
        let first = word * WORD_SLOTS;
        let before = offsets.start.saturating_sub(first);
        let after = (first + WORD_SLOTS).saturating_sub(offsets.end);
        (
            word as usize,
            ONES >> (8 * (before + after)) << (8 * before),
        )
    })
}

/// The lowest bits of the bytes that free runs of `order` begin with, whose [`STARTS`] are
/// `starts`.
#[inline]
fn free_runs(word: u64, order: u8, starts: u64) -> u64 {
    // After round k a bit says that one of 2^(k+1) slots from it on is taken.
    let mut taken = ones_of(word | BEYOND);
    for k in 0..order {
        taken |= taken >> (8_u32 << k);
    }
    !taken & starts
}

/// A run's counts by words: the run begins with slot `first`, a multiple of its length.
#[inline]
pub(crate) fn words_up(first: u32, counts: &[u8]) -> impl Iterator<Item = (usize, u64)> {
    // A run that does not begin with a word lies in one.
    let shift = 8 * (first % WORD_SLOTS);
    let ups = counts.chunks(WORD_SLOTS as usize);
    (word_of(first)..).zip(ups.map(move |counts| packed(counts) << shift))
}

/// A row as it lies in memory.
pub(crate) type Words = [AtomicU64; CLUSTER_WORDS];

/// The counts of one process in one cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'m>(Option<&'m Words>);

impl<'m> Row<'m> {
    /// `None` is a row that there is not: nothing is counted there, nor free.
    #[inline]
    pub(crate) fn new(words: Option<&'m Words>) -> Self {
        Self(words)
    }

    #[inline]
    fn words(self) -> &'m [AtomicU64] {
        self.0.map_or(&[], |words| words)
    }

    #[inline]
    pub(crate) fn word(self, number: usize) -> Option<&'m AtomicU64> {
        self.0?.get(number)
    }

    #[inline]
    pub(crate) fn load(self, number: usize) -> u64 {
        self.word(number)
            .map_or(0, |word| word.load(Ordering::Relaxed))
    }

    pub(crate) fn byte(self, offset: u32) -> u8 {
        byte_of(self.load(word_of(offset)), offset)
    }

    /// Changes a word to what `change` makes of it: what it was, and what it is.
    #[inline]
    pub(crate) fn update(self, number: usize, change: impl Fn(u64) -> u64) -> (u64, u64) {
        let Some(word) = self.word(number) else {
            strict_unreachable!("counted beyond the device's end");
            return (0, 0);
        };
        let mut before = word.load(Ordering::Relaxed);
        loop {
            let after = change(before);
            // SeqCst: see `Cluster::should_move`. Release: a user first, then its counts.
            match word.compare_exchange_weak(before, after, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return (before, after),
                Err(now) => before = now,
            }
        }
    }

    /// Takes the free slots that `ups` are for, at once in each word; `false` if one is not free:
    /// then the words before it were taken, whose number is added to `nr`.
    #[inline]
    pub(crate) fn claim(self, ups: impl Iterator<Item = (usize, u64)>, nr: &mut usize) -> bool {
        for (number, up) in ups {
            let Some(word) = self.word(number) else {
                return false;
            };
            let wanted = bytes(ones_of(up));
            let mut before = word.load(Ordering::Relaxed);
            loop {
                if before & wanted != 0 {
                    return false;
                }
                // SeqCst: see `Table::take_at_home`.
                match word.compare_exchange_weak(
                    before,
                    before | up,
                    Ordering::SeqCst,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => break,
                    Err(now) => before = now,
                }
            }
            *nr += 1;
            crash_point();
        }
        true
    }

    /// Finds a free run of an order below [`WORD_ORDER`] from slot `from` on, and takes it; its
    /// first slot.
    #[inline(always)]
    pub(crate) fn claim_small(self, order: u8, from: u32, counts: &[u8]) -> Option<u32> {
        let starts = STARTS.get(usize::from(order)).copied()?;
        let (first, up) = (word_of(from), packed(counts));
        for (number, word) in (first..).zip(self.words().get(first..)?) {
            let mut before = word.load(Ordering::Relaxed);
            while let free @ 1.. = free_runs(before, order, starts) {
                let shift = free.trailing_zeros();
                let after = before | up << shift;
                // SeqCst: see `Table::take_at_home`.
                match word.compare_exchange(before, after, Ordering::SeqCst, Ordering::Relaxed) {
                    Ok(_) => return first_slot(number).map(|first| first + shift / 8),
                    Err(now) => before = now,
                }
            }
        }
        None
    }

    /// Finds a free run of an order from [`WORD_ORDER`] on, from slot `from` on, and takes it: its
    /// first slot, how many of its words were taken, and whether that is all of them.
    #[inline]
    pub(crate) fn claim_large(
        self,
        order: u8,
        from: u32,
        counts: &[u8],
    ) -> Option<(u32, usize, bool)> {
        let (first, mut claimed) = (self.find_run(order, from)?, 0);
        crash_point();
        let is_whole = self.claim(words_up(first, counts), &mut claimed);
        Some((first, claimed, is_whole))
    }

    /// Takes `ups` off again.
    pub(crate) fn unclaim(self, ups: impl Iterator<Item = (usize, u64)>) {
        for (number, up) in ups {
            if let Some(word) = self.word(number) {
                let before = word.fetch_sub(up, Ordering::SeqCst);
                strict_assert!(ones_of(up) & !ones_of(before) == 0, "undone and not done");
            }
            crash_point();
        }
    }

    /// Adds one to each count; `false`, and nothing is changed, where one is 0 or [`MAX_COUNT`].
    pub(crate) fn count_up(self, offsets: Range<u32>) -> bool {
        let words = words_of(offsets);
        let countable = |word: u64, ones: u64| {
            let counted = ones_of(word) & ones_of(!word) & ones;
            counted == ones && ones_of(!(word + ones)) & ones == ones
        };
        for (done, (number, ones)) in words.clone().enumerate() {
            let up = |word: u64| {
                if countable(word, ones) {
                    word + ones
                } else {
                    word
                }
            };
            if !countable(self.update(number, up).0, ones) {
                self.unclaim(words.take(done));
                return false;
            }
            crash_point();
        }
        true
    }

    /// The first slot of the first free aligned run of `order` from slot `from` on.
    #[inline]
    pub(crate) fn find_run(self, order: u8, from: u32) -> Option<u32> {
        self.find_in(
            order,
            word_of(from).min(self.words().len())..self.words().len(),
        )
    }

    /// Whether there is a free aligned run of `order` where `offsets` have been freed.
    pub(crate) fn has_run_at(self, order: u8, offsets: Range<u32>) -> bool {
        let words = word_of(offsets.start)..word_of(offsets.end - 1) + 1;
        self.find_in(order, words).is_some()
    }

    /// The first free run of those that lie in `words` or reach into them.
    #[inline]
    fn find_in(self, order: u8, words: Range<usize>) -> Option<u32> {
        let Some(starts) = STARTS.get(usize::from(order)).copied() else {
            return self.find_words(1 << (order - WORD_ORDER), words);
        };
        let found = words.clone().zip(self.words().get(words)?);
        let (number, free) = found
            .map(|(number, word)| {
                let word = word.load(Ordering::Relaxed);
                (number, free_runs(word, order, starts))
            })
            .find(|&(_, free)| free != 0)?;
        first_slot(number).map(|first| first + free.trailing_zeros() / 8)
    }

    fn find_words(self, nr: usize, words: Range<usize>) -> Option<u32> {
        let first = words.start / nr;
        let runs = (first..).zip(self.words().chunks(nr).skip(first));
        runs.take_while(|&(run, _)| run * nr < words.end)
            .find(|(_, words)| words.iter().all(|word| word.load(Ordering::Relaxed) == 0))
            .and_then(|(run, _)| first_slot(run * nr))
    }

    /// Whether no slot is taken. Looks first where the answer is likely to be, when slots near
    /// `near` were freed.
    #[inline(never)]
    pub(crate) fn is_empty(self, near: u32) -> bool {
        let at = word_of(near);
        let (before, after) = self.words().split_at(at.min(self.words().len()));
        let nearest = before.last().into_iter();
        nearest
            .chain(after)
            .chain(before)
            .all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Slots that are taken.
    pub(crate) fn nr_taken(self) -> u32 {
        let words = self.words().iter().map(|word| word.load(Ordering::Relaxed));
        // Each byte counts up to the number of words; then two of them are one number, and these
        // are added up.
        let bytes = words.fold(0, |sum, word| sum + ones_of(word));
        const EVEN: u64 = u64::MAX / 0xffff * 0xff;
        let pairs = (bytes & EVEN) + (bytes >> 8 & EVEN);
        let [.., low, high] = pairs.wrapping_mul(u64::MAX / 0xffff).to_le_bytes();
        u16::from_le_bytes([low, high]).into()
    }
}

fn first_slot(word: usize) -> Option<u32> {
    u32::try_from(word).ok().map(|word| word * WORD_SLOTS)
}
