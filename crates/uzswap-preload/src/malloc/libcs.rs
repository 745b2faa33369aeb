//! *What*: libc's own malloc: its other names, which are ours too, and blocks that it gave to
//! somebody all the same.
//!
//! *Invariants*: none. *Locking*: libc's. *Context*: the program's.

use core::ffi::c_void;

use uzswap_sys::Errno;

use super::heap;
use crate::arch::malloc::other_name;
use crate::maps::set_errno;
use crate::next::Next;

other_name! {
    __libc_malloc => super::malloc;
    __libc_calloc => super::calloc;
    __libc_realloc => super::realloc;
    __libc_free => super::free;
    __libc_memalign => super::memalign;
    __libc_valloc => super::valloc;
    __libc_pvalloc => super::pvalloc;
}

/// Frees a block of libc's.
///
/// # Safety
/// As `free(3)`; libc's malloc made it.
pub unsafe fn free(p: *mut c_void) {
    static FREE: Next = Next::new(c"__libc_free");
    type Free = unsafe extern "C" fn(*mut c_void);
    // SAFETY: the symbol's type, the caller's block.
    unsafe { FREE.typed::<Free>()(p) }
}

/// Makes a block of libc's larger or smaller.
///
/// # Safety
/// As `realloc(3)`; libc's malloc made it.
pub unsafe fn realloc(p: *mut c_void, size: usize) -> *mut c_void {
    static REALLOC: Next = Next::new(c"__libc_realloc");
    type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
    // SAFETY: the symbol's type, the caller's block.
    unsafe { REALLOC.typed::<Realloc>()(p, size) }
}

/// Bytes that a block of libc's has room for.
///
/// # Safety
/// libc's malloc made it.
pub unsafe fn usable(p: *mut c_void) -> usize {
    static USABLE: Next = Next::new(c"malloc_usable_size");
    type Usable = unsafe extern "C" fn(*mut c_void) -> usize;
    // SAFETY: the symbol's type, the caller's block.
    unsafe { USABLE.typed::<Usable>()(p) }
}

/// `sbrk(2)`. An allocator of the program's own is refused: it then maps its memory, which can be
/// managed.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sbrk(by: isize) -> *mut c_void {
    static SBRK: Next = Next::new(c"sbrk");
    type Sbrk = unsafe extern "C" fn(isize) -> *mut c_void;
    if by > 0 && heap::own().is_some() {
        set_errno(Errno::ENOMEM);
        return usize::MAX as *mut c_void;
    }
    // SAFETY: the symbol's type, the caller's promise.
    unsafe { SBRK.typed::<Sbrk>()(by) }
}
