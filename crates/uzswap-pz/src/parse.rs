//! What: finds the matches of a page and writes them as tokens, extras and literals.
//! Invariants: every position in [`Table`] is one of the page from which a word can be read; a candidate is believed only
//! for the bytes that were compared. Streams stay within their buffers: see the sums at each write.
//! Locking: none.
//! Context: any.
//!
//! The cost of a page is branches that cannot be predicted, a few for each match, and the positions looked at. So the three
//! candidates (both last distances, and the hash table's) are tried at once behind one branch, the best of them is chosen
//! without one, and what does not depend on the data's kind is written always and counted only where it holds.

use crate::format::{FIRST_DISTANCE, LONG_LITERALS, LONG_MATCH, LONG_REST, MIN_MATCH, kind};
use crate::streams::{CAPACITIES, STEP, Streams};
use crate::{PAGE, format};
use core::hint::select_unpredictable;

const HASH_BITS: u32 = 11;
/// A match that is not worth looking for a better one.
const LONG_ENOUGH: usize = 32;
/// Where the last word of a page begins.
const LAST_WORD: usize = PAGE - 8;

/// Where each hash was seen last: 4 KiB. Zero stands for the first position, which is always a valid candidate.
pub(crate) type Table = [u16; 1 << HASH_BITS];

pub(crate) const EMPTY: Table = [0; 1 << HASH_BITS];

/// How to search.
pub(crate) trait Search {
    /// Bytes that are hashed: fewer find more and shorter matches.
    const HASHED: u32;
    /// Failed attempts, as a power of two, after which the search takes longer steps.
    const SKIP: u32;
    /// Look whether a match began earlier.
    const BACK: bool;
    /// Look for a longer match at the next position before taking a short one.
    const LAZY: bool;
}

/// A page to read words from.
#[derive(Clone, Copy)]
struct Source<'a>(&'a [u8; PAGE]);

impl Source<'_> {
    /// # Safety
    /// `at` is at most [`LAST_WORD`].
    #[inline(always)]
    unsafe fn word(self, at: usize) -> u64 {
        debug_assert!(at <= LAST_WORD);
        // SAFETY: 8 bytes from `at` are in the page.
        u64::from_le(unsafe { self.0.as_ptr().add(at).cast::<u64>().read_unaligned() })
    }

    /// The bits that differ between the words at `at` and `distance` before.
    ///
    /// # Safety
    /// `at` is at most [`LAST_WORD`], `distance` at most `at`.
    #[inline(always)]
    unsafe fn differ(self, at: usize, distance: usize) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { self.word(at) ^ self.word(at - distance) }
    }

    /// How long the match at `at` is, of which `known` bytes are known.
    ///
    /// # Safety
    /// `1 <= distance <= at`, `at + known <= PAGE`.
    #[inline(always)]
    unsafe fn match_len(self, at: usize, distance: usize, known: usize) -> usize {
        let mut end = at + known;
        // SAFETY: words are read up to the last one; then bytes inside the page.
        unsafe {
            while end <= LAST_WORD {
                let differ = self.differ(end, distance);
                if differ != 0 {
                    return end - at + equal_bytes(differ);
                }
                end += 8;
            }
            while end < PAGE && self.0.get_unchecked(end) == self.0.get_unchecked(end - distance) {
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
fn hash<S: Search>(word: u64) -> usize {
    ((word << (64 - 8 * S::HASHED)).wrapping_mul(0x9e37_79b1_85eb_ca87) >> (64 - HASH_BITS))
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
/// `ip` is at most [`LAST_WORD`] and at least each of `last`; what is in the table is before it.
#[inline(always)]
unsafe fn look<S: Search>(
    source: Source,
    table: &mut Table,
    ip: usize,
    last: [usize; 2],
) -> ([u64; 3], usize) {
    // SAFETY: the caller's promise; a hash is below the table's length.
    unsafe {
        let word = source.word(ip);
        let slot = table.get_unchecked_mut(hash::<S>(word));
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
unsafe fn best(
    source: Source,
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

/// Takes `page` apart. `None` if tokens, extras and literals are more than `limit` bytes.
pub(crate) fn parse<S: Search>(
    table: &mut Table,
    streams: &mut Streams,
    page: &[u8; PAGE],
    limit: usize,
) -> Option<()> {
    table.fill(0);
    let source = Source(page);
    let mut out = Writer::new(streams, page);
    // Where the search is, and where the last match ended.
    let (mut ip, mut anchor) = (FIRST_DISTANCE, 0);
    let mut last = [FIRST_DISTANCE; 2];
    // SAFETY: `ip <= LAST_WORD` wherever a word is read there, and `ip` is at least each distance in `last`: those were
    // found at an earlier `ip`. `candidate < ip`: the table holds zero or positions that were `ip`, each before the present
    // one, which only grows. So a distance is at least 1. What is written is summed up in `Writer::sequence`.
    unsafe {
        'page: loop {
            let mut attempts = 1_usize << S::SKIP;
            let (mut differ, mut candidate);
            loop {
                if ip > LAST_WORD {
                    break 'page;
                }
                (differ, candidate) = look::<S>(source, table, ip, last);
                // Three bytes at the last distance, or four.
                if (differ[0] << 40 == 0) | (differ[1] << 32 == 0) | (differ[2] << 32 == 0) {
                    break;
                }
                ip += attempts >> S::SKIP;
                attempts += 1;
            }
            let (mut distance, mut len) = best(source, ip, last, differ, candidate);
            if S::LAZY && len < LONG_ENOUGH && ip < LAST_WORD {
                let (differ, candidate) = look::<S>(source, table, ip + 1, last);
                let later = best(source, ip + 1, last, differ, candidate);
                if later.1 > len + 1 {
                    (distance, len) = later;
                    ip += 1;
                }
            }
            if S::BACK {
                while ip > anchor
                    && ip > distance
                    && page.get_unchecked(ip - 1) == page.get_unchecked(ip - 1 - distance)
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
        out.literals(anchor, PAGE - anchor);
    }
    out.finish(limit)
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "positions are 12 bits")]
fn position(at: usize) -> u16 {
    at as u16
}

/// Appends to the three streams.
struct Writer<'a> {
    streams: &'a mut Streams,
    page: &'a [u8; PAGE],
    nr_tokens: usize,
    nr_extras: usize,
    nr_literals: usize,
}

impl<'a> Writer<'a> {
    fn new(streams: &'a mut Streams, page: &'a [u8; PAGE]) -> Writer<'a> {
        Writer {
            streams,
            page,
            nr_tokens: 0,
            nr_extras: 0,
            nr_literals: 0,
        }
    }

    /// Writes `nr` literals from `from`.
    ///
    /// # Safety
    /// `from + nr <= PAGE`, and the literals of all calls are different bytes of the page.
    #[inline(always)]
    unsafe fn literals(&mut self, from: usize, nr: usize) {
        // SAFETY: `nr_literals + nr <= PAGE` by the promise; whole steps are read only where the page has them, and
        // overshoot by less than the step that the buffer has beyond a page.
        unsafe {
            let to = self.streams.literals.as_mut_ptr().add(self.nr_literals);
            let src = self.page.as_ptr().add(from);
            if from + nr <= PAGE - STEP {
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
    /// The promise of [`Writer::literals`]; the sequences so far cover `anchor` bytes of the page and this one is inside
    /// it; `len` is at least [`MIN_MATCH`], and one more unless `distance` is `last[0]`; no call after one that returned
    /// more than [`MAX_LIMIT`].
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "12 bits, 8 bits")]
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
        // SAFETY: each token stands for three bytes of the page or more, so there are never more than MAX_TOKENS.
        // Extras are at most MAX_LIMIT before this call, which is CAPACITIES[EXTRAS] - 8, and grow by at most 2 + 3 + 3.
        unsafe {
            *self.streams.tokens.get_unchecked_mut(self.nr_tokens) = token as u8;
            self.nr_tokens += 1;
            let extras = self.streams.extras.as_mut_ptr();
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
pub(crate) const MAX_LIMIT: usize = CAPACITIES[format::EXTRAS] - 8;

/// Writes what a token leaves of a length.
///
/// # Safety
/// Three bytes are writable.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "below 255, or of a page")]
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
