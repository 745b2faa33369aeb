//! pz: a codec for memory.
//!
//! What: compress and decompress one page of 4096 bytes, or a block of several pages. What is in memory are records: the same field comes again
//! at the same distance. So pz is an LZ77 that says "the distance of before" in no bytes and a multiple of eight in one, and
//! that codes what is left with fixed prefix codes made for memory. `docs/pz-format.md` has the format.
//!
//! Invariants: nothing here allocates or panics, whatever the input. [`compress`] writes at most what its destination
//! holds; [`decompress`], given any bytes at all, writes nothing but its destination and either fills it or fails.
//!
//! Locking: none. A [`Workspace`] is used by one thread at a time: `&mut` sees to that.
//!
//! Context: any, signal handlers included. Stack: less than 1 KiB.
//!
//! A block must hold still during [`compress`]: whoever compresses memory that others may write copies it first.
//!
//! ```
//! use uzswap_pz::{Level, PAGE, Workspace, compress, decompress};
//!
//! let mut workspace = Workspace::new();
//! let page: [u8; PAGE] = core::array::from_fn(|i| (i / 100) as u8);
//! let mut object = [0; 3264];
//! let len = compress(&mut workspace, Level::Dense, &page, &mut object).expect("compresses well");
//! assert!(len < 400);
//!
//! let mut back = [0; PAGE];
//! decompress(&mut workspace, &object[..len], &mut back).expect("is what compress() wrote");
//! assert_eq!(page, back);
//! ```
#![cfg_attr(not(test), no_std)]

mod block_tables;
mod code;
mod expand;
mod format;
mod parse;
mod streams;
mod tables;
mod workspace;

pub use workspace::{BlockWorkspace, Memory, Workspace};

use core::fmt;

/// The length of a page, in bytes.
pub const PAGE: usize = 4096;
/// The longest block, in bytes.
pub const MAX_BLOCK: usize = 64 << 10;

/// How hard to try. Any level's objects are decompressed alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// About a sixth denser than lz4 in no more time; half again its time to decompress.
    Fast,
    /// Literals are entropy-coded: 30 % denser than lz4 in an eighth more time, twice its time to decompress.
    Dense,
    /// Everything is entropy-coded, and matches are sought with more care: half again as dense as lz4 in two thirds more
    /// time, 2.3 times its time to decompress.
    Balanced,
}

impl Level {
    /// All of them, fastest first.
    pub const ALL: [Level; 3] = [Level::Fast, Level::Dense, Level::Balanced];
}

/// The block does not fit the destination: keep it as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poor;

/// The bytes are no object of this codec. What the destination holds is undefined then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

impl fmt::Display for Poor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("does not compress well enough")
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("compressed data is corrupt")
    }
}

impl core::error::Error for Poor {}
impl core::error::Error for Corrupt {}

/// Compresses `block` into `object` and returns the bytes used. `object` may be shorter than the block: what compresses worse is
/// then given up. A [`Workspace`] takes a page, a [`BlockWorkspace`] what is longer, up to [`MAX_BLOCK`].
///
/// # Errors
/// [`Poor`] if the result does not fit, or the block is none for that workspace.
#[inline]
pub fn compress<const PAGES: usize, const HASHES: usize>(
    workspace: &mut Memory<PAGES, HASHES>,
    level: Level,
    block: &[u8],
    object: &mut [u8],
) -> Result<usize, Poor> {
    workspace.compress(level, block, object).ok_or(Poor)
}

/// Decompresses `object`, of any level, into the whole of `block`, as long as what was compressed, in a workspace for that length.
///
/// # Errors
/// [`Corrupt`]. Not every damage is noticed: who needs that keeps a checksum.
#[inline]
pub fn decompress<const PAGES: usize, const HASHES: usize>(
    workspace: &mut Memory<PAGES, HASHES>,
    object: &[u8],
    block: &mut [u8],
) -> Result<(), Corrupt> {
    workspace.decompress(object, block).ok_or(Corrupt)
}
