//! *What*: finds the matches of a block and writes them as tokens, extras and literals.
//!
//! Most of the time goes to unpredictable branches, a few for each match, and to the latency until
//! they resolve. So each of the three candidates has its own branch, the one known soonest first:
//! the two last distances, then the hash table's. The first match is taken, unless the search is
//! thorough. The parts of a sequence are all written, without branches, and counted if they apply.
//!
//! *Invariants*: every position in the table is one in the block from which a word can be read; a
//! candidate matches only as far as bytes were compared. Streams stay within their buffers: see the
//! sums at each write.
//! *Locking*: none. *Context*: any.

use crate::PAGE;
use crate::format::{
    FIRST_DISTANCE, LONG_LITERALS, LONG_MATCH, LONG_REST, MAX_NEAR_DISTANCE, MIN_MATCH, NR_STREAMS,
    kind,
};
use crate::streams::{STEP, Streams};
use core::hint::select_unpredictable;

/// The length of a match, in bytes, from which no better one is sought.
const GOOD_MATCH_LEN: usize = 32;

/// The last position of each hash; `HASHES` is a power of two. Zero is the first position, always a
/// valid candidate.
pub(crate) type Table<const HASHES: usize> = [u16; HASHES];

/// How to search.
pub(crate) trait Search {
    /// Bytes that are hashed: fewer find more and shorter matches.
    const HASHED: u32;
    /// Bytes of a match at the last distance, at least: three or four. Any other has four.
    const REPEAT: u32;
    /// Growth of the search's step for each failed attempt, in 64ths of a byte.
    const SKIP: usize;
    /// Take the best candidate, try the next position too, and extend the match backwards.
    const THOROUGH: bool;
}

/// A block to read words from, at least one word long; a page if `PAGES` is one.
#[derive(Clone, Copy)]
struct Source<'a, const PAGES: usize>(&'a [u8]);

impl<const PAGES: usize> Source<'_, PAGES> {
    /// Its length; for a page a constant.
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

/// Equal low bytes of two words, by their differing bits.
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

/// A match that was found.
#[derive(Clone, Copy)]
struct Match {
    /// [`kind::NEAR`] is any new distance.
    kind: usize,
    len: usize,
    /// The last distances after it: the first is its own.
    last: [usize; 2],
}

impl Match {
    /// A match of which one word was compared: a length of 8 means 8 or more.
    #[inline(always)]
    fn of(kind: usize, differ: u64, last: [usize; 2]) -> Match {
        Match {
            kind,
            len: equal_bytes(differ),
            last,
        }
    }

    /// The best of what [`look`] found; a length below [`MIN_MATCH`] is no match. `new` is the
    /// distance of the table's candidate.
    #[inline(always)]
    fn best(differ: [u64; 3], last: [usize; 2], new: usize) -> Match {
        let lens = differ.map(equal_bytes);
        // Length above kind. The other distance must gain one byte, a new one the two it costs.
        let scores = [
            (lens[0] + 2) << 2 | kind::LAST,
            (lens[1] + 1) << 2 | kind::OTHER,
            lens[2] << 2 | kind::NEAR,
        ];
        let score = scores[0].max(scores[1]).max(scores[2]);
        let kind = score & 3;
        let repeat = select_unpredictable(kind == kind::OTHER, last[1], last[0]);
        Match {
            kind,
            len: (score >> 2) + kind - 2,
            last: [
                select_unpredictable(kind == kind::NEAR, new, repeat),
                select_unpredictable(kind == kind::LAST, last[1], last[0]),
            ],
        }
    }

    /// Finds its length if a whole word is equal.
    ///
    /// # Safety
    /// It is a match at `at`, from one of the functions above.
    #[inline(always)]
    unsafe fn extend<const PAGES: usize>(&mut self, source: Source<PAGES>, at: usize) {
        if self.len == 8 {
            // SAFETY: the words at `at` and at its distance before were read.
            self.len = unsafe { source.match_len(at, self.last[0], 8) };
        }
    }
}

/// Compares the word at `ip` with those at both last distances and at the table's candidate, which
/// is returned as well; enters `ip` in the table.
///
/// # Safety
/// `ip` is at most [`Source::last_word`] and at least each of `last`; what is in the table is
/// before it.
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

/// Takes `block` apart into `streams`.
///
/// # Safety
/// `block` has [`STEP`] bytes or more, at most as many as `PAGES` pages, and exactly as many if
/// that is one.
pub(crate) unsafe fn parse<S: Search, const PAGES: usize, const HASHES: usize>(
    table: &mut Table<HASHES>,
    streams: &mut Streams<PAGES>,
    block: &[u8],
) {
    table.fill(0);
    let source = Source::<PAGES>(block);
    let starts = streams.starts();
    let mut out = Writer::new(starts, source);
    // The search's position, and the end of the last match.
    let (mut ip, mut anchor) = (FIRST_DISTANCE, 0);
    let mut last = [FIRST_DISTANCE; 2];
    // SAFETY: `ip <= source.last_word()` wherever a word is read there, and `ip` is at least each
    // distance in `last`: those were found at an earlier `ip`. `candidate < ip`: the table holds
    // zero or positions that were `ip`, each before the present one, which only grows. So a
    // distance is at least 1. What is written is summed up in `Writer::sequence`.
    unsafe {
        'block: loop {
            let mut step = 64;
            let mut found;
            loop {
                if ip > source.last_word() {
                    break 'block;
                }
                let (differ, candidate) = look::<S, PAGES, HASHES>(source, table, ip, last);
                let matches = [
                    differ[0] << (64 - 8 * S::REPEAT) == 0,
                    differ[1] << 32 == 0,
                    differ[2] << 32 == 0,
                ];
                if matches[0] {
                    found = if S::THOROUGH {
                        Match::best(differ, last, ip - candidate)
                    } else {
                        Match::of(kind::LAST, differ[0], last)
                    };
                    break;
                }
                if matches[1] {
                    found = Match::of(kind::OTHER, differ[1], [last[1], last[0]]);
                    break;
                }
                if matches[2] {
                    found = Match::of(kind::NEAR, differ[2], [ip - candidate, last[0]]);
                    break;
                }
                ip += step / 64;
                step += S::SKIP;
            }
            found.extend(source, ip);
            if S::THOROUGH {
                if found.len < GOOD_MATCH_LEN && ip < source.last_word() {
                    let at = ip + 1;
                    let (differ, candidate) = look::<S, PAGES, HASHES>(source, table, at, last);
                    let mut later = Match::best(differ, last, at - candidate);
                    later.extend(source, at);
                    if later.len > found.len + 1 {
                        (ip, found) = (at, later);
                    }
                }
                let distance = found.last[0];
                while ip > anchor
                    && ip > distance
                    && block.get_unchecked(ip - 1) == block.get_unchecked(ip - 1 - distance)
                {
                    ip -= 1;
                    found.len += 1;
                }
            }
            last = found.last;
            out.sequence(anchor, ip - anchor, found);
            ip += found.len;
            anchor = ip;
        }
        out.literals(anchor, source.len() - anchor);
    }
    streams.counts = out.written(starts);
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a block has 64 KiB")]
fn position(at: usize) -> u16 {
    at as u16
}

/// Appends to the three streams.
struct Writer<'a, const PAGES: usize> {
    source: Source<'a, PAGES>,
    /// The ends of the streams.
    tokens: *mut u8,
    extras: *mut u8,
    literals: *mut u8,
}

impl<'a, const PAGES: usize> Writer<'a, PAGES> {
    /// With the starts of [`Streams`].
    fn new([tokens, extras, literals]: [*mut u8; NR_STREAMS], source: Source<'a, PAGES>) -> Self {
        Writer {
            source,
            tokens,
            extras,
            literals,
        }
    }

    /// Bytes of each stream.
    fn written(&self, starts: [*mut u8; NR_STREAMS]) -> [usize; NR_STREAMS] {
        let ends = [self.tokens, self.extras, self.literals];
        core::array::from_fn(|stream| ends[stream].addr() - starts[stream].addr())
    }

    /// Writes `nr` literals from `from`.
    ///
    /// # Safety
    /// `from + nr` is at most the block's length, and the literals of all calls are different bytes
    /// of it.
    #[inline(always)]
    unsafe fn literals(&mut self, from: usize, nr: usize) {
        // SAFETY: there are never more than the block's length by the promise; whole steps are read
        // only where the block has them, and overshoot by less than the step that the buffer has
        // beyond a block.
        unsafe {
            let (to, src) = (self.literals, self.source.0.as_ptr().add(from));
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
            self.literals = to.add(nr);
        }
    }

    /// Writes one sequence: `nr` literals from `anchor`, then a match.
    ///
    /// # Safety
    /// The promise of [`Writer::literals`]; the sequences so far cover `anchor` bytes of the block
    /// and this one is inside it; the match is of at least [`MIN_MATCH`] bytes, and one more unless
    /// it is [`kind::LAST`].
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "16 bits, 8 bits")]
    unsafe fn sequence(&mut self, anchor: usize, nr: usize, found: Match) {
        // SAFETY: the caller's promise.
        unsafe { self.literals(anchor, nr) };

        let Match { kind, len, last } = found;
        // The rotation makes all but multiples of eight huge.
        let eighth = last[0].rotate_right(3) - 1;
        let near = eighth < MAX_NEAR_DISTANCE / 8;
        let extra = select_unpredictable(near, eighth, last[0]);
        let kind = kind + usize::from((kind == kind::NEAR) & !near);
        let beyond = len - MIN_MATCH - usize::from(kind != kind::LAST);
        let (short_nr, short_len) = (nr.min(LONG_LITERALS), beyond.min(LONG_MATCH));
        let (rest_nr, rest_len) = (nr - short_nr, beyond - short_len);
        // SAFETY: each token stands for three bytes of the block or more, so there are never more
        // than fit. Extras are at most half of the bytes covered: two of a distance for four bytes
        // of match or more; one for three literals, or fifteen more bytes of match, and three for
        // many. So there is twice the room, and what is written and not counted is in it.
        unsafe {
            *self.tokens = (kind << 6 | short_nr << 4 | short_len) as u8;
            self.tokens = self.tokens.add(1);
            let mut ep = self.extras;
            ep.cast::<u16>().write_unaligned((extra as u16).to_le());
            ep = ep.add(kind.saturating_sub(1));
            if (rest_nr | rest_len) >= LONG_REST {
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
            self.extras = ep;
        }
    }
}

/// Writes the rest of a length.
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
