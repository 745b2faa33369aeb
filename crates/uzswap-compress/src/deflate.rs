//! *What*: raw deflate streams by libdeflate, in the caller's memory.
//! *Invariants*: libdeflate allocates once, when a context is made, through the function we pass.
//! Contexts are never freed.
//! *Locking*: the allocation function gets no context argument, so the memory on offer is in a
//! static, [`OFFER`], under a spin lock that is held while a context is made: microseconds.
//! *Context*: making contexts: init, signals blocked. Using them: any.

use crate::error::{CompressError, DecompressError};
use core::ffi::{c_int, c_uint, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

#[repr(C)]
pub(crate) struct Compressor {
    opaque: [u8; 0],
}

#[repr(C)]
pub(crate) struct Decompressor {
    opaque: [u8; 0],
}

#[repr(C)]
struct Options {
    sizeof_options: usize,
    malloc_func: Option<unsafe extern "C" fn(usize) -> *mut c_void>,
    free_func: Option<unsafe extern "C" fn(*mut c_void)>,
}

unsafe extern "C" {
    fn libdeflate_alloc_compressor_ex(level: c_int, options: *const Options) -> *mut Compressor;
    fn libdeflate_alloc_decompressor_ex(options: *const Options) -> *mut Decompressor;
    fn libdeflate_deflate_compress(
        compressor: *mut Compressor,
        src: *const c_void,
        src_len: usize,
        dst: *mut c_void,
        dst_capacity: usize,
    ) -> usize;
    fn libdeflate_deflate_decompress(
        decompressor: *mut Decompressor,
        src: *const c_void,
        src_len: usize,
        dst: *mut c_void,
        dst_len: usize,
        written: *mut usize,
    ) -> c_uint;
}

/// What `malloc_func` returns: once, the memory of the context being made.
struct Offer {
    locked: AtomicBool,
    memory: AtomicPtr<u8>,
    len: AtomicUsize,
    /// What was asked for, also if there was not enough.
    asked: AtomicUsize,
}

static OFFER: Offer = Offer {
    locked: AtomicBool::new(false),
    memory: AtomicPtr::new(ptr::null_mut()),
    len: AtomicUsize::new(0),
    asked: AtomicUsize::new(0),
};

unsafe extern "C" fn take_offer(len: usize) -> *mut c_void {
    OFFER.asked.store(len, Ordering::Relaxed);
    let memory = OFFER.memory.swap(ptr::null_mut(), Ordering::Relaxed);
    if len <= OFFER.len.load(Ordering::Relaxed) {
        memory.cast()
    } else {
        ptr::null_mut()
    }
}

unsafe extern "C" fn keep(_: *mut c_void) {}

/// Runs `make` with `memory` on offer; returns the context and the bytes that it asked for.
fn with_offer<T>(
    memory: *mut u8,
    len: usize,
    make: impl FnOnce(&Options) -> *mut T,
) -> (Option<NonNull<T>>, usize) {
    let options = Options {
        sizeof_options: size_of::<Options>(),
        malloc_func: Some(take_offer),
        free_func: Some(keep),
    };
    // Acquire pairs with the release below: one context at a time.
    while OFFER.locked.swap(true, Ordering::Acquire) {
        core::hint::spin_loop();
    }
    OFFER.memory.store(memory, Ordering::Relaxed);
    OFFER.len.store(len, Ordering::Relaxed);
    OFFER.asked.store(0, Ordering::Relaxed);
    let made = make(&options);
    let asked = OFFER.asked.load(Ordering::Relaxed);
    OFFER.locked.store(false, Ordering::Release);
    (NonNull::new(made), asked)
}

/// Bytes for a compressor: what it asks for when there is nothing on offer.
pub(crate) fn compressor_size(level: i32) -> usize {
    // SAFETY: without memory the library returns null and keeps nothing.
    with_offer(ptr::null_mut(), 0, |options| unsafe {
        libdeflate_alloc_compressor_ex(level, options)
    })
    .1
}

/// Bytes for a decompressor.
pub(crate) fn decompressor_size() -> usize {
    // SAFETY: as above.
    with_offer(ptr::null_mut(), 0, |options| unsafe {
        libdeflate_alloc_decompressor_ex(options)
    })
    .1
}

/// # Safety
/// `memory` is `len` writable bytes, aligned to 16, and nobody else's while the context is used.
pub(crate) unsafe fn init_compressor(
    memory: *mut u8,
    len: usize,
    level: i32,
) -> Option<NonNull<Compressor>> {
    // SAFETY: the caller's promise.
    with_offer(memory, len, |options| unsafe {
        libdeflate_alloc_compressor_ex(level, options)
    })
    .0
}

/// # Safety
/// As [`init_compressor`].
pub(crate) unsafe fn init_decompressor(
    memory: *mut u8,
    len: usize,
) -> Option<NonNull<Decompressor>> {
    // SAFETY: the caller's promise.
    with_offer(memory, len, |options| unsafe {
        libdeflate_alloc_decompressor_ex(options)
    })
    .0
}

/// # Safety
/// `compressor` is from [`init_compressor`] and nobody else uses it.
#[inline]
pub(crate) unsafe fn compress(
    compressor: NonNull<Compressor>,
    src: &[u8],
    dst: &mut [u8],
) -> Result<usize, CompressError> {
    // SAFETY: the lengths are those of the slices; the context is live.
    let written = unsafe {
        libdeflate_deflate_compress(
            compressor.as_ptr(),
            src.as_ptr().cast(),
            src.len(),
            dst.as_mut_ptr().cast(),
            dst.len(),
        )
    };
    if written == 0 {
        Err(CompressError::Poor)
    } else {
        Ok(written)
    }
}

/// # Safety
/// `decompressor` is from [`init_decompressor`] and nobody else uses it.
#[inline]
pub(crate) unsafe fn decompress(
    decompressor: NonNull<Decompressor>,
    src: &[u8],
    dst: &mut [u8],
) -> Result<(), DecompressError> {
    // SAFETY: the lengths are those of the slices; without `written` the library insists on exactly
    // `dst.len()` bytes.
    let result = unsafe {
        libdeflate_deflate_decompress(
            decompressor.as_ptr(),
            src.as_ptr().cast(),
            src.len(),
            dst.as_mut_ptr().cast(),
            dst.len(),
            ptr::null_mut(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(DecompressError::Corrupt)
    }
}
