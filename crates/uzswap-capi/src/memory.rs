//! *What*: malloc(3) and its like, from a pool.
//! *Invariants*: as those of the C library: `NULL` is freed without effect, and nothing of size 0
//! is `NULL`. *Locking*: the pool's. *Context*: threads of the host.

use std::alloc::Layout;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use allocator_api2::alloc::Allocator;
use uzswap_pools::Pool;

use crate::result::{failed, invalid, uzswap_result};
use crate::{pool_of, uzswap_pool};

/// The alignment of malloc(3).
const ALIGN: usize = 16;

fn layout(size: usize, align: usize) -> Option<Layout> {
    Layout::from_size_align(size.max(1), align).ok()
}

fn allocate(pool: Option<&Pool>, layout: Option<Layout>, zeroed: bool) -> *mut c_void {
    let (Some(pool), Some(layout)) = (pool, layout) else {
        invalid("the pool is null, or the size or alignment makes no sense");
        return null_mut();
    };
    let block = match zeroed {
        true => pool.allocate_zeroed(layout),
        false => pool.allocate(layout),
    };
    match block {
        Ok(block) => block.cast::<c_void>().as_ptr(),
        Err(_) => no_room(pool, layout.size()),
    }
}

fn no_room(pool: &Pool, size: usize) -> *mut c_void {
    let what = format!("no room for {size} bytes: the pool has {}", pool.stats());
    failed(uzswap_result::UZSWAP_NO_MEMORY, &what);
    null_mut()
}

const PAGE: usize = 4096;

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_map(
    pool: *mut uzswap_pool,
    size: usize,
    alignment: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let pool = unsafe { pool_of(pool) };
    // Enough to cut an aligned part out of.
    let slack = alignment.max(PAGE) - PAGE;
    let size = size.max(1).checked_next_multiple_of(PAGE);
    let whole = size.and_then(|size| size.checked_add(slack));
    let (Some(pool), Some(size), Some(whole), true) = (
        pool,
        size,
        whole,
        alignment.is_power_of_two() || alignment == 0,
    ) else {
        invalid("the pool is null, or the size or alignment makes no sense");
        return null_mut();
    };
    let Ok((start, len)) = pool.map_raw(whole) else {
        return no_room(pool, size);
    };
    let at = start.next_multiple_of(alignment.max(PAGE));
    for (from, to) in [(start, at), (at + size, start + len)] {
        if from < to {
            // SAFETY: whole pages of what was mapped just now.
            unsafe { pool.unmap_raw(from, to - from) };
        }
    }
    at as *mut c_void
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_unmap(pool: *mut uzswap_pool, memory: *mut c_void, size: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(pool) = pool_of(pool) {
            pool.unmap_raw(memory as usize, size.next_multiple_of(PAGE));
        }
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_discard(pool: *mut uzswap_pool, memory: *mut c_void, size: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(pool) = pool_of(pool) {
            pool.discard_raw(memory as usize, size);
        }
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_malloc(pool: *mut uzswap_pool, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    allocate(unsafe { pool_of(pool) }, layout(size, ALIGN), false)
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_calloc(
    pool: *mut uzswap_pool,
    count: usize,
    size: usize,
) -> *mut c_void {
    let layout = count.checked_mul(size).and_then(|size| layout(size, ALIGN));
    // SAFETY: the caller's promise.
    allocate(unsafe { pool_of(pool) }, layout, true)
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_realloc(
    pool: *mut uzswap_pool,
    memory: *mut c_void,
    size: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let (known, new) = (unsafe { pool_of(pool) }, layout(size, ALIGN));
    let Some(pointer) = NonNull::new(memory.cast::<u8>()) else {
        return allocate(known, new, false);
    };
    let (Some(pool), Some(new)) = (known, new) else {
        return allocate(None, None, false);
    };
    // SAFETY: the caller's promise: a block of this pool's, whose layout its size tells.
    let moved = unsafe {
        let usable = pool.usable_size(pointer);
        match layout(usable, ALIGN) {
            Some(old) if new.size() >= usable => pool.grow(pointer, old, new),
            Some(old) => pool.shrink(pointer, old, new),
            None => return null_mut(),
        }
    };
    match moved {
        Ok(block) => block.cast::<c_void>().as_ptr(),
        Err(_) => no_room(pool, size),
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_free(pool: *mut uzswap_pool, memory: *mut c_void) {
    // SAFETY: the caller's promise: a block of this pool's, whose layout its size tells.
    unsafe {
        let pointer = NonNull::new(memory.cast::<u8>());
        if let (Some(pool), Some(pointer)) = (pool_of(pool), pointer)
            && let Some(layout) = layout(pool.usable_size(pointer), ALIGN)
        {
            pool.deallocate(pointer, layout);
        }
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_usable_size(pool: *mut uzswap_pool, memory: *mut c_void) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        let pointer = NonNull::new(memory.cast::<u8>());
        let known = pool_of(pool).zip(pointer);
        known.map_or(0, |(pool, pointer)| pool.usable_size(pointer))
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_aligned_alloc(
    pool: *mut uzswap_pool,
    alignment: usize,
    size: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    allocate(unsafe { pool_of(pool) }, layout(size, alignment), false)
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_aligned_free(
    pool: *mut uzswap_pool,
    memory: *mut c_void,
    alignment: usize,
    size: usize,
) {
    // SAFETY: the caller's promise: allocated with that size and alignment.
    unsafe {
        let pointer = NonNull::new(memory.cast::<u8>());
        if let (Some(pool), Some(pointer)) = (pool_of(pool), pointer)
            && let Some(layout) = layout(size, alignment)
        {
            pool.deallocate(pointer, layout);
        }
    }
}
