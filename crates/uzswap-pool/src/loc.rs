//! *What*: [`Loc`]: where an object is, as the page table stores it.
//!
//! *Invariants*: counted in granules of 16 bytes from the pool's base, below 2^36 (1 TiB), and
//! never 0.
//! *Locking*: none; a value.
//! *Context*: any.

use crate::class::GRANULE;

/// Bits that a location needs in a page table entry.
pub const LOC_BITS: u32 = 36;

/// Where an object of the pool is: 36 bits, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Loc(u64);

impl Loc {
    /// The location that [`Loc::raw`] gave out; `None` for 0 or what needs more
    /// than 36 bits.
    #[inline]
    pub const fn from_raw(raw: u64) -> Option<Self> {
        if raw == 0 || raw >> LOC_BITS != 0 {
            None
        } else {
            Some(Self(raw))
        }
    }

    /// The location as a number below 2^36.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Bytes from the pool's base.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "40 bits on a 64-bit machine"
    )]
    pub(crate) const fn offset(self) -> usize {
        self.0 as usize * GRANULE
    }

    /// The location so many bytes from the base.
    #[inline]
    pub(crate) const fn at(offset: usize) -> Self {
        Self((offset / GRANULE) as u64)
    }
}
