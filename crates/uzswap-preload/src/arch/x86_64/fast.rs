//! *What*: the code that issues a call for the fast paths ([`crate::guard::fast`]), in the
//! program's own context.
//!
//! *Invariants*: the call's number is in the word below the stack pointer from before the call
//! until its caller goes on.
//! *Locking*: none. *Context*: the program's.

use core::arch::naked_asm;
use core::sync::atomic::AtomicU64;

use uzswap_sys::signal::UContext;

use crate::guard::fast::NOT_ISSUED;
use crate::guard::stub::PROGRAM_GATE;

/// Issues a call through the stub page.
///
/// # Safety
/// As for the call itself.
#[unsafe(naked)]
pub unsafe extern "C" fn issue(
    nr: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    naked_asm!(
        // For `saved_nr`.
        "mov [rsp - 8], rdi",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "movabs r11, {program_gate}",
        "jmp r11",
        program_gate = const PROGRAM_GATE,
    )
}

/// Issues a call through the stub page, unless `word` no longer says `says`: then returns
/// [`NOT_ISSUED`].
///
/// # Safety
/// As for the call itself.
#[unsafe(naked)]
pub unsafe extern "C" fn issue_announced(
    word: *const AtomicU64,
    says: u64,
    nr: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    naked_asm!(
        // For `saved_nr`.
        "mov [rsp - 8], rdx",
        "mov r11, rdi",
        "mov rdi, rcx",
        "mov rcx, rsi",
        "mov rsi, r8",
        "mov rax, rdx",
        "mov rdx, r9",
        "mov r10, [rsp + 8]",
        "mov r8, [rsp + 16]",
        "mov r9, [rsp + 24]",
        ".globl uzswap_announced",
        ".hidden uzswap_announced",
        "uzswap_announced:",
        "cmp [r11], rcx",
        "jne 2f",
        "movabs r11, {program_gate}",
        "jmp r11",
        "2:",
        ".globl uzswap_not_announced",
        ".hidden uzswap_not_announced",
        "uzswap_not_announced:",
        "mov rax, {not_issued}",
        "ret",
        program_gate = const PROGRAM_GATE,
        not_issued = const NOT_ISSUED,
    )
}

unsafe extern "C" {
    fn uzswap_announced();
    fn uzswap_not_announced();
}

/// Whether a thread interrupted at `ip` is in [`issue_announced`] past its loads, or at the call,
/// and has not issued it.
#[must_use]
pub fn is_before_issue(ip: usize) -> bool {
    let announced =
        uzswap_announced as *const () as usize..uzswap_not_announced as *const () as usize;
    ip == PROGRAM_GATE || announced.contains(&ip)
}

/// Where the number is of the call that has just returned to `uc`.
#[must_use]
pub const fn saved_nr(uc: &UContext) -> usize {
    uc.stack_pointer().wrapping_sub(size_of::<usize>())
}
