//! *What*: why compressing, decompressing or init failed.
//! *Invariants*: none. *Locking*: none. *Context*: any.

use core::fmt;

/// Why a block was not compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressError {
    /// The result does not fit the destination: keep the page as it is
    /// (`reject_compress_poor`).
    Poor,
    /// The codec failed, or the source's length is not one it takes (`reject_compress_fail`).
    Failed,
}

/// Why an object was not decompressed. What the destination holds is undefined then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecompressError {
    /// The bytes are no object of this codec, or the object's length is not the destination's.
    Corrupt,
}

/// Why a compressor or a decompressor could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitError {
    /// The memory is smaller than `required_size` says.
    TooSmall {
        /// Bytes needed.
        needed: usize,
    },
    /// The memory is not aligned to [`WORKSPACE_ALIGN`](crate::WORKSPACE_ALIGN).
    Misaligned,
    /// The block size is not a power of two from 4 KiB to 64 KiB.
    BadBlock,
    /// The library refused the level.
    BadLevel,
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall { needed } => write!(f, "memory too small: {needed} bytes needed"),
            Self::Misaligned => f.write_str("memory not aligned to 64 bytes"),
            Self::BadBlock => f.write_str("block size must be a power of two from 4 to 64 KiB"),
            Self::BadLevel => f.write_str("compression level refused"),
        }
    }
}

impl core::error::Error for InitError {}
