//! *What*: `dlsym` of the allocator's functions. A module that has an allocator of its own may look
//! up the C library's `free` (by `RTLD_NEXT`, or in `libc.so.6`) for what the C library allocated:
//! `strdup`, `getline`. All of that is ours here. So where the answer is the C library's function,
//! it is ours instead.
//!
//! *Invariants*: the answer is otherwise what it is natively. `RTLD_NEXT` depends on who asks, by
//! the return address. The lookup therefore returns to an instruction in the asking module that
//! does nothing but return, to us. Without one nearby, or with a shadow stack, nothing is replaced.
//! Nor is it where the program has an allocator of its own, for whose memory ours asks that one.
//!
//! Not covered: `dlvsym`.
//! *Locking*: none. *Context*: the program's.

use core::ffi::{CStr, c_char, c_void};

use uzswap_sys::PAGE_SIZE;

use super::{callers, heap, ready};
use crate::arch::dl::{RETURN, has_shadow_stack};
use crate::next;

/// How a lookup goes.
#[repr(C)]
pub struct Way {
    /// The C library's `dlsym`.
    dlsym: *mut c_void,
    /// Address of an instruction in the caller's text that returns; 0: the answer stays.
    back: usize,
}

/// How `caller`'s lookup of `name` goes.
pub unsafe extern "C" fn way(name: *const c_char, caller: usize) -> Way {
    ready();
    // SAFETY: the caller of `dlsym` passes a C string.
    let replaced = heap::own().is_none() && unsafe { ours(name) }.is_some();
    let back = if replaced && !has_shadow_stack() {
        // SAFETY: where its call of `dlsym` returns to.
        unsafe { find_return(caller) }
    } else {
        0
    };
    Way {
        dlsym: next::dlsym(),
        back,
    }
}

/// A byte in the page of text around `at` that is an instruction which returns; 0: there is none.
unsafe fn find_return(at: usize) -> usize {
    let page = at - at % PAGE_SIZE;
    (at..page + PAGE_SIZE)
        .chain(page..at)
        // SAFETY: the page is mapped, since it is being executed.
        .find(|&at| unsafe { (at as *const u8).read() } == RETURN)
        .unwrap_or(0)
}

/// What the lookup of `name` that found `found` answers.
pub unsafe extern "C" fn instead(name: *const c_char, found: *mut c_void) -> *mut c_void {
    if !callers::is_libc(found as usize) {
        return found;
    }
    // SAFETY: as `way`.
    unsafe { ours(name) }.unwrap_or(found)
}

/// Our function of that name.
unsafe fn ours(name: *const c_char) -> Option<*mut c_void> {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    let function = match name.to_bytes() {
        b"malloc" | b"__libc_malloc" => super::malloc as *const (),
        b"calloc" | b"__libc_calloc" => super::calloc as *const (),
        b"realloc" | b"__libc_realloc" => super::realloc as *const (),
        b"reallocarray" => super::reallocarray as *const (),
        b"free" | b"cfree" | b"__libc_free" => super::free as *const (),
        b"malloc_usable_size" => super::malloc_usable_size as *const (),
        b"memalign" | b"__libc_memalign" => super::memalign as *const (),
        b"aligned_alloc" => super::aligned_alloc as *const (),
        b"posix_memalign" => super::posix_memalign as *const (),
        b"valloc" | b"__libc_valloc" => super::valloc as *const (),
        b"pvalloc" | b"__libc_pvalloc" => super::pvalloc as *const (),
        b"malloc_trim" => super::malloc_trim as *const (),
        b"strdup" | b"__strdup" => super::strdup as *const (),
        b"strndup" | b"__strndup" => super::strndup as *const (),
        _ => return None,
    };
    Some(function.cast_mut().cast())
}
