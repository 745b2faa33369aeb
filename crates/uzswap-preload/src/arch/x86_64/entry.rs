//! *What*: where the kernel enters our handlers: the switch to a handler stack, and the return.
//!
//! *Invariants*: a handler's body runs on a handler stack if there is one to be had, with all
//! signals blocked. It ends by `rt_sigreturn` from the context that the body returns, never by
//! `ret`: no frame of ours outlives it, and the step into a program's handler (registers, stack and
//! mask) is a single system call.
//! *Locking*: none. *Context*: signal.

use core::arch::naked_asm;
use uzswap_sys::nr;
use uzswap_sys::signal::{SigInfo, UContext};

use crate::guard::stub::OWN_GATE;
use crate::threads::{STACKS, STACKS_LEN, enter};

/// Bytes that an entry leaves free for a context to return to.
const SCRATCH: usize = 512;
const _: () = assert!(size_of::<UContext>() <= SCRATCH);

macro_rules! entry {
    ($(#[$doc:meta])* $name:ident => $body:path) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// For the kernel to call, with all signals blocked.
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(signal: i32, info: *mut SigInfo, uc: *mut UContext) {
            naked_asm!(
                "mov r12d, edi",
                "mov r13, rsi",
                "mov r14, rdx",
                // Frame pointer 0 ends back traces.
                "xor ebp, ebp",
                "and rsp, -16",
                "movabs rcx, {stacks}",
                "mov rax, rsp",
                "sub rax, rcx",
                "movabs rcx, {stacks_len}",
                "cmp rax, rcx",
                "jb 2f",
                "mov rdi, rdx",
                "call {enter}",
                "test rax, rax",
                "cmovnz rsp, rax",
                "2:",
                "sub rsp, {scratch}",
                "mov edi, r12d",
                "mov rsi, r13",
                "mov rdx, r14",
                "mov rcx, rsp",
                "call {body}",
                "mov rsp, rax",
                "mov eax, {sigreturn}",
                "movabs rcx, {own_gate}",
                "jmp rcx",
                stacks = const STACKS,
                stacks_len = const STACKS_LEN,
                enter = sym enter,
                scratch = const SCRATCH,
                body = sym $body,
                sigreturn = const nr::RT_SIGRETURN,
                own_gate = const OWN_GATE,
            )
        }
    };
}

entry! {
    /// SIGBUS, and SIGSEGV where that is ours.
    fault => crate::signals::fault::on_fault
}
entry! {
    /// SIGSYS.
    sigsys => crate::guard::on_sigsys
}
entry! {
    /// Every signal for which the program has a handler.
    program => crate::signals::deliver::on_program
}
