//! pz: a codec for memory.
//!
//! *What*: compresses and decompresses one page of 4096 bytes, or a block of several pages. Memory
//! holds records: the same field repeats at the same distance. So pz is an LZ77 that codes a
//! repeated distance in no bytes and a multiple of eight in one, and the rest with static prefix
//! codes made for memory. `docs/pz-format.md` has the format.
//!
//! *Invariants*: nothing here allocates or panics, whatever the input. [`compress`] writes at most
//! what its destination holds; [`decompress`], given any bytes, writes nothing but its destination
//! and either fills it or fails.
//! *Locking*: none; `&mut` lets one thread at a time use a [`Workspace`].
//! *Context*: any, signal handlers included. Stack: less than 1 KiB.
//!
//! A block must not change during [`compress`]: copy memory that others may write first.
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
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

mod code;
mod expand;
mod format;
mod parse;
mod streams;
mod workspace;

pub use workspace::{BlockWorkspace, Memory, Workspace};

use core::fmt;

/// The length of a page, in bytes.
pub const PAGE: usize = 4096;
/// The longest block, in bytes.
pub const MAX_BLOCK: usize = 64 << 10;

/// How hard to try. One decoder reads the objects of all levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// A sixth denser than lz4 in the same time; 1.5 times its time to decompress.
    Fast,
    /// Literals are entropy-coded: 30 % denser than lz4 in 1.15 times its time; 2.2 times its time
    /// to decompress.
    Dense,
    /// Everything is entropy-coded, with a more thorough search: 60 % denser than lz4 in 1.65 times
    /// its time; 2.4 times its time to decompress.
    Balanced,
}

impl Level {
    /// All of them, fastest first.
    pub const ALL: [Level; 3] = [Level::Fast, Level::Dense, Level::Balanced];
}

/// The result does not fit the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poor;

/// The bytes are no object of this codec. The destination's contents are undefined then.
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

/// Compresses `block` into `object` and returns the bytes used; it fails if they do not fit. A
/// [`Workspace`] takes a page, a [`BlockWorkspace`] longer blocks, up to [`MAX_BLOCK`].
///
/// # Errors
/// [`Poor`] if the result does not fit, or the workspace does not take that length.
#[inline]
pub fn compress<const PAGES: usize, const HASHES: usize>(
    workspace: &mut Memory<PAGES, HASHES>,
    level: Level,
    block: &[u8],
    object: &mut [u8],
) -> Result<usize, Poor> {
    workspace.compress(level, block, object).ok_or(Poor)
}

/// Decompresses `object`, of any level, into `block`, which has the length that was compressed, in
/// a workspace for that length.
///
/// # Errors
/// [`Corrupt`]. Not all damage is detected: add a checksum where that matters.
#[inline]
pub fn decompress<const PAGES: usize, const HASHES: usize>(
    workspace: &mut Memory<PAGES, HASHES>,
    object: &[u8],
    block: &mut [u8],
) -> Result<(), Corrupt> {
    workspace.decompress(object, block).ok_or(Corrupt)
}
