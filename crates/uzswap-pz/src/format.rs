//! What: the numbers of the format that both sides share: header, tokens, extras.
//! Invariants: as `docs/pz-format.md` says; a change of any of them is a new [`version`].
//! Locking: none.
//! Context: any.

/// The farthest match that is near.
pub(crate) const FARTHEST_NEAR: usize = 2048;
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

/// What an object's version says it is of: a single page, or a block of several.
pub(crate) const fn version(pages: usize) -> usize {
    if pages == 1 { 1 } else { 2 }
}

/// Bytes of header: 16-bit words.
pub(crate) const fn header_len(pages: usize) -> usize {
    if pages == 1 { 8 } else { 10 }
}

/// Numbers in the header are up to this.
const fn most(pages: usize) -> usize {
    if pages == 1 { 0xfff } else { 0xffff }
}

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
    /// Writes it to the start of an object. `None` if a number does not fit.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "checked: 16 bits")]
    pub(crate) fn put<const PAGES: usize>(self, object: &mut [u8]) -> Option<()> {
        let [tokens, extras, literals] = self.counts;
        // Without tokens all is literals, and that number is not read.
        let literals = if tokens == 0 { 0 } else { literals };
        let numbers = [self.split, tokens, extras, literals];
        if numbers.iter().any(|&number| number > most(PAGES)) {
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

/// The first 16-bit words.
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
