//! *What*: switches of a thread to its handler stack, and back.
//! *Invariants*: no frame of ours stays below the program's routine on a new thread.
//! *Locking*: none. *Context*: the program's.

use core::arch::naked_asm;
use core::ffi::c_void;

use crate::threads::{begin, on_handler_stack};

/// First code on a thread that `pthread_create` or `thrd_create` started: calls [`begin`], then
/// jumps to the program's routine, so that no frame of ours is below it. It works on the handler
/// stack, since the thread's own may lie in the arena.
///
/// # Safety
/// For the C library to start, with the record that [`begin`] expects.
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
