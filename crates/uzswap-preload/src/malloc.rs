//! *What*: the program's allocator: malloc and its relatives, on the [`heap`], whose memory comes
//! from our own `mmap` and so lies in the arena. What libc itself allocates (streams and their
//! buffers, directory buffers, loader records) comes from the [`libc_heap`], outside the arena:
//! libc passes it to system calls all the time, each of which would have to be guarded.
//!
//! *Invariants*: an address tells which heap it belongs to. Nothing here runs in a handler of ours.
//! *Locking*: the heap's own (mimalloc has none on its paths for threads); one lock per size class
//! in [`libc_heap`].
//! *Context*: the program's, with whatever signal mask it has; also ld.so's, before libc is set up.

mod callers;
mod heap;
mod large;
mod libc_heap;
mod libcs;
pub mod looked_up;
mod options;

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use uzswap_core::in_arena;
use uzswap_sys::{Errno, PAGE_SIZE};

use crate::arch::malloc::with_caller;
use crate::init::{self, ENGINE};
use crate::maps::set_errno;
use crate::next::Next;

pub use libc_heap::hold;

unsafe extern "C" {
    fn strlen(s: *const c_char) -> usize;
    fn strnlen(s: *const c_char, most: usize) -> usize;
}

/// Whether `p` is from libc's own malloc: a library may find that before ours (by `dlvsym`), and
/// others free what it allocated.
fn is_libcs(p: *mut c_void) -> bool {
    // With an allocator of the program's own, nobody frees memory of libc's natively either. All of
    // mimalloc's memory was mapped after the engine started, and is in the arena.
    heap::own().is_none() && !in_arena(p as usize) && ENGINE.started()
}

/// Whether [`set_up`] has run.
static READY: AtomicBool = AtomicBool::new(false);

/// Prepares both heaps. Called once, by `init`, before anything is allocated.
pub fn set_up() {
    options::set();
    libc_heap::set_up();
    callers::set_up();
    heap::set_up();
    READY.store(true, Ordering::Relaxed);
}

/// Bounds libc's heap, which the limit does not count, once the limit is known.
pub fn set_limit(ram: u64) {
    libc_heap::set_budget(usize::try_from(ram / 32).unwrap_or(usize::MAX));
}

#[inline]
fn ready() {
    if !READY.load(Ordering::Relaxed) {
        init::managed();
    }
}

/// `errno` as on failure of an allocation.
fn checked(p: *mut c_void) -> *mut c_void {
    if p.is_null() {
        set_errno(Errno::ENOMEM);
    }
    p
}

#[inline]
fn allocate(size: usize, caller: usize) -> *mut c_void {
    ready();
    if callers::is_libc(caller) {
        let p = libc_heap::allocate(size);
        if !p.is_null() {
            return p;
        }
    }
    checked(heap::allocate(size))
}

with_caller!(
    /// `malloc(3)`.
    malloc(size: usize) => malloc_for);
with_caller!(
    /// `calloc(3)`.
    calloc(nr: usize, size: usize) => calloc_for);
with_caller!(
    /// `realloc(3)`.
    realloc(p: *mut c_void, size: usize) => realloc_for);
with_caller!(
    /// `reallocarray(3)`.
    reallocarray(p: *mut c_void, nr: usize, size: usize) => reallocarray_for);

extern "C" fn malloc_for(size: usize, caller: usize) -> *mut c_void {
    match heap::own() {
        // A jump: it says itself what failed.
        // SAFETY: any size will do.
        Some(own) if !callers::is_libc(caller) => unsafe { (own.malloc)(size) },
        _ => allocate(size, caller),
    }
}

extern "C" fn calloc_for(nr: usize, size: usize, caller: usize) -> *mut c_void {
    ready();
    if callers::is_libc(caller)
        && let Some(len) = nr.checked_mul(size)
    {
        let p = libc_heap::allocate(len);
        if !p.is_null() {
            // SAFETY: at least `len` bytes, just allocated.
            unsafe { p.cast::<u8>().write_bytes(0, len) };
            return p;
        }
    }
    checked(heap::zeroed(nr, size))
}

unsafe extern "C" fn realloc_for(p: *mut c_void, size: usize, caller: usize) -> *mut c_void {
    if p.is_null() {
        return allocate(size, caller);
    }
    if size == 0 {
        // SAFETY: the caller's.
        unsafe { free(p) };
        return core::ptr::null_mut();
    }
    // SAFETY: the caller's; which heap it is from, the address tells.
    let room = unsafe {
        match libc_heap::usable(p) {
            Some(room) if size <= room && size >= room / 2 => return p,
            Some(room) => room,
            None if is_libcs(p) => return libcs::realloc(p, size),
            None => match heap::resize(p, size) {
                Ok(new) => return checked(new),
                Err(room) => room,
            },
        }
    };
    let new = allocate(size, caller);
    if !new.is_null() {
        // SAFETY: both blocks are live, distinct, and have that many bytes.
        unsafe {
            new.cast::<u8>()
                .copy_from_nonoverlapping(p.cast(), room.min(size));
            free(p);
        }
    }
    new
}

unsafe extern "C" fn reallocarray_for(
    p: *mut c_void,
    nr: usize,
    size: usize,
    caller: usize,
) -> *mut c_void {
    match nr.checked_mul(size) {
        // SAFETY: the caller's.
        Some(len) => unsafe { realloc_for(p, len, caller) },
        None => checked(core::ptr::null_mut()),
    }
}

/// `free(3)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(p: *mut c_void) {
    // SAFETY: the caller's; which heap it is from, the address tells.
    unsafe {
        if libc_heap::owns(p) {
            libc_heap::free(p);
        } else if !is_libcs(p) {
            heap::free(p);
        } else if !p.is_null() {
            libcs::free(p);
        }
    }
}

/// `cfree(3)`: the old name.
///
/// # Safety
/// As `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(p: *mut c_void) {
    // SAFETY: the caller's.
    unsafe { free(p) }
}

/// `malloc_usable_size(3)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(p: *mut c_void) -> usize {
    match libc_heap::usable(p) {
        Some(room) => room,
        None if p.is_null() => 0,
        // SAFETY: the caller's.
        None if is_libcs(p) => unsafe { libcs::usable(p) },
        // SAFETY: the caller's.
        None => unsafe { heap::usable(p) },
    }
}

fn aligned(size: usize, align: usize) -> *mut c_void {
    ready();
    checked(heap::aligned(size, align))
}

/// `memalign(3)`. Alignments that are no power of two are rounded up to one, as glibc does.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) => aligned(size, align),
        None => {
            set_errno(Errno::EINVAL);
            core::ptr::null_mut()
        }
    }
}

/// `aligned_alloc(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        set_errno(Errno::EINVAL);
        return core::ptr::null_mut();
    }
    aligned(size, align)
}

/// `posix_memalign(3)`: returns an error number and leaves `errno` alone.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return Errno::EINVAL.0;
    }
    ready();
    let p = heap::aligned(size, align);
    if p.is_null() {
        return Errno::ENOMEM.0;
    }
    // SAFETY: the caller's.
    unsafe { out.write(p) };
    0
}

/// `valloc(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: usize) -> *mut c_void {
    aligned(size, PAGE_SIZE)
}

/// `pvalloc(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match size.checked_next_multiple_of(PAGE_SIZE) {
        Some(size) => aligned(size, PAGE_SIZE),
        None => checked(core::ptr::null_mut()),
    }
}

/// `malloc_trim(3)`: gives free memory back. Says 1: something may have been.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_pad: usize) -> c_int {
    ready();
    heap::trim();
    1
}

/// The malloc that everybody finds: ours, unless the program itself defines one.
static FOUND_BY_ALL: Next = Next::first(c"malloc");

/// A string of the first `len` bytes of `s`, for the `free` that everybody finds.
unsafe fn copy_of(s: *const c_char, len: usize) -> *mut c_char {
    type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
    // SAFETY: the symbol's type; any size will do.
    let copy: *mut c_char = unsafe { FOUND_BY_ALL.typed::<Malloc>()(len + 1) }.cast();
    if !copy.is_null() {
        // SAFETY: `s` has `len` bytes by the caller's promise, the block one more.
        unsafe {
            copy.copy_from_nonoverlapping(s, len);
            copy.add(len).write(0);
        }
    }
    copy
}

/// `strdup(3)`: the copy is the program's data, though libc would allocate it.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strdup(s: *const c_char) -> *mut c_char {
    // SAFETY: the caller's.
    unsafe { copy_of(s, strlen(s)) }
}

/// `strdup(3)`, as old headers spell it.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __strdup(s: *const c_char) -> *mut c_char {
    // SAFETY: the caller's.
    unsafe { strdup(s) }
}

/// `strndup(3)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strndup(s: *const c_char, n: usize) -> *mut c_char {
    // SAFETY: the caller's.
    unsafe { copy_of(s, strnlen(s, n)) }
}
