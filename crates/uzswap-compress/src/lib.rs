//! Page codecs on memory that the caller owns.
//!
//! What: compress and decompress blocks of 4 KiB to 64 KiB with lz4, zstd or deflate, and recognise
//! blocks that repeat one machine word.
//!
//! Invariants: after [`Workspace::init`] nothing here allocates, whatever the input; a compressor
//! writes at most what its destination holds, also while other threads change the source;
//! a decompressor given any bytes at all writes exactly its destination or fails.
//!
//! Locking: none. A [`Workspace`] is used by one thread at a time, its owner sees to that.
//!
//! Context: any, signal handlers included (stack use: see docs/notes/codecs.md).
#![cfg_attr(not(test), no_std)]

pub mod codec;
mod deflate;
mod lz4;
mod pz;
pub mod same_filled;
mod stable;
pub mod workspace;
mod zstd;

pub use codec::{Codec, CodecId, ParseCodecError};
pub use same_filled::{fill, same_filled};
pub use workspace::{CompressError, DecompressError, InitError, Workspace};

/// The smallest block that may be compressed, in bytes: one page.
pub const MIN_BLOCK: usize = 4096;
/// The largest, in bytes.
pub const MAX_BLOCK: usize = 65536;
/// Alignment that [`Workspace::init`] asks of its memory, in bytes.
pub const WORKSPACE_ALIGN: usize = 64;
