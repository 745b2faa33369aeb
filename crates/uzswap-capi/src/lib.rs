//! The library of pools for C and C++. What each function does says `include/uzswap.h`, which is
//! written by hand (cbindgen has a licence that the project does not take); a test compares names,
//! sizes and values.
//!
//! *Invariants*: a `uzswap_pool` is a boxed [`Pool`], a `uzswap_pin` a boxed pin. Nothing unwinds:
//! a panic ends the process. *Locking*: none. *Context*: threads of the host.
#![allow(non_camel_case_types, reason = "the names of C")]

mod memory;
mod params;
mod result;

use std::ffi::{c_char, c_void};

use uzswap_pools::{Pinned, Pool, faults};

use params::uzswap_params;
use result::{failed, text, uzswap_result};

/// A pool.
pub struct uzswap_pool(Pool);

/// Memory that is kept in RAM.
pub struct uzswap_pin(#[expect(dead_code, reason = "held")] Pinned<'static>);

/// What a pool has.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uzswap_stats {
    size: usize,
    limit: u64,
    used: u64,
    peak: u64,
    mapped: u64,
    resident: u64,
    stored: u64,
    compressed: u64,
    swapped: u64,
    metadata: u64,
    faults: u64,
    refaults: u64,
}

/// The pool behind a handle; `None`: the handle is null.
///
/// # Safety
/// The handle is null or of a pool that lives.
unsafe fn pool_of<'a>(pool: *mut uzswap_pool) -> Option<&'a Pool> {
    // SAFETY: the caller's promise.
    unsafe { pool.as_ref() }.map(|pool| &pool.0)
}

/// # Safety
/// `params` and `pool` are valid, as the header says; strings in it end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_pool_create(
    params: *const uzswap_params,
    pool: *mut *mut uzswap_pool,
) -> uzswap_result {
    if params.is_null() || pool.is_null() {
        return result::invalid("a pointer is null");
    }
    // SAFETY: the caller's promise.
    let builder = match unsafe { params::builder(params) } {
        Ok(builder) => builder,
        Err(what) => return result::invalid(what),
    };
    match builder.build() {
        Ok(built) => {
            // SAFETY: the caller's promise.
            unsafe { pool.write(Box::into_raw(Box::new(uzswap_pool(built)))) };
            uzswap_result::UZSWAP_OK
        }
        Err(error) => failed(result::of_build(&error), &error),
    }
}

/// # Safety
/// A pool of `uzswap_pool_create`, or null; nothing of it is used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_pool_destroy(pool: *mut uzswap_pool) {
    if !pool.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(pool) });
    }
}

/// Does something to memory of a pool.
///
/// # Safety
/// The pool lives, and the memory is valid.
unsafe fn hint(
    pool: *mut uzswap_pool,
    memory: *const c_void,
    size: usize,
    what: impl FnOnce(&Pool, &'static [u8]) -> Result<(), uzswap_pools::PoolError>,
) -> uzswap_result {
    // SAFETY: the caller's promise.
    let Some(pool) = (unsafe { pool_of(pool) }) else {
        return result::invalid("the pool is null");
    };
    if memory.is_null() || size > isize::MAX.unsigned_abs() {
        return result::invalid("the memory is null, or its size makes no sense");
    }
    // SAFETY: the caller's promise; its bytes are not read here.
    let memory = unsafe { std::slice::from_raw_parts(memory.cast::<u8>(), size) };
    match what(pool, memory) {
        Ok(()) => uzswap_result::UZSWAP_OK,
        Err(error) => failed(result::of_pool(&error), &error),
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_cold(
    pool: *mut uzswap_pool,
    memory: *const c_void,
    size: usize,
) -> uzswap_result {
    // SAFETY: the caller's promise.
    unsafe { hint(pool, memory, size, |pool, memory| pool.cold(memory)) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_evict(
    pool: *mut uzswap_pool,
    memory: *const c_void,
    size: usize,
) -> uzswap_result {
    // SAFETY: the caller's promise.
    unsafe { hint(pool, memory, size, |pool, memory| pool.evict(memory)) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_prefetch(
    pool: *mut uzswap_pool,
    memory: *const c_void,
    size: usize,
) -> uzswap_result {
    // SAFETY: the caller's promise.
    unsafe { hint(pool, memory, size, |pool, memory| pool.prefetch(memory)) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_pin_memory(
    pool: *mut uzswap_pool,
    memory: *const c_void,
    size: usize,
    pin: *mut *mut uzswap_pin,
) -> uzswap_result {
    if pin.is_null() {
        return result::invalid("a pointer is null");
    }
    let keep = |pool: &Pool, memory| {
        let pinned = Box::new(uzswap_pin(pool.pin(memory)?));
        // SAFETY: the caller's promise.
        unsafe { pin.write(Box::into_raw(pinned)) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { hint(pool, memory, size, keep) }
}

/// # Safety
/// A pin of `uzswap_pin_memory`, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_unpin(pin: *mut uzswap_pin) {
    if !pin.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(pin) });
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_limit(pool: *mut uzswap_pool) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { pool_of(pool) }.map_or(0, Pool::limit)
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_set_limit(pool: *mut uzswap_pool, limit: u64) -> uzswap_result {
    // SAFETY: the caller's promise.
    let Some(pool) = (unsafe { pool_of(pool) }) else {
        return result::invalid("the pool is null");
    };
    match pool.set_limit(limit) {
        Ok(()) => uzswap_result::UZSWAP_OK,
        Err(error) => failed(result::of_limit(&error), &error),
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_reclaim(pool: *mut uzswap_pool, size: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { pool_of(pool) }.map_or(0, |pool| pool.reclaim(size))
}

/// # Safety
/// As the header says: `stats` has as many bytes as its size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_get_stats(
    pool: *mut uzswap_pool,
    stats: *mut uzswap_stats,
) -> uzswap_result {
    // SAFETY: the caller's promise.
    let Some(pool) = (unsafe { pool_of(pool) }).filter(|_| !stats.is_null()) else {
        return result::invalid("a pointer is null");
    };
    let now = pool.stats();
    // SAFETY: the size is the first field of every version.
    let size = unsafe { stats.cast::<usize>().read() }.min(size_of::<uzswap_stats>());
    let all = uzswap_stats {
        size,
        limit: now.limit,
        used: now.used,
        peak: now.peak,
        mapped: now.mapped,
        resident: now.resident,
        stored: now.stored,
        compressed: now.compressed,
        swapped: now.swapped,
        metadata: now.metadata,
        faults: now.faults,
        refaults: now.refaults,
    };
    if size < size_of::<usize>() {
        return result::invalid("the size of the statistics is not set");
    }
    // SAFETY: the caller's promise; no more than the structure has here.
    unsafe {
        let from = (&raw const all).cast::<u8>();
        stats.cast::<u8>().copy_from_nonoverlapping(from, size);
    }
    uzswap_result::UZSWAP_OK
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_contains(pool: *mut uzswap_pool, memory: *const c_void) -> bool {
    // SAFETY: the caller's promise.
    unsafe { pool_of(pool) }.is_some_and(|pool| pool.contains(memory))
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_fault_mode_of(pool: *mut uzswap_pool) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { pool_of(pool) }.map_or(0, |pool| params::number_of(pool.fault_mode()))
}

/// Whether faults arrive.
#[unsafe(no_mangle)]
pub extern "C" fn uzswap_check_handlers() -> uzswap_result {
    match faults::check() {
        Ok(()) => uzswap_result::UZSWAP_OK,
        Err(error) => failed(uzswap_result::UZSWAP_REPLACED, &error),
    }
}

/// Puts the library's handlers first again.
#[unsafe(no_mangle)]
pub extern "C" fn uzswap_reinstall_handlers() -> uzswap_result {
    match faults::reinstall() {
        Ok(()) => uzswap_result::UZSWAP_OK,
        Err(error) => failed(uzswap_result::UZSWAP_REFUSED, &error),
    }
}

/// Takes the library's signals out of this thread's mask.
#[unsafe(no_mangle)]
pub extern "C" fn uzswap_unblock_signals() {
    faults::unblock();
}

/// Whether the process runs under `uzswap run`.
#[unsafe(no_mangle)]
pub extern "C" fn uzswap_is_managed() -> bool {
    uzswap_pools::is_managed()
}

/// What a result means.
#[unsafe(no_mangle)]
pub extern "C" fn uzswap_result_text(result: u32) -> *const c_char {
    text(result).as_ptr()
}

/// What the last call of this thread that failed had to say.
#[unsafe(no_mangle)]
pub extern "C" fn uzswap_error_text() -> *const c_char {
    result::last()
}
