//! *What*: the constants of the format: header, tokens, extras.
//! *Invariants*: as in `docs/pz-format.md`; a change of any is a new [`version`].
//! *Locking*: none. *Context*: any.

/// The largest distance of a [`kind::NEAR`] match, in bytes.
pub(crate) const MAX_NEAR_DISTANCE: usize = 2048;
/// The streams of an object, in their order.
pub(crate) const TOKENS: usize = 0;
pub(crate) const EXTRAS: usize = 1;
pub(crate) const LITERALS: usize = 2;
pub(crate) const NR_STREAMS: usize = 3;

/// A match's kind of distance, the token's upper two bits; the encoder computes with them.
pub(crate) mod kind {
    /// At the distance of the match before.
    pub(crate) const LAST: usize = 0;
    /// At the other one of the two last distances.
    pub(crate) const OTHER: usize = 1;
    /// A multiple of eight up to [`MAX_NEAR_DISTANCE`](super::MAX_NEAR_DISTANCE): one extra byte.
    pub(crate) const NEAR: usize = 2;
    /// Any distance: two extra bytes.
    pub(crate) const FAR: usize = 3;
}

/// A token's two bits for its literals: this many or more, the rest is in the extras.
pub(crate) const LONG_LITERALS: usize = 3;
/// A token's four bits for its match beyond the shortest: this or more, the rest is in the extras.
pub(crate) const LONG_MATCH: usize = 15;
/// The shortest match: one byte more unless it is at the last distance.
pub(crate) const MIN_MATCH: usize = 3;
/// A rest of this or more is this byte and two bytes with the whole rest.
pub(crate) const LONG_REST: usize = 255;
/// Both distances at the start of a page.
pub(crate) const FIRST_DISTANCE: usize = 1;

/// The version of a page's object, or of a block's.
pub(crate) const fn version(pages: usize) -> usize {
    if pages == 1 { 1 } else { 2 }
}

/// Bytes of header: 16-bit words.
pub(crate) const fn header_len(pages: usize) -> usize {
    if pages == 1 { 8 } else { 10 }
}

/// The largest number in the header.
const fn max_number(pages: usize) -> usize {
    if pages == 1 { 0xfff } else { 0xffff }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    /// Bytes of the coded part that belong to its first two bit streams.
    pub(crate) split: usize,
    /// Symbols in each stream.
    pub(crate) counts: [usize; NR_STREAMS],
    /// The code of each stream: 0 for plain bytes, otherwise a table's number plus one.
    pub(crate) codes: [usize; NR_STREAMS],
}

impl Header {
    /// Writes it to the start of an object. `None` if a number does not fit.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "checked: 16 bits")]
    pub(crate) fn put<const PAGES: usize>(self, object: &mut [u8]) -> Option<()> {
        let [tokens, extras, literals] = self.counts;
        // Without tokens all bytes are literals, and the number is not read.
        let literals = if tokens == 0 { 0 } else { literals };
        let numbers = [self.split, tokens, extras, literals];
        if numbers.iter().any(|&number| number > max_number(PAGES)) {
            return None;
        }
        let [tokens, extras, literals] = self.codes;
        let nibbles = [version(PAGES), tokens, extras, literals];
        let header = object.get_mut(..header_len(PAGES))?;
        if PAGES == 1 {
            // Each nibble above a number.
            for (to, (nibble, number)) in
                header.chunks_exact_mut(2).zip(nibbles.iter().zip(numbers))
            {
                to.copy_from_slice(&((nibble << 12 | number) as u16).to_le_bytes());
            }
        } else {
            // All nibbles, then the numbers.
            let first = nibbles.iter().fold(0, |word, nibble| word << 4 | nibble);
            for (to, word) in header
                .chunks_exact_mut(2)
                .zip([first].into_iter().chain(numbers))
            {
                to.copy_from_slice(&(word as u16).to_le_bytes());
            }
        }
        Some(())
    }

    /// From the start of an object of `len` bytes. `None` for another version.
    #[inline(always)]
    pub(crate) fn get<const PAGES: usize>(object: &[u8], len: usize) -> Option<Header> {
        let (nibbles, numbers): ([usize; 4], [usize; 4]) = if PAGES == 1 {
            let words: [usize; 4] = words(object)?;
            (words.map(|word| word >> 12), words.map(|word| word & 0xfff))
        } else {
            let [first, numbers @ ..]: [usize; 5] = words(object)?;
            let nibbles = core::array::from_fn(|i| first >> (12 - 4 * i) & 0xf);
            (nibbles, numbers)
        };
        let [found, codes @ ..] = nibbles;
        let [split, tokens, extras, literals] = numbers;
        let literals = if tokens == 0 { len } else { literals };
        (found == version(PAGES)).then_some(Header {
            split,
            counts: [tokens, extras, literals],
            codes,
        })
    }
}

/// The first `N` 16-bit words.
#[inline(always)]
fn words<const N: usize>(object: &[u8]) -> Option<[usize; N]> {
    let (words, _) = object.get(..2 * N)?.as_chunks();
    let mut words = words.iter();
    Some(core::array::from_fn(|_| {
        words
            .next()
            .map_or(0, |&word| usize::from(u16::from_le_bytes(word)))
    }))
}
