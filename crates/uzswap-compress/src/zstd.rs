//! What: zstd frames through the C library, on static contexts.
//! Invariants: contexts are made by `ZSTD_initStatic*` inside the workspace, so the library has no
//! allocator to call; parameters are set once and survive session resets.
//! Locking: none.
//! Context: any.

use crate::error::{CompressError, DecompressError};
use core::ffi::c_int;
use core::ptr::NonNull;
use zstd_sys::{
    ZSTD_CCtx, ZSTD_CCtx_reset, ZSTD_CCtx_setParameter, ZSTD_DCtx, ZSTD_DCtx_reset,
    ZSTD_DCtx_setParameter, ZSTD_ErrorCode, ZSTD_ResetDirective, ZSTD_cParameter, ZSTD_compress2,
    ZSTD_dParameter, ZSTD_decompressDCtx, ZSTD_estimateCCtxSize_usingCParams,
    ZSTD_estimateDCtxSize, ZSTD_format_e, ZSTD_getCParams, ZSTD_getErrorCode, ZSTD_initStaticCCtx,
    ZSTD_initStaticDCtx, ZSTD_isError,
};

/// Bytes for a compression context that takes any block up to `max_block` at `level`.
pub(crate) fn cctx_size(level: i32, max_block: usize) -> usize {
    // The library picks other parameters for smaller sources, some of which need more memory: take
    // the most that any source size up to the largest may ask for.
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
    for (parameter, value) in [
        (ZSTD_cParameter::ZSTD_c_compressionLevel, level),
        (ZSTD_cParameter::ZSTD_c_contentSizeFlag, 0),
        (ZSTD_cParameter::ZSTD_c_checksumFlag, 0),
        (ZSTD_cParameter::ZSTD_c_dictIDFlag, 0),
        // ZSTD_c_format
        (ZSTD_cParameter::ZSTD_c_experimentalParam2, magicless),
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
pub(crate) unsafe fn compress(
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

/// # Safety
/// `dctx` is from [`init_dctx`] and nobody else uses it.
#[inline]
pub(crate) unsafe fn decompress(
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
