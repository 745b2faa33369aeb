//! Page codecs on memory that the caller owns.
//!
//! *What*: compresses and decompresses blocks of 4 KiB to 64 KiB with lz4, zstd, deflate or our own
//! pz, and recognizes blocks that repeat one machine word.
//!
//! *Invariants*: nothing here allocates, whatever the input. A compressor writes at most what its
//! destination holds, even if other threads change the source. A decompressor, given any bytes,
//! fills exactly its destination or fails.
//! *Locking*: none. The owner of a [`Compressor`], [`Decompressor`] or [`Workspace`] lets one
//! thread at a time use it.
//! *Context*: any, signal handlers included (stack use: see docs/notes/codecs.md).
#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable
    )
)]

mod codec;
mod compressor;
mod decompressor;
mod deflate;
mod error;
mod filter;
mod lz4;
mod pz;
pub mod same_filled;
mod stable;
mod workspace;
mod zstd;

use core::ptr::NonNull;
use uzswap_pz::PAGE;

pub use codec::{Codec, CodecId, ParseCodecError};
pub use compressor::Compressor;
pub use decompressor::Decompressor;
pub use error::{CompressError, DecompressError, InitError};
pub use same_filled::{fill, same_filled};
pub use workspace::Workspace;

/// The smallest block, in bytes: one page.
pub const MIN_BLOCK: usize = PAGE;
/// The largest block, in bytes.
pub const MAX_BLOCK: usize = uzswap_pz::MAX_BLOCK;
/// Alignment of the memory of compressors and decompressors, in bytes.
pub const WORKSPACE_ALIGN: usize = 64;

const fn align_up(len: usize) -> usize {
    (len + WORKSPACE_ALIGN - 1) & !(WORKSPACE_ALIGN - 1)
}

/// Checks the size of a compressor's largest block.
fn check_block(max_block: usize) -> Result<(), InitError> {
    if max_block.is_power_of_two() && (MIN_BLOCK..=MAX_BLOCK).contains(&max_block) {
        Ok(())
    } else {
        Err(InitError::BadBlock)
    }
}

/// Checks that `memory` is aligned and has the `needed` bytes.
fn check_memory(memory: *mut u8, len: usize, needed: usize) -> Result<NonNull<u8>, InitError> {
    if len < needed {
        return Err(InitError::TooSmall { needed });
    }
    NonNull::new(memory)
        .filter(|memory| memory.addr().get().is_multiple_of(WORKSPACE_ALIGN))
        .ok_or(InitError::Misaligned)
}
