//! *What*: the first instructions of the image ([`crate::loader`]).
//! *Invariants*: the program begins as the kernel would have it begin: with its stack, registers
//! zero. *Locking*: none. *Context*: init.

use core::arch::naked_asm;

use crate::loader::start::{LEN, STACK, begin};

/// The image's entry. `rdi`: the program's own entry, from the tracer; the kernel leaves 0 there.
///
/// # Safety
/// For the kernel or a tracer to start.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uzswap_start() -> ! {
    naked_asm!(
        "mov rbx, rsp",
        "mov rsi, rsp",
        "lea rsp, [rip + {stack}]",
        "add rsp, {len}",
        "xor ebp, ebp",
        "call {begin}",
        "mov rsp, rbx",
        "mov r11, rax",
        "xor eax, eax",
        "xor ebx, ebx",
        "xor ecx, ecx",
        "xor edx, edx",
        "xor esi, esi",
        "xor edi, edi",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "xor r10d, r10d",
        "xor r12d, r12d",
        "xor r13d, r13d",
        "xor r14d, r14d",
        "xor r15d, r15d",
        "jmp r11",
        stack = sym STACK,
        len = const LEN,
        begin = sym begin,
    )
}
