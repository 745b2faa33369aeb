//! What: finds the matches of a block and writes them as tokens, extras and literals.
//! Invariants: every position in the table is one of the block from which a word can be read; a candidate is believed only
//! for the bytes that were compared. Streams stay within their buffers: see the sums at each write.
//! Locking: none.
//! Context: any.
//!
//! The cost of a block is branches that cannot be predicted, a few for each match, and the positions looked at. So the three
//! candidates (both last distances, and the hash table's) are tried at once behind one branch, the best of them is chosen
//! without one, and what does not depend on the data's kind is written always and counted only where it holds.

use crate::format::{
    EXTRAS, FIRST_DISTANCE, LITERALS, LONG_LITERALS, LONG_MATCH, LONG_REST, MIN_MATCH, TOKENS, kind,
};
use crate::streams::{STEP, Streams, capacities};
use crate::{PAGE, format};
use core::hint::select_unpredictable;

/// A match that is not worth looking for a better one.
const LONG_ENOUGH: usize = 32;

/// Where each hash was seen last; as many as a power of two. Zero stands for the first position, which is always a valid candidate.
pub(crate) type Table<const HASHES: usize> = [u16; HASHES];

/// How to search.
pub(crate) trait Search {
    /// Bytes that are hashed: fewer find more and shorter matches.
    const HASHED: u32;
    /// By how much each failed attempt makes the search's steps longer, 64ths of a byte.
    const SKIP: usize;
    /// Look whether a match began earlier.
    const BACK: bool;
    /// Look for a longer match at the next position before taking a short one.
    const LAZY: bool;
}

/// A block to read words from: a page, if `PAGES` is one. A word is in it.
#[derive(Clone, Copy)]
struct Source<'a, const PAGES: usize>(&'a [u8]);

impl<const PAGES: usize> Source<'_, PAGES> {
    /// Its length, which the code for pages knows.
    #[inline(always)]
    fn len(self) -> usize {
        if PAGES == 1 { PAGE } else { self.0.len() }
    }

    /// Where its last word begins.
    #[inline(always)]
    fn last_word(self) -> usize {
        self.len() - 8
    }

    /// # Safety
    /// `at` is at most [`Source::last_word`].
    #[inline(always)]
    unsafe fn word(self, at: usize) -> u64 {
        debug_assert!(at <= self.last_word());
        // SAFETY: 8 bytes from `at` are in the block.
        u64::from_le(unsafe { self.0.as_ptr().add(at).cast::<u64>().read_unaligned() })
    }

    /// The bits that differ between the words at `at` and `distance` before.
    ///
    /// # Safety
    /// `at` is at most [`Source::last_word`], `distance` at most `at`.
    #[inline(always)]
    unsafe fn differ(self, at: usize, distance: usize) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { self.word(at) ^ self.word(at - distance) }
    }

    /// How long the match at `at` is, of which `known` bytes are known.
    ///
    /// # Safety
    /// `1 <= distance <= at`, and `at + known` is at most the length.
    #[inline(always)]
    unsafe fn match_len(self, at: usize, distance: usize, known: usize) -> usize {
        let mut end = at + known;
        // SAFETY: words are read up to the last one; then bytes inside the block.
        unsafe {
            while end <= self.last_word() {
                let differ = self.differ(end, distance);
                if differ != 0 {
                    return end - at + equal_bytes(differ);
                }
                end += 8;
            }
            while end < self.len()
                && self.0.get_unchecked(end) == self.0.get_unchecked(end - distance)
            {
                end += 1;
            }
        }
        end - at
    }
}

/// How many low bytes of two words are equal, of which the differing bits are given: 8 for none.
#[inline(always)]
fn equal_bytes(differ: u64) -> usize {
    differ.trailing_zeros() as usize / 8
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "as many bits as asked")]
fn hash<S: Search, const HASHES: usize>(word: u64) -> usize {
    ((word << (64 - 8 * S::HASHED)).wrapping_mul(0x9e37_79b1_85eb_ca87) >> (64 - HASHES.ilog2()))
        as usize
}

/// The better of a match at `a` and one at `b`, as (distance, length).
#[inline(always)]
fn select(first: bool, a: (usize, usize), b: (usize, usize)) -> (usize, usize) {
    (
        select_unpredictable(first, a.0, b.0),
        select_unpredictable(first, a.1, b.1),
    )
}

/// Compares what is at `ip` with what is at both last distances and with the table's candidate, which is returned as well, and
/// puts `ip` into the table.
///
/// # Safety
/// `ip` is at most [`Source::last_word`] and at least each of `last`; what is in the table is before it.
#[inline(always)]
unsafe fn look<S: Search, const PAGES: usize, const HASHES: usize>(
    source: Source<PAGES>,
    table: &mut Table<HASHES>,
    ip: usize,
    last: [usize; 2],
) -> ([u64; 3], usize) {
    // SAFETY: the caller's promise; a hash is below the table's length.
    unsafe {
        let word = source.word(ip);
        let slot = table.get_unchecked_mut(hash::<S, HASHES>(word));
        let candidate = usize::from(*slot);
        *slot = position(ip);
        let differ = [
            source.word(ip - last[0]) ^ word,
            source.word(ip - last[1]) ^ word,
            source.word(candidate) ^ word,
        ];
        (differ, candidate)
    }
}

/// The best match at `ip`, as (distance, length). Less than [`MIN_MATCH`] is none.
///
/// # Safety
/// As [`look`], which gave `differ` and `candidate`.
#[inline(always)]
unsafe fn best<const PAGES: usize>(
    source: Source<PAGES>,
    ip: usize,
    last: [usize; 2],
    differ: [u64; 3],
    candidate: usize,
) -> (usize, usize) {
    let lens = differ.map(equal_bytes);
    let repeats = [
        if lens[0] < MIN_MATCH { 0 } else { lens[0] },
        if lens[1] <= MIN_MATCH { 0 } else { lens[1] },
    ];
    let other = repeats[1] > repeats[0];
    let found = select(other, (last[1], repeats[1]), (last[0], repeats[0]));
    // A new distance costs a byte or two.
    let new = lens[2] > found.1 + 1;
    let (distance, len) = select(new, (ip - candidate, lens[2]), found);
    if len < 8 {
        return (distance, len);
    }
    // SAFETY: the caller's promise; a word is equal.
    (distance, unsafe { source.match_len(ip, distance, 8) })
}

/// Takes `block` apart. `None` if tokens, extras and literals are more than `limit` bytes, which is at most [`max_limit`].
///
/// # Safety
/// `block` has [`STEP`] bytes or more, at most as many as `PAGES` pages, and exactly as many if that is one.
pub(crate) unsafe fn parse<S: Search, const PAGES: usize, const HASHES: usize>(
    table: &mut Table<HASHES>,
    streams: &mut Streams<PAGES>,
    block: &[u8],
    limit: usize,
) -> Option<()> {
    table.fill(0);
    let source = Source::<PAGES>(block);
    let mut out = Writer::new(streams, source);
    // Where the search is, and where the last match ended.
    let (mut ip, mut anchor) = (FIRST_DISTANCE, 0);
    let mut last = [FIRST_DISTANCE; 2];
    // SAFETY: `ip <= source.last_word()` wherever a word is read there, and `ip` is at least each distance in `last`: those were
    // found at an earlier `ip`. `candidate < ip`: the table holds zero or positions that were `ip`, each before the present
    // one, which only grows. So a distance is at least 1. What is written is summed up in `Writer::sequence`.
    unsafe {
        'block: loop {
            let mut step = 64;
            let (mut differ, mut candidate);
            loop {
                if ip > source.last_word() {
                    break 'block;
                }
                (differ, candidate) = look::<S, PAGES, HASHES>(source, table, ip, last);
                // Three bytes at the last distance, or four.
                if (differ[0] << 40 == 0) | (differ[1] << 32 == 0) | (differ[2] << 32 == 0) {
                    break;
                }
                ip += step / 64;
                step += S::SKIP;
            }
            let (mut distance, mut len) = best(source, ip, last, differ, candidate);
            if S::LAZY && len < LONG_ENOUGH && ip < source.last_word() {
                let (differ, candidate) = look::<S, PAGES, HASHES>(source, table, ip + 1, last);
                let later = best(source, ip + 1, last, differ, candidate);
                if later.1 > len + 1 {
                    (distance, len) = later;
                    ip += 1;
                }
            }
            if S::BACK {
                while ip > anchor
                    && ip > distance
                    && block.get_unchecked(ip - 1) == block.get_unchecked(ip - 1 - distance)
                {
                    ip -= 1;
                    len += 1;
                }
            }
            if out.sequence(&mut last, anchor, ip - anchor, distance, len) > limit {
                return None;
            }
            ip += len;
            anchor = ip;
        }
        out.literals(anchor, source.len() - anchor);
    }
    out.finish(limit)
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a block has 64 KiB")]
fn position(at: usize) -> u16 {
    at as u16
}

/// Appends to the three streams.
struct Writer<'a, const PAGES: usize> {
    streams: &'a mut Streams<PAGES>,
    source: Source<'a, PAGES>,
    nr_tokens: usize,
    nr_extras: usize,
    nr_literals: usize,
}

impl<'a, const PAGES: usize> Writer<'a, PAGES> {
    fn new(streams: &'a mut Streams<PAGES>, source: Source<'a, PAGES>) -> Self {
        Writer {
            streams,
            source,
            nr_tokens: 0,
            nr_extras: 0,
            nr_literals: 0,
        }
    }

    /// Writes `nr` literals from `from`.
    ///
    /// # Safety
    /// `from + nr` is at most the block's length, and the literals of all calls are different bytes of it.
    #[inline(always)]
    unsafe fn literals(&mut self, from: usize, nr: usize) {
        // SAFETY: `nr_literals + nr` is at most the block's length by the promise; whole steps are read only where the block has them, and
        // overshoot by less than the step that the buffer has beyond a block.
        unsafe {
            let to = self
                .streams
                .buffer(LITERALS)
                .as_mut_ptr()
                .add(self.nr_literals);
            let src = self.source.0.as_ptr().add(from);
            if from + nr <= self.source.len() - STEP {
                to.copy_from_nonoverlapping(src, STEP);
                let mut done = STEP;
                while done < nr {
                    to.add(done).copy_from_nonoverlapping(src.add(done), STEP);
                    done += STEP;
                }
            } else {
                to.copy_from_nonoverlapping(src, nr);
            }
        }
        self.nr_literals += nr;
    }

    /// Writes one sequence: `nr` literals from `anchor`, then a match. Returns the bytes written so far.
    ///
    /// # Safety
    /// The promise of [`Writer::literals`]; the sequences so far cover `anchor` bytes of the block and this one is inside
    /// it; `len` is at least [`MIN_MATCH`], and one more unless `distance` is `last[0]`; no call after one that returned
    /// more than [`max_limit`].
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "16 bits, 8 bits")]
    unsafe fn sequence(
        &mut self,
        last: &mut [usize; 2],
        anchor: usize,
        nr: usize,
        distance: usize,
        len: usize,
    ) -> usize {
        // SAFETY: the caller's promise.
        unsafe { self.literals(anchor, nr) };

        let near = distance.is_multiple_of(8) & (distance <= format::FARTHEST_NEAR);
        let mut kind = if near { kind::NEAR } else { kind::FAR };
        kind = if distance == last[1] {
            kind::OTHER
        } else {
            kind
        };
        kind = if distance == last[0] {
            kind::LAST
        } else {
            kind
        };
        last[1] = if kind == kind::LAST { last[1] } else { last[0] };
        last[0] = distance;

        let beyond = len - MIN_MATCH - usize::from(kind != kind::LAST);
        let (short_nr, short_len) = (nr.min(LONG_LITERALS), beyond.min(LONG_MATCH));
        let (rest_nr, rest_len) = (nr - short_nr, beyond - short_len);
        let token = kind << 6 | short_nr << 4 | short_len;
        let extra = if near { distance / 8 - 1 } else { distance };
        // SAFETY: each token stands for three bytes of the block or more, so there are never more than fit.
        // Extras are at most `max_limit` before this call, which is 8 less than fit, and grow by at most 2 + 3 + 3.
        unsafe {
            *self
                .streams
                .buffer(TOKENS)
                .get_unchecked_mut(self.nr_tokens) = token as u8;
            self.nr_tokens += 1;
            let extras = self.streams.buffer(EXTRAS).as_mut_ptr();
            let mut ep = extras.add(self.nr_extras);
            ep.cast::<u16>().write_unaligned((extra as u16).to_le());
            ep = ep.add(kind.saturating_sub(1));
            if (rest_nr >= LONG_REST) | (rest_len >= LONG_REST) {
                if short_nr == LONG_LITERALS {
                    ep = put_rest(ep, rest_nr);
                }
                if short_len == LONG_MATCH {
                    ep = put_rest(ep, rest_len);
                }
            } else {
                *ep = rest_nr as u8;
                ep = ep.add(usize::from(short_nr == LONG_LITERALS));
                *ep = rest_len as u8;
                ep = ep.add(usize::from(short_len == LONG_MATCH));
            }
            self.nr_extras = ep.addr() - extras.addr();
        }
        self.nr_tokens + self.nr_extras + self.nr_literals
    }

    fn finish(self, limit: usize) -> Option<()> {
        self.streams.counts = [self.nr_tokens, self.nr_extras, self.nr_literals];
        (self.nr_tokens + self.nr_extras + self.nr_literals <= limit).then_some(())
    }
}

/// The highest limit that [`parse`] may be given.
pub(crate) const fn max_limit(pages: usize) -> usize {
    capacities(pages)[EXTRAS] - 8
}

/// Writes what a token leaves of a length.
///
/// # Safety
/// Three bytes are writable.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "below 255, or of a block")]
unsafe fn put_rest(to: *mut u8, rest: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe {
        if rest < LONG_REST {
            *to = rest as u8;
            return to.add(1);
        }
        *to = LONG_REST as u8;
        to.add(1)
            .cast::<u16>()
            .write_unaligned((rest as u16).to_le());
        to.add(3)
    }
}
