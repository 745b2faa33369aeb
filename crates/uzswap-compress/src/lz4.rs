//! *What*: LZ4 blocks, written and read by our own code in the public block format.
//! *Invariants*: any LZ4 decoder reads what [`encode`] writes; [`decode`] reads what any LZ4
//! encoder writes. Both stay inside their buffers, whatever the bytes.
//! *Locking*: none. *Context*: any.
//!
//! Why not the C library: measured on dumps of real programs (docs/notes/codecs.md), it is 7-20 %
//! slower to compress, and 30 times slower to decompress a run of zeros that starts behind
//! incompressible bytes; and its encoder may read outside a source that changes (see
//! [`crate::stable`]).

mod decode;
mod encode;

pub(crate) use encode::Table;

use crate::error::{CompressError, DecompressError};

/// Compresses `src`, at most 64 KiB, into `dst`. May give up within 16 bytes of the capacity.
#[inline]
pub(crate) fn compress(
    table: &mut Table,
    src: &[u8],
    dst: &mut [u8],
) -> Result<usize, CompressError> {
    encode::encode(table, src, dst).ok_or(CompressError::Poor)
}

/// Decompresses the `first` bytes of `src`, a block of `dst.len()` bytes, and what comes with them.
#[inline]
pub(crate) fn decompress(src: &[u8], first: usize, dst: &mut [u8]) -> Result<(), DecompressError> {
    // Separate code, so that decoding everything does not pay for the comparison with `first`.
    let decoded = if first < dst.len() {
        decode::decode::<true>(src, first, dst)
    } else {
        decode::decode::<false>(src, first, dst)
    };
    decoded.then_some(()).ok_or(DecompressError::Corrupt)
}

/// Copies 8 bytes.
///
/// # Safety
/// 8 bytes are readable and writable; the two may overlap.
#[inline(always)]
unsafe fn copy8(to: *mut u8, from: *const u8) {
    // SAFETY: the caller's promise.
    unsafe {
        to.cast::<u64>()
            .write_unaligned(from.cast::<u64>().read_unaligned())
    };
}

/// The shortest match.
const MIN_MATCH: usize = 4;
/// The last bytes of a block are always literals.
const LAST_LITERALS: usize = 5;
/// No match starts nearer to the end than this.
const MATCH_START_LIMIT: usize = 12;
/// A length nibble with more bytes following.
const LONG: usize = 15;
