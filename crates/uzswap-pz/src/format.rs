//! What: the numbers of the format that both sides share: header, tokens, extras.
//! Invariants: as `docs/pz-format.md` says; a change of any of them is a new [`VERSION`].
//! Locking: none.
//! Context: any.

use crate::PAGE;

/// Stands in every object's header.
pub(crate) const VERSION: u16 = 1;
/// The farthest match that is near.
pub(crate) const FARTHEST_NEAR: usize = 2048;
/// Bytes of header: four 16-bit words, each a number of 12 bits and one of four above it.
pub(crate) const HEADER: usize = 8;
/// Numbers in the header are below this.
pub(crate) const COUNT_END: usize = 1 << 12;

/// The streams of an object, in their order.
pub(crate) const TOKENS: usize = 0;
pub(crate) const EXTRAS: usize = 1;
pub(crate) const LITERALS: usize = 2;
pub(crate) const NR_STREAMS: usize = 3;

/// Where a match begins, as the token's upper two bits say.
pub(crate) mod kind {
    /// At the distance of the match before.
    pub(crate) const LAST: usize = 0;
    /// At the other one of the two last distances.
    pub(crate) const OTHER: usize = 1;
    /// A multiple of eight bytes before, up to 2048: one extra byte.
    pub(crate) const NEAR: usize = 2;
    /// Anywhere before: two extra bytes.
    pub(crate) const FAR: usize = 3;
}

/// A token's two bits for the number of literals: this, or more with the rest among the extras.
pub(crate) const LONG_LITERALS: usize = 3;
/// A token's four bits for the length of the match beyond the shortest.
pub(crate) const LONG_MATCH: usize = 15;
/// The shortest match: one byte more unless it is at the last distance.
pub(crate) const MIN_MATCH: usize = 3;
/// A rest of this or more is this byte and two more with the number.
pub(crate) const LONG_REST: usize = 255;
/// Both distances at the start of a page.
pub(crate) const FIRST_DISTANCE: usize = 1;
/// No page has more tokens: each but the last stands for three bytes or more.
pub(crate) const MAX_TOKENS: usize = PAGE / MIN_MATCH;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    /// Bytes of the coded part that belong to its first two bit streams.
    pub(crate) split: usize,
    /// Symbols in each stream.
    pub(crate) counts: [usize; NR_STREAMS],
    /// The code of each: 0 for bytes as they are, otherwise a table's number plus one.
    pub(crate) codes: [usize; NR_STREAMS],
}

impl Header {
    #[expect(clippy::cast_possible_truncation, reason = "12 and 4 bits")]
    pub(crate) fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let words = [
            VERSION << 12 | self.split as u16,
            (self.codes[0] << 12 | self.counts[0]) as u16,
            (self.codes[1] << 12 | self.counts[1]) as u16,
            (self.codes[2] << 12 | (self.counts[2] % COUNT_END)) as u16,
        ];
        for (to, word) in bytes.chunks_exact_mut(2).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// `None` for another version.
    pub(crate) fn from_bytes(bytes: [u8; HEADER]) -> Option<Header> {
        let all = u64::from_le_bytes(bytes);
        let low = |i: usize| (all >> (16 * i) & 0xfff) as usize;
        let high = |i: usize| (all >> (16 * i + 12) & 0xf) as usize;
        // A page without tokens is all literals: one more than fits.
        let nr_literals = if low(1) == 0 { PAGE } else { low(3) };
        (high(0) == usize::from(VERSION)).then(|| Header {
            split: low(0),
            counts: [low(1), low(2), nr_literals],
            codes: [high(1), high(2), high(3)],
        })
    }
}
