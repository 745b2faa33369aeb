//! *What*: compressors, each in a mapping of its own, and the bits for charged decoding buffers.
//!
//! *Invariants*: an operation compresses with a codec, or in blocks, only when the memory to decode
//! the result is charged for every operation: whichever meets such an object can decode it.
//! *Locking*: none. *Context*: init; signal, worker.

use crate::account::Account;
use crate::page::{PAGE_SIZE, wide};
use uzswap_compress::{Codec, CodecId, Compressor};
use uzswap_sys::Errno;

/// The bit of `charged_parts` that stands for the buffers that blocks are put together in, and
/// batches.
pub(crate) const BLOCK_BUFFERS: u32 = 1;

/// Distance, in bits, from a codec's [`decoder_bit`] to the bit for the memory that decoding its
/// blocks takes in addition.
pub(crate) const BLOCKS: u32 = 16;

/// Bytes that an operation's compressor takes, whole pages.
pub(crate) fn compressor_len(codec: Codec, max_block: usize) -> usize {
    Compressor::required_size(codec, max_block).next_multiple_of(PAGE_SIZE)
}

/// A compressor in memory of its own, for which the caller has charged.
pub(crate) fn new_compressor(
    account: &Account,
    codec: Codec,
    max_block: usize,
) -> Result<Compressor, Errno> {
    let len = compressor_len(codec, max_block);
    let memory = account.memory().reserve(len)?;
    // SAFETY: a fresh mapping of that length, used by nobody else until `unmap_compressor`.
    unsafe { Compressor::init(memory, len, codec, max_block) }.map_err(|_| {
        // SAFETY: the mapping made just now, with nothing in it.
        let _ = unsafe { account.memory().release(memory.addr()) };
        Errno::EINVAL
    })
}

/// Gives back the memory of what [`new_compressor`] made. Returns its pages.
///
/// # Safety
/// The compressor is not used any more.
pub(crate) unsafe fn unmap_compressor(account: &Account, compressor: &Compressor) -> u64 {
    let memory = compressor.memory().addr().get();
    // SAFETY: the mapping that `new_compressor` made; by the caller's promise nobody uses what is
    // in it.
    match unsafe { account.memory().release(memory) } {
        Ok(len) => wide(len / PAGE_SIZE),
        // It stays, and stays charged.
        Err(_) => 0,
    }
}

/// The bit of `charged_parts` that stands for what decoding a codec's single pages takes.
pub(crate) const fn decoder_bit(id: CodecId) -> u32 {
    1 << id.as_u8()
}

/// An operation's compressor, or its denser one if that is wanted and there is one.
#[inline]
pub(crate) fn pick_compressor<'a>(
    compressor: &'a mut Compressor,
    denser: &'a mut Option<Compressor>,
    wanted: bool,
) -> &'a mut Compressor {
    match denser {
        Some(denser) if wanted => denser,
        _ => compressor,
    }
}
