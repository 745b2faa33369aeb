//! *What*: `dlopen` ([`crate::dl`]) and `dlsym` ([`crate::malloc::looked_up`]).
//! *Invariants*: the C library's functions see a return address in the program's caller.
//! *Locking*: none. *Context*: the program's.

use core::arch::{asm, naked_asm};
use core::ffi::{CStr, c_char, c_int, c_void};

use crate::dl::{RTLD_DEEPBIND, next};
use crate::malloc::looked_up::{instead, way};

/// The oldest version of the C library's symbols here.
pub const FIRST_VERSION: &CStr = c"GLIBC_2.2.5";

/// An instruction that returns, and nothing else.
pub const RETURN: u8 = 0xc3;

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

/// `dlsym(3)`: jumps to the C library's. Where [`way`] names an instruction that returns, that is
/// given as the return address, and control comes back here by way of it, for [`instead`].
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        // A call wants the stack aligned.
        "push rax",
        "mov rdi, rsi",
        "mov rsi, [rsp + 24]",
        "call {way}",
        "pop rcx",
        "pop rsi",
        "pop rdi",
        "test rdx, rdx",
        "jnz 2f",
        "jmp rax",
        "2:",
        // The name twice: once for the alignment.
        "push rsi",
        "push rsi",
        "lea rcx, [rip + 3f]",
        "push rcx",
        "push rdx",
        "jmp rax",
        "3:",
        "pop rdi",
        "pop rdi",
        "mov rsi, rax",
        "jmp {instead}",
        way = sym way,
        instead = sym instead,
    )
}

/// Whether the processor checks return addresses against a stack of its own.
#[must_use]
pub fn has_shadow_stack() -> bool {
    let mut pointer = 0usize;
    // SAFETY: reads the shadow stack's pointer; where there is none, it does nothing.
    unsafe { asm!("rdsspq {}", inout(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer != 0
}
