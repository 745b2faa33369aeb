//! *What*: `dlopen` without `RTLD_DEEPBIND`, with which a library looks for its symbols in its own dependencies first.
//! It would find the C library's `free` there, for memory that is from our `malloc`: PHP loads its extensions so.
//!
//! *Invariants*: the C library's `dlopen` goes by where it is called from (whose run path, which namespace), so it is jumped
//! to, with the program's return address on the stack.
//! *Locking*: none. *Context*: the program's.

use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};

use crate::next::Next;

const RTLD_DEEPBIND: c_int = 8;

static DLOPEN: Next = Next::new(c"dlopen");

extern "C" fn next() -> *mut c_void {
    DLOPEN.get()
}

/// `dlopen(3)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        // A call wants the stack aligned.
        "push rax",
        "call {next}",
        "pop rcx",
        "pop rsi",
        "pop rdi",
        "and esi, {mask}",
        "jmp rax",
        next = sym next,
        mask = const !RTLD_DEEPBIND,
    )
}
