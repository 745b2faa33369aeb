//! Page codecs on memory that the caller owns.
//!
//! What: compress and decompress blocks of 4 KiB to 64 KiB with lz4, zstd, deflate or our own pz, and recognise blocks
//! that repeat one machine word.
//!
//! Invariants: nothing here allocates, whatever the input; a compressor
//! writes at most what its destination holds, also while other threads change the source;
//! a decompressor given any bytes at all writes exactly its destination or fails.
//!
//! Locking: none. A [`Compressor`], a [`Decompressor`] or both, a [`Workspace`], is used by one thread at a time, its owner sees to that.
//!
//! Context: any, signal handlers included (stack use: see docs/notes/codecs.md).
#![cfg_attr(not(test), no_std)]

pub mod codec;
pub mod compressor;
pub mod decompressor;
mod deflate;
pub mod error;
mod filter;
mod lz4;
mod pz;
pub mod same_filled;
mod stable;
pub mod workspace;
mod zstd;

use core::ptr::NonNull;

pub use codec::{Codec, CodecId, ParseCodecError};
pub use compressor::Compressor;
pub use decompressor::Decompressor;
pub use error::{CompressError, DecompressError, InitError};
pub use same_filled::{fill, same_filled};
pub use workspace::Workspace;

/// The smallest block that may be compressed, in bytes: one page.
pub const MIN_BLOCK: usize = 4096;
/// The largest, in bytes.
pub const MAX_BLOCK: usize = 65536;
/// Alignment that compressors and decompressors ask of their memory, in bytes.
pub const WORKSPACE_ALIGN: usize = 64;

const fn align_up(len: usize) -> usize {
    (len + WORKSPACE_ALIGN - 1) & !(WORKSPACE_ALIGN - 1)
}

/// Whether a compressor can be made for blocks up to this size.
fn check_block(max_block: usize) -> Result<(), InitError> {
    if max_block.is_power_of_two() && (MIN_BLOCK..=MAX_BLOCK).contains(&max_block) {
        Ok(())
    } else {
        Err(InitError::BadBlock)
    }
}

/// Whether `len` bytes at `memory` do for something that needs `needed` of them.
fn check_memory(memory: *mut u8, len: usize, needed: usize) -> Result<NonNull<u8>, InitError> {
    if len < needed {
        return Err(InitError::TooSmall { needed });
    }
    NonNull::new(memory)
        .filter(|memory| memory.addr().get().is_multiple_of(WORKSPACE_ALIGN))
        .ok_or(InitError::Misaligned)
}
