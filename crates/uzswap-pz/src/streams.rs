//! What: a page taken apart: tokens, extras and literals, between the parser or the decoder and the codes.
//! Invariants: [`Streams::counts`] is at most [`CAPACITIES`], of each stream.
//! Locking: none.
//! Context: any.

use crate::PAGE;
use crate::format::{EXTRAS, LITERALS, MAX_TOKENS, NR_STREAMS, TOKENS};

/// Copies go in steps of this many bytes and may overshoot by that less one.
pub(crate) const STEP: usize = 16;
/// The most extras that are worth going on with.
const MAX_EXTRAS: usize = PAGE + PAGE / 8;

/// The longest streams, in bytes.
pub(crate) const CAPACITIES: [usize; NR_STREAMS] = [MAX_TOKENS, MAX_EXTRAS, PAGE];

#[repr(C, align(64))]
pub(crate) struct Streams {
    pub(crate) tokens: [u8; MAX_TOKENS + STEP],
    pub(crate) extras: [u8; MAX_EXTRAS + STEP],
    pub(crate) literals: [u8; PAGE + STEP],
    pub(crate) counts: [usize; NR_STREAMS],
}

impl Streams {
    pub(crate) const fn new() -> Streams {
        Streams {
            tokens: [0; MAX_TOKENS + STEP],
            extras: [0; MAX_EXTRAS + STEP],
            literals: [0; PAGE + STEP],
            counts: [0; NR_STREAMS],
        }
    }

    /// Each stream as far as it is filled.
    pub(crate) fn filled(&self) -> [&[u8]; NR_STREAMS] {
        let all: [&[u8]; NR_STREAMS] = [&self.tokens, &self.extras, &self.literals];
        let mut filled = all;
        for (to, (stream, &count)) in filled.iter_mut().zip(all.iter().zip(&self.counts)) {
            *to = stream.get(..count).unwrap_or(&[]);
        }
        filled
    }

    /// The whole buffer of one stream.
    pub(crate) fn buffer(&mut self, stream: usize) -> &mut [u8] {
        match stream {
            TOKENS => &mut self.tokens,
            EXTRAS => &mut self.extras,
            LITERALS => &mut self.literals,
            _ => &mut [],
        }
    }
}
