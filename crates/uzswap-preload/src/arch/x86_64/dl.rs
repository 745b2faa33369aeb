//! *What*: `dlopen` ([`crate::dl`]).
//! *Invariants*: the C library's `dlopen` sees the program's return address.
//! *Locking*: none. *Context*: the program's.

use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};

use crate::dl::{RTLD_DEEPBIND, next};

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
