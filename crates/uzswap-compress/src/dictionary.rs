//! What: a dictionary made ready for zstd: what pages are compressed against.
//!
//! To decompress its bytes are enough. To compress they are looked up by hash, in tables that are made once, a [`Digest`], and
//! only read by all who compress. The tables are kept small: with 2^12 places rather than the library's 2^14 a page's object
//! is 0.2 % larger, and they take 36 KiB and not 83.
//! Invariants: all pointers lead into the memory that it was made in, and to the dictionary.
//! Locking: none; it does not change.
//! Context: any, with signals blocked.

use core::ptr::NonNull;

use crate::error::InitError;
use crate::trainer::DICTIONARY_LEN;
use crate::{Codec, MIN_BLOCK, check_memory, zstd};

/// A dictionary as zstd compresses by it, at one level. Freeing one is giving its memory back; there is nothing to drop.
#[derive(Debug)]
pub struct Digest {
    pub(crate) cdict: NonNull<zstd_sys::ZSTD_CDict>,
    codec: Codec,
}

// SAFETY: the library only reads it once it is made.
unsafe impl Send for Digest {}
// SAFETY: as above.
unsafe impl Sync for Digest {}

impl Digest {
    /// Bytes that [`Digest::init`] needs; `None`: the codec uses no dictionaries.
    #[must_use]
    pub fn required_size(codec: Codec) -> Option<usize> {
        match codec {
            Codec::Zstd { level } => Some(zstd::digest_size(level, DICTIONARY_LEN)),
            _ => None,
        }
    }

    /// Makes a digest of `dictionary` in `len` bytes at `memory`, for single pages. Allocates nothing.
    ///
    /// # Errors
    /// See [`InitError`]; none of them is transient.
    ///
    /// # Safety
    /// `memory` is readable and writable for `len` bytes and used by nobody else; it and `dictionary` stay where they are, the latter
    /// unchanged, as long as the digest is used.
    pub unsafe fn init(
        memory: *mut u8,
        len: usize,
        codec: Codec,
        dictionary: &[u8; DICTIONARY_LEN],
    ) -> Result<Digest, InitError> {
        let Codec::Zstd { level } = codec else {
            return Err(InitError::BadLevel);
        };
        let needed = zstd::digest_size(level, DICTIONARY_LEN);
        let memory = check_memory(memory, len, needed)?;
        // SAFETY: the caller's promise.
        let cdict = unsafe { zstd::init_digest(memory, len, level, dictionary) };
        let cdict = cdict.ok_or(InitError::BadLevel)?;
        Ok(Digest { cdict, codec })
    }

    /// Whether `codec` compresses `len` bytes by it.
    #[must_use]
    pub fn serves(&self, codec: Codec, len: usize) -> bool {
        codec == self.codec && len <= MIN_BLOCK
    }
}
