//! *What*: symbols to which libraries refer and that nothing calls: `malloc` and `free` (the codecs
//! work on memory that they are given), and the function that unwinds Rust's frames, which end the
//! process instead.
//!
//! *Invariants*: what is called all the same finds no memory. *Locking*: none. *Context*: any.

use core::ffi::c_void;

/// See malloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn malloc(_: usize) -> *mut c_void {
    core::ptr::null_mut()
}

/// See free(3).
#[unsafe(no_mangle)]
pub extern "C" fn free(_: *mut c_void) {}

/// Named by the tables of the precompiled core library.
#[unsafe(no_mangle)]
pub extern "C" fn rust_eh_personality() {}
