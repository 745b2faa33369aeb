//! *What*: `dlopen` without `RTLD_DEEPBIND`, with which a library looks for its symbols in its own dependencies first.
//! It would find the C library's `free` there, for memory that is from our `malloc`: PHP loads its extensions so.
//!
//! *Invariants*: the C library's `dlopen` goes by where it is called from (whose run path, which namespace), so it is jumped
//! to, with the program's return address on the stack.
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
