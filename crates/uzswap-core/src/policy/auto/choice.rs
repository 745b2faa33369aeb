//! *What*: [`Choice`], a codec of `--compressor auto`.
//!
//! *Invariants*: none. *Locking*: none. *Context*: any.

use uzswap_group::knobs::MAX_DENSER_CODECS;

/// A codec of `auto`: the fast one, or a denser one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Choice(u32);

impl Choice {
    /// The fast codec.
    pub(crate) const FAST: Choice = Choice(0);

    /// All, by density.
    pub(super) fn all() -> impl Iterator<Item = Choice> {
        (0..=MAX_DENSER_CODECS).map(Choice::of)
    }

    /// 0 is the fast codec, and 1 the first denser one.
    #[expect(clippy::cast_possible_truncation, reason = "there are a few")]
    pub(super) const fn of(at: usize) -> Choice {
        Choice(at as u32)
    }

    /// As a number, and back.
    pub(super) const fn bits(self) -> u32 {
        self.0
    }

    pub(super) const fn from_bits(bits: u32) -> Choice {
        Choice(bits)
    }

    /// Which of the denser codecs it is; `None`: the fast one.
    pub(crate) const fn denser(self) -> Option<usize> {
        (self.0 as usize).checked_sub(1)
    }
}
