//! *What*: switches of a thread to its handler stack, and back.
//! *Invariants*: no frame of ours stays below the program's routine on a new thread.
//! *Locking*: none. *Context*: the program's.

use core::arch::naked_asm;
use core::ffi::c_void;

#[cfg(not(feature = "loader"))]
use crate::threads::exports::begin;
use crate::threads::on_handler_stack;

/// First code on a thread that `pthread_create` or `thrd_create` started: calls [`begin`], then
/// jumps to the program's routine, so that no frame of ours is below it. It works on the handler
/// stack, since the thread's own may lie in the arena.
///
/// # Safety
/// For the C library to start, with the record that [`begin`] expects.
#[cfg(not(feature = "loader"))]
#[unsafe(naked)]
pub unsafe extern "C" fn thread_start(record: *mut c_void) -> *mut c_void {
    naked_asm!(
        "push rbx",
        "mov rbx, rsp",
        // The record is where the handler stack begins.
        "mov rsp, rdi",
        "mov rsi, rbx",
        "call {begin}",
        "mov rsp, rbx",
        "pop rbx",
        "mov rdi, rdx",
        "jmp rax",
        begin = sym begin,
    )
}

/// Calls [`on_handler_stack`] on the stack that ends at `stack`.
///
/// # Safety
/// The stack is free.
#[unsafe(naked)]
pub unsafe extern "C" fn switch(job: *const c_void, argument: *mut c_void, stack: usize) {
    naked_asm!(
        "push rbx",
        "mov rbx, rsp",
        "mov rsp, rdx",
        "mov rdx, rbx",
        "call {on_handler_stack}",
        "mov rsp, rbx",
        "pop rbx",
        "ret",
        on_handler_stack = sym on_handler_stack,
    )
}

/// Issues `clone` for the program. The child begins with [`begin`](crate::loader::clone::begin) on
/// the handler stack below `child`, which it is given, and goes on in the context that this
/// returns.
///
/// # Safety
/// From [`crate::loader::clone::clone`].
#[cfg(feature = "loader")]
#[unsafe(naked)]
pub unsafe extern "C" fn clone_program(
    flags: usize,
    child: *mut c_void,
    parent_tid: usize,
    child_tid: usize,
    tls: usize,
) -> isize {
    naked_asm!(
        // The gate returns to what lies on the child's stack: first its own entry.
        "lea rax, [rip + 2f]",
        "mov [rsi - 16], rax",
        "mov [rsi - 8], rsi",
        "sub rsi, 16",
        "mov r10, rcx",
        "mov eax, {clone}",
        "movabs r11, {program_gate}",
        "jmp r11",
        "2:",
        "xor ebp, ebp",
        "pop rdi",
        "mov rsp, rdi",
        "call {begin}",
        "mov rsp, rax",
        "mov eax, {sigreturn}",
        "movabs rcx, {own_gate}",
        "jmp rcx",
        clone = const uzswap_sys::nr::CLONE,
        program_gate = const crate::guard::stub::PROGRAM_GATE,
        begin = sym crate::loader::clone::begin,
        sigreturn = const uzswap_sys::nr::RT_SIGRETURN,
        own_gate = const crate::guard::stub::OWN_GATE,
    )
}
