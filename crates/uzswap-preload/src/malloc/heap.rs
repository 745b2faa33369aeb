//! *What*: the program's heap, behind the functions of [`super`]: mimalloc, or the allocator that
//! the program was linked with (jemalloc, tcmalloc). Such a program keeps it, and its memory comes
//! from our `mmap` too: the program may ask it for statistics, or free by its `dallocx` or
//! `operator delete` what it got from `malloc`.
//!
//! *Invariants*: the choice is made before the first block is allocated. With an allocator of the
//! program's own no block is [`super::large`].
//! *Locking*: theirs. *Context*: the program's.

use core::cell::UnsafeCell;
use core::ffi::c_void;

use libmimalloc_sys as mi;

use super::{callers, large};
use crate::next::Next;
use crate::proc_files::for_each_mapping;

/// Least size asked of mimalloc, bytes: its smaller blocks are aligned to less than glibc's.
const MIN_SIZE: usize = 16;

// Declared in `arch`. The loader stores jemalloc's function and the first `operator new`, or null,
// there before anything is allocated; calling `dlsym` that early is not always safe.
unsafe extern "C" {
    #[link_name = "uzswap_allocator"]
    static SIGNS: [usize; 2];
}

type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
type Calloc = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);
type UsableSize = unsafe extern "C" fn(*mut c_void) -> usize;
type AlignedAlloc = unsafe extern "C" fn(usize, usize) -> *mut c_void;

/// The program's own allocator.
pub struct Own {
    /// Its `malloc`.
    pub malloc: Malloc,
    calloc: Calloc,
    realloc: Realloc,
    free: Free,
    usable_size: UsableSize,
    memalign: AlignedAlloc,
}

/// Set once, by [`set_up`].
struct Found(UnsafeCell<Option<Own>>);

// SAFETY: written by `set_up` alone, while the process has one thread.
unsafe impl Sync for Found {}

static OWN: Found = Found(UnsafeCell::new(None));

/// Chooses the heap; after [`callers::set_up`].
pub fn set_up() {
    // SAFETY: words that the loader has relocated.
    let signs = unsafe { SIGNS };
    let malloc = Next::new(c"malloc");
    // Behind libc, loaded for another library, it is not what the program allocates from.
    if signs == [0; 2] || callers::is_libc(malloc.get() as usize) {
        return;
    }
    // A malloc without a mark of its own may be a layer upon libc's.
    if !signs
        .iter()
        .any(|sign| is_same_text(*sign, malloc.get() as usize))
    {
        return;
    }
    // SAFETY: the symbols' types; one thread, nobody reads meanwhile.
    unsafe {
        *OWN.0.get() = Some(Own {
            malloc: malloc.typed(),
            calloc: Next::new(c"calloc").typed(),
            realloc: Next::new(c"realloc").typed(),
            free: Next::new(c"free").typed(),
            usable_size: Next::new(c"malloc_usable_size").typed(),
            memalign: Next::new(c"memalign").typed(),
        });
    }
}

/// Whether two functions are of one program or library.
fn is_same_text(a: usize, b: usize) -> bool {
    let mut same = false;
    for_each_mapping(|mapping| {
        let text = mapping.start..mapping.end;
        same |= text.contains(&a) && text.contains(&b);
    });
    same
}

/// The program's own allocator, if it has one.
#[inline]
pub fn own() -> Option<&'static Own> {
    // SAFETY: only read once other threads exist.
    unsafe { (*OWN.0.get()).as_ref() }
}

/// A block of `size` bytes, or null.
#[inline]
pub fn allocate(size: usize) -> *mut c_void {
    if let Some(own) = own() {
        // SAFETY: any size will do.
        return unsafe { (own.malloc)(size) };
    }
    if size >= large::MIN_SIZE {
        let p = large::allocate(size);
        if !p.is_null() {
            return p;
        }
    }
    // SAFETY: any size will do.
    unsafe { mi::mi_malloc(size.max(MIN_SIZE)) }
}

/// A block of `nr * size` zeroes, or null.
pub fn zeroed(nr: usize, size: usize) -> *mut c_void {
    if let Some(own) = own() {
        // SAFETY: any sizes will do: an overflow is refused.
        return unsafe { (own.calloc)(nr, size) };
    }
    if let Some(len) = nr.checked_mul(size) {
        if len < MIN_SIZE {
            // SAFETY: any size will do.
            return unsafe { mi::mi_zalloc(MIN_SIZE) };
        }
        if len >= large::MIN_SIZE {
            let p = large::allocate(len);
            if !p.is_null() {
                return p;
            }
        }
    }
    // SAFETY: any sizes will do: an overflow is refused.
    unsafe { mi::mi_calloc(nr, size) }
}

/// A block of `size` bytes, aligned to `align`, or null.
pub fn aligned(size: usize, align: usize) -> *mut c_void {
    if let Some(own) = own() {
        // SAFETY: any size will do; the alignment is a power of two.
        return unsafe { (own.memalign)(align, size) };
    }
    // SAFETY: any size will do; the alignment is a power of two.
    unsafe { mi::mi_malloc_aligned(size, align) }
}

/// Makes a block larger or smaller where the heap can do so itself; `Err`: the bytes that the
/// caller is to copy.
///
/// # Safety
/// `p` is a live block of this heap.
pub unsafe fn resize(p: *mut c_void, size: usize) -> Result<*mut c_void, usize> {
    // SAFETY: the caller's promise here and below.
    unsafe {
        if let Some(own) = own() {
            Ok((own.realloc)(p, size))
        } else if large::owns(p) {
            if size >= large::MIN_SIZE {
                Ok(large::resize(p, size))
            } else {
                Err(large::usable(p))
            }
        } else if size >= large::MIN_SIZE {
            Err(mi::mi_usable_size(p))
        } else {
            Ok(mi::mi_realloc(p, size.max(MIN_SIZE)))
        }
    }
}

/// Frees a block.
///
/// # Safety
/// `p` is a live block of this heap.
#[inline]
pub unsafe fn free(p: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(own) = own() {
            (own.free)(p);
        } else if large::owns(p) {
            large::free(p);
        } else {
            mi::mi_free(p);
        }
    }
}

/// Bytes that a block has room for.
///
/// # Safety
/// `p` is a live block of this heap.
#[inline]
pub unsafe fn usable(p: *mut c_void) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(own) = own() {
            (own.usable_size)(p)
        } else if large::owns(p) {
            large::usable(p)
        } else {
            mi::mi_usable_size(p)
        }
    }
}

/// Gives free memory back to the engine, as far as the heap can.
pub fn trim() {
    if own().is_none() {
        // SAFETY: collects the calling thread's heap.
        unsafe { mi::mi_collect(true) };
    }
}
