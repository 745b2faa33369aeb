//! *What*: a [`Compressor`] and a [`Decompressor`] in one piece of memory.
//! *Invariants*, *Locking*, *Context*: those of its two halves.

use crate::{Codec, Compressor, Decompressor, InitError, align_up, check_block};

/// A compressor, and a decompressor of every codec.
#[derive(Debug)]
pub struct Workspace {
    /// The compressor.
    pub compressor: Compressor,
    /// The decompressor.
    pub decompressor: Decompressor,
}

impl Workspace {
    /// Bytes that [`Workspace::init`] needs for blocks up to `max_block` bytes.
    #[must_use]
    pub fn required_size(codec: Codec, max_block: usize) -> usize {
        align_up(Compressor::required_size(codec, max_block)) + Decompressor::required_size()
    }

    /// Makes a workspace in `len` bytes at `memory`: see [`Compressor::init`].
    ///
    /// # Errors
    /// See [`InitError`]; none of them is transient.
    ///
    /// # Safety
    /// As [`Compressor::init`].
    pub unsafe fn init(
        memory: *mut u8,
        len: usize,
        codec: Codec,
        max_block: usize,
    ) -> Result<Workspace, InitError> {
        check_block(max_block)?;
        let needed = Self::required_size(codec, max_block);
        if len < needed {
            return Err(InitError::TooSmall { needed });
        }
        let first = needed - Decompressor::required_size();
        // SAFETY: the caller's promise; the halves do not overlap and lie within `len`.
        unsafe {
            Ok(Workspace {
                compressor: Compressor::init(memory, first, codec, max_block)?,
                decompressor: Decompressor::init(memory.add(first), needed - first)?,
            })
        }
    }
}
