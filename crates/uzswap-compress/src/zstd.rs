//! *What*: zstd frames by the C library, on static contexts.
//! *Invariants*: contexts are made by `ZSTD_initStatic*` in memory of the caller's, so the library
//! has no allocator to call. Parameters are set once and survive session resets.
//! *Locking*: none. *Context*: any.

use crate::error::{CompressError, DecompressError};
use crate::filter::{self, Filtered, Scratch};
use core::ffi::c_int;
use core::ops::RangeInclusive;
use core::ptr::NonNull;
use zstd_sys::{
    ZSTD_CCtx, ZSTD_CCtx_reset, ZSTD_CCtx_setParameter, ZSTD_DCtx, ZSTD_DCtx_reset,
    ZSTD_DCtx_setParameter, ZSTD_ErrorCode, ZSTD_ParamSwitch_e, ZSTD_ResetDirective,
    ZSTD_cParameter, ZSTD_compress2, ZSTD_dParameter, ZSTD_decompressDCtx,
    ZSTD_estimateCCtxSize_usingCParams, ZSTD_estimateDCtxSize, ZSTD_format_e, ZSTD_getCParams,
    ZSTD_getErrorCode, ZSTD_initStaticCCtx, ZSTD_initStaticDCtx, ZSTD_isError,
};

/// The smallest block that is filtered, in bytes: for smaller ones the choice takes too long.
const MIN_FILTERED: usize = 32 << 10;
/// Levels that search faster by hash chains than by rows, the library's choice for blocks of more
/// than 16 KiB: they try few candidates, and row tables take long to clear.
const WITHOUT_ROWS: RangeInclusive<i32> = 5..=8;

/// Bytes that a compressor needs to filter blocks up to `max_block`: 0 at levels below 1, which do
/// not filter, and for small blocks.
pub(crate) const fn filter_room(level: i32, max_block: usize) -> usize {
    if level > 0 && max_block >= MIN_FILTERED {
        max_block
    } else {
        0
    }
}

/// Bytes for a compression context that takes any block up to `max_block` at `level`.
pub(crate) fn cctx_size(level: i32, max_block: usize) -> usize {
    // The library picks other parameters for smaller sources, some of which need more memory: the
    // maximum over all block sizes.
    let mut size = 0;
    let mut block = crate::MIN_BLOCK;
    loop {
        // SAFETY: pure functions of their arguments.
        size = size.max(unsafe {
            ZSTD_estimateCCtxSize_usingCParams(ZSTD_getCParams(level, block as u64, 0))
        });
        if block >= max_block {
            return size;
        }
        block *= 2;
    }
}

/// Bytes for a decompression context.
pub(crate) fn dctx_size() -> usize {
    // SAFETY: a pure function.
    unsafe { ZSTD_estimateDCtxSize() }
}

fn is_error(code: usize) -> bool {
    // SAFETY: a pure function.
    unsafe { ZSTD_isError(code) != 0 }
}

/// # Safety
/// `memory` is `len` writable bytes, aligned to 8, and nobody else's while the context is used.
pub(crate) unsafe fn init_cctx(
    memory: *mut u8,
    len: usize,
    level: i32,
) -> Option<NonNull<ZSTD_CCtx>> {
    // SAFETY: the caller's promise; null if the size is too small.
    let cctx = NonNull::new(unsafe { ZSTD_initStaticCCtx(memory.cast(), len) })?;
    let magicless = ZSTD_format_e::ZSTD_f_zstd1_magicless as c_int;
    let rows = if WITHOUT_ROWS.contains(&level) {
        ZSTD_ParamSwitch_e::ZSTD_ps_disable
    } else {
        ZSTD_ParamSwitch_e::ZSTD_ps_auto
    };
    for (parameter, value) in [
        (ZSTD_cParameter::ZSTD_c_compressionLevel, level),
        (ZSTD_cParameter::ZSTD_c_contentSizeFlag, 0),
        (ZSTD_cParameter::ZSTD_c_checksumFlag, 0),
        (ZSTD_cParameter::ZSTD_c_dictIDFlag, 0),
        // ZSTD_c_format
        (ZSTD_cParameter::ZSTD_c_experimentalParam2, magicless),
        // ZSTD_c_useRowMatchFinder
        (ZSTD_cParameter::ZSTD_c_experimentalParam14, rows as c_int),
    ] {
        // SAFETY: a live context.
        if is_error(unsafe { ZSTD_CCtx_setParameter(cctx.as_ptr(), parameter, value) }) {
            return None;
        }
    }
    Some(cctx)
}

/// # Safety
/// As [`init_cctx`].
pub(crate) unsafe fn init_dctx(memory: *mut u8, len: usize) -> Option<NonNull<ZSTD_DCtx>> {
    // SAFETY: the caller's promise; null if the size is too small.
    let dctx = NonNull::new(unsafe { ZSTD_initStaticDCtx(memory.cast(), len) })?;
    let magicless = ZSTD_format_e::ZSTD_f_zstd1_magicless as c_int;
    // ZSTD_d_format
    let parameter = ZSTD_dParameter::ZSTD_d_experimentalParam1;
    // SAFETY: a live context.
    let set = unsafe { ZSTD_DCtx_setParameter(dctx.as_ptr(), parameter, magicless) };
    (!is_error(set)).then_some(dctx)
}

/// # Safety
/// `cctx` is from [`init_cctx`] and nobody else uses it.
#[inline]
unsafe fn compress(
    cctx: NonNull<ZSTD_CCtx>,
    src: &[u8],
    dst: &mut [u8],
) -> Result<usize, CompressError> {
    // SAFETY: the lengths are those of the slices; the context is live.
    let written = unsafe {
        ZSTD_compress2(
            cctx.as_ptr(),
            dst.as_mut_ptr().cast(),
            dst.len(),
            src.as_ptr().cast(),
            src.len(),
        )
    };
    if !is_error(written) {
        return Ok(written);
    }
    // A session left half-way would spoil the next block.
    let session = ZSTD_ResetDirective::ZSTD_reset_session_only;
    // SAFETY: a live context.
    let reset = unsafe { ZSTD_CCtx_reset(cctx.as_ptr(), session) };
    // SAFETY: a pure function.
    let code = unsafe { ZSTD_getErrorCode(written) };
    if code == ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall && !is_error(reset) {
        Err(CompressError::Poor)
    } else {
        Err(CompressError::Failed)
    }
}

/// Filtered blocks, by a context.
struct Blocks(NonNull<ZSTD_CCtx>);

impl Filtered for Blocks {
    const MIN_LEN: usize = MIN_FILTERED;
    const SAMPLE: usize = 2048;
    const PART: usize = 512;
    const MIN_GAIN_DIVISOR: usize = 50;

    fn size_of(&mut self, sample: &[u8], scratch: &mut [u8]) -> usize {
        self.compress(sample, scratch).unwrap_or(sample.len())
    }

    fn compress(&mut self, block: &[u8], dst: &mut [u8]) -> Result<usize, CompressError> {
        // SAFETY: by the promise to `compress_block`, which alone makes one of these.
        unsafe { compress(self.0, block, dst) }
    }
}

/// Compresses a block, filtered if that makes a sample smaller. `room` has [`filter_room`] bytes.
///
/// # Safety
/// As for [`compress`].
pub(crate) unsafe fn compress_block(
    cctx: NonNull<ZSTD_CCtx>,
    room: &mut [u8],
    src: &[u8],
    dst: &mut [u8],
) -> Result<usize, CompressError> {
    if src.len() <= crate::MIN_BLOCK {
        // SAFETY: the caller's promise.
        return unsafe { compress(cctx, src, dst) };
    }
    filter::compress(&mut Blocks(cctx), room, src, dst)
}

/// Decompresses a block, and undoes its filter in the `first` bytes.
///
/// # Safety
/// As for [`decompress`].
#[inline]
pub(crate) unsafe fn decompress_block(
    dctx: NonNull<ZSTD_DCtx>,
    scratch: &mut Scratch,
    src: &[u8],
    first: usize,
    dst: &mut [u8],
) -> Result<(), DecompressError> {
    // SAFETY: the caller's promise.
    let decode = |src: &[u8], dst: &mut [u8]| unsafe { decompress(dctx, src, dst) };
    if dst.len() <= crate::MIN_BLOCK {
        return decode(src, dst);
    }
    filter::decompress(decode, scratch, src, first, dst)
}

/// # Safety
/// `dctx` is from [`init_dctx`] and nobody else uses it.
#[inline]
unsafe fn decompress(
    dctx: NonNull<ZSTD_DCtx>,
    src: &[u8],
    dst: &mut [u8],
) -> Result<(), DecompressError> {
    // SAFETY: the lengths are those of the slices; the context is live.
    let written = unsafe {
        ZSTD_decompressDCtx(
            dctx.as_ptr(),
            dst.as_mut_ptr().cast(),
            dst.len(),
            src.as_ptr().cast(),
            src.len(),
        )
    };
    if written == dst.len() {
        return Ok(());
    }
    let session = ZSTD_ResetDirective::ZSTD_reset_session_only;
    // SAFETY: a live context.
    unsafe { ZSTD_DCtx_reset(dctx.as_ptr(), session) };
    Err(DecompressError::Corrupt)
}
