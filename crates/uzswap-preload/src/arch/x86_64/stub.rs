//! *What*: the code that issues a call through the stub page, and the *window*
//! ([`crate::guard::stub`]).
//!
//! *Invariants*: between the window's two mask changes stand loads, the call and a move only; r13
//! is [`PROGRAM_GATE`] until it is the call's result.
//! *Locking*: none. *Context*: signal, init.

use core::arch::naked_asm;
use uzswap_sys::signal::{SIG_SETMASK, SigSet, UContext};
use uzswap_sys::{PAGE_SIZE, nr};

use crate::guard::stub::{Call, OWN_GATE, PROGRAM_GATE, PROGRAM_GATE_RETURN, STUB, State};

/// Issues `call` through [`PROGRAM_GATE`] with all signals left blocked.
///
/// # Safety
/// As for the call itself; the stub page is mapped.
#[unsafe(naked)]
pub unsafe extern "C" fn issue(call: &Call) -> isize {
    naked_asm!(
        "push rbx",
        "movabs rbx, {program_gate}",
        "mov rax, [rdi]",
        "mov rsi, [rdi + 16]",
        "mov rdx, [rdi + 24]",
        "mov r10, [rdi + 32]",
        "mov r8, [rdi + 40]",
        "mov r9, [rdi + 48]",
        "mov rdi, [rdi + 8]",
        "call rbx",
        "pop rbx",
        "ret",
        program_gate = const PROGRAM_GATE,
    )
}

/// Unblocks all but `mask`, issues `call` through [`PROGRAM_GATE`], blocks all signals again.
///
/// A handler that interrupts it must not return here with the program's code having run: it
/// collapses the frame ([`crate::guard::frame`]) first.
///
/// # Safety
/// As for the call itself; on a handler stack, with all signals blocked, and with the thread's
/// frame open.
#[unsafe(naked)]
pub unsafe extern "C" fn window(call: &Call, mask: &SigSet) -> isize {
    naked_asm!(
        "push rbx",
        "push r12",
        "push r13",
        "mov rbx, rdi",
        "movabs r12, {own_gate}",
        "movabs r13, {program_gate}",
        "mov edi, {setmask}",
        "xor edx, edx",
        "mov r10d, 8",
        "mov eax, {sigprocmask}",
        "call r12",
        // From here on a signal may come in.
        "mov rax, [rbx]",
        "mov rdi, [rbx + 8]",
        "mov rsi, [rbx + 16]",
        "mov rdx, [rbx + 24]",
        "mov r10, [rbx + 32]",
        "mov r8, [rbx + 40]",
        "mov r9, [rbx + 48]",
        "call r13",
        ".globl uzswap_window_returned",
        ".hidden uzswap_window_returned",
        "uzswap_window_returned:",
        "mov r13, rax",
        ".globl uzswap_window_saved",
        ".hidden uzswap_window_saved",
        "uzswap_window_saved:",
        "mov edi, {setmask}",
        "lea rsi, [rip + 3f]",
        "xor edx, edx",
        "mov r10d, 8",
        "mov eax, {sigprocmask}",
        "call r12",
        // Until here.
        "mov rax, r13",
        "pop r13",
        "pop r12",
        "pop rbx",
        "ret",
        ".balign 8",
        "3: .quad -1",
        ".globl uzswap_window_end",
        ".hidden uzswap_window_end",
        "uzswap_window_end:",
        "ud2",
        own_gate = const OWN_GATE,
        program_gate = const PROGRAM_GATE,
        setmask = const SIG_SETMASK,
        sigprocmask = const nr::RT_SIGPROCMASK,
    )
}

unsafe extern "C" {
    fn uzswap_window_returned();
    fn uzswap_window_saved();
    fn uzswap_window_end();
}

/// Where a thread that was interrupted inside the window stands; `None`: it is not in the window.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "registers and usize have 64 bits"
)]
pub fn state(uc: &UContext) -> Option<State> {
    let ip = uc.instruction_pointer();
    let r13 = uc.uc_mcontext.r13 as usize;
    let start = window as *const () as usize;
    let returned = uzswap_window_returned as *const () as usize;
    let saved = uzswap_window_saved as *const () as usize;
    let end = uzswap_window_end as *const () as usize;
    if ip == PROGRAM_GATE_RETURN || ip == PROGRAM_GATE_RETURN + 1 || ip == returned {
        Some(State::Returned(uc.syscall_return()))
    } else if (saved..end).contains(&ip) {
        Some(State::Returned(r13.cast_signed()))
    } else if ip == OWN_GATE {
        // About to block again: r13 is the call's address until there is a result.
        if r13 == PROGRAM_GATE {
            Some(State::NotIssued)
        } else {
            Some(State::Returned(r13.cast_signed()))
        }
    } else if (start..returned).contains(&ip) || (STUB..STUB + PAGE_SIZE).contains(&ip) {
        Some(State::NotIssued)
    } else {
        None
    }
}
