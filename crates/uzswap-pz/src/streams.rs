//! *What*: the three streams of a block, tokens, extras and literals, between parser or expander
//! and the codes.
//! *Invariants*: [`Streams::counts`] are at most [`capacities`].
//! *Locking*: none. *Context*: any.

use crate::PAGE;
use crate::format::{EXTRAS, LITERALS, MIN_MATCH, NR_STREAMS, TOKENS};

/// Copies are in steps of this many bytes, and may overshoot by one less.
pub(crate) const STEP: usize = 16;
/// Tokens of a page, at most: each but the last stands for three bytes or more.
const MAX_TOKENS: usize = PAGE.div_ceil(MIN_MATCH);
/// Extras of a page, at most, for which coding can pay.
const MAX_EXTRAS: usize = PAGE + PAGE / 8;

/// The longest streams of a block, in bytes.
pub(crate) const fn capacities(pages: usize) -> [usize; NR_STREAMS] {
    [pages * MAX_TOKENS, pages * MAX_EXTRAS, pages * PAGE]
}

/// Buffers for the streams of a block of up to `PAGES` pages, and a step each.
#[repr(C, align(64))]
pub(crate) struct Streams<const PAGES: usize> {
    tokens: [[u8; MAX_TOKENS + STEP]; PAGES],
    extras: [[u8; MAX_EXTRAS + STEP]; PAGES],
    literals: [[u8; PAGE + STEP]; PAGES],
    pub(crate) counts: [usize; NR_STREAMS],
}

impl<const PAGES: usize> Streams<PAGES> {
    pub(crate) const fn new() -> Self {
        Streams {
            tokens: [[0; MAX_TOKENS + STEP]; PAGES],
            extras: [[0; MAX_EXTRAS + STEP]; PAGES],
            literals: [[0; PAGE + STEP]; PAGES],
            counts: [0; NR_STREAMS],
        }
    }

    /// The filled part of each stream.
    #[inline(always)]
    pub(crate) fn filled(&self) -> [&[u8]; NR_STREAMS] {
        let all: [&[u8]; NR_STREAMS] = [
            self.tokens.as_flattened(),
            self.extras.as_flattened(),
            self.literals.as_flattened(),
        ];
        let mut filled = all;
        for (to, (stream, &count)) in filled.iter_mut().zip(all.iter().zip(&self.counts)) {
            *to = stream.get(..count).unwrap_or(&[]);
        }
        filled
    }

    /// The starts of the buffers.
    #[inline(always)]
    pub(crate) fn starts(&mut self) -> [*mut u8; NR_STREAMS] {
        [
            self.tokens.as_flattened_mut().as_mut_ptr(),
            self.extras.as_flattened_mut().as_mut_ptr(),
            self.literals.as_flattened_mut().as_mut_ptr(),
        ]
    }

    /// The whole buffer of one stream.
    #[inline(always)]
    pub(crate) fn buffer(&mut self, stream: usize) -> &mut [u8] {
        match stream {
            TOKENS => self.tokens.as_flattened_mut(),
            EXTRAS => self.extras.as_flattened_mut(),
            LITERALS => self.literals.as_flattened_mut(),
            _ => &mut [],
        }
    }
}
