//! *What*: `dlopen` without `RTLD_DEEPBIND`. With that flag a library looks for its symbols in its
//! own dependencies first, and would find the C library's `free` there, for memory from our
//! `malloc`. PHP loads its extensions so.
//!
//! *Invariants*: the C library's `dlopen` depends on its caller (run path, namespace), so ours
//! jumps to it and leaves the program's return address on the stack.
//! *Locking*: none. *Context*: the program's.

use core::ffi::{c_int, c_void};

pub use crate::arch::dl::dlopen;
use crate::next::Next;

/// The flag that the program's `dlopen` loses.
pub const RTLD_DEEPBIND: c_int = 8;

static DLOPEN: Next = Next::new(c"dlopen");

/// The C library's `dlopen`.
pub extern "C" fn next() -> *mut c_void {
    DLOPEN.get()
}
