//! *What*: the stub page, through which trapped system calls are issued again, and the *window*:
//! the one stretch of code in which a handler of ours has the program's signals unblocked.
//!
//! *Invariants*: the page lies at the same address in every managed process, since an inherited
//! filter exempts it by address. It holds two copies of `syscall; ret`: calls of the program go
//! through [`CALL`] (exempt from filter A), calls of ours through [`HOUSE`] (the page is in nobody's
//! text, so no filter B names it, while our own text may lie where another program's was). While a window is
//! open nothing runs between its two mask changes but loads, the call and a move, so that a signal
//! that arrives finds the call in one of two states, told apart by the instruction pointer:
//! not issued, or returned with a known value.
//! *Locking*: none. *Context*: signal, init.

use core::arch::naked_asm;
use uzswap_sys::mem::{
    MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_PRIVATE, PROT_EXEC, PROT_READ, PROT_WRITE, mmap,
    mprotect,
};
use uzswap_sys::signal::{SIG_SETMASK, SigSet, UContext};
use uzswap_sys::{Errno, PAGE_SIZE, nr, syscall};

/// Where the stub page is: just below the arena, in every managed process.
pub const STUB: usize = 0x0fff_ffff_0000;
/// `syscall; ret` for calls of the program.
pub const CALL: usize = STUB;
/// What the instruction pointer is after the `syscall` at [`CALL`]: what filter A exempts.
pub const CALL_RETURN: usize = CALL + 2;
/// `syscall; ret` for calls of our own.
pub const HOUSE: usize = STUB + 16;
/// What the instruction pointer is after the `syscall` at [`HOUSE`].
pub const HOUSE_RETURN: usize = HOUSE + 2;

/// Maps the stub page, and has all calls of ours issued there.
///
/// # Errors
/// `EEXIST`: something else lies there. Others as mmap(2).
pub fn map() -> Result<(), Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE takes nothing away from anybody.
    let at = unsafe { mmap(STUB, PAGE_SIZE, PROT_READ | PROT_WRITE, flags, -1, 0) }?;
    if at != STUB {
        // A kernel that does not know NOREPLACE took the address for a hint.
        return Err(Errno::EEXIST);
    }
    const CODE: [u8; 3] = [0x0f, 0x05, 0xc3];
    for start in [CALL, HOUSE] {
        for (n, byte) in CODE.iter().enumerate() {
            // SAFETY: inside the page mapped above.
            unsafe { ((start + n) as *mut u8).write(*byte) };
        }
    }
    // SAFETY: our own page, which stays.
    unsafe {
        mprotect(STUB, PAGE_SIZE, PROT_READ | PROT_EXEC)?;
        syscall::issue_at(HOUSE);
    }
    Ok(())
}

/// A system call and its six arguments, as the window takes them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Number.
    pub nr: usize,
    /// Arguments.
    pub args: [usize; 6],
}

/// Issues `call` through [`CALL`] with all signals left blocked.
///
/// # Safety
/// As for the call itself; the stub page is mapped.
#[unsafe(naked)]
pub unsafe extern "C" fn issue(call: &Call) -> isize {
    naked_asm!(
        "push rbx",
        "movabs rbx, {call}",
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
        call = const CALL,
    )
}

/// Unblocks all but `mask`, issues `call` through [`CALL`], blocks all signals again.
///
/// A handler that interrupts it must not return here with the program's code having run: it
/// collapses the frame ([`super::frame`]) first.
///
/// # Safety
/// As for the call itself; on a slot stack, with all signals blocked, and with the thread's frame
/// open.
#[unsafe(naked)]
pub unsafe extern "C" fn window(call: &Call, mask: &SigSet) -> isize {
    naked_asm!(
        "push rbx",
        "push r12",
        "push r13",
        "mov rbx, rdi",
        "movabs r12, {house}",
        "movabs r13, {call}",
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
        house = const HOUSE,
        call = const CALL,
        setmask = const SIG_SETMASK,
        sigprocmask = const nr::RT_SIGPROCMASK,
    )
}

unsafe extern "C" {
    fn uzswap_window_returned();
    fn uzswap_window_saved();
    fn uzswap_window_end();
}

/// How far a call in the window has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not issued, or the kernel wants it issued again.
    NotIssued,
    /// It returned this.
    Returned(isize),
}

/// Where a thread that was interrupted inside the window stands; `None`: it is not in the window.
#[must_use]
#[expect(
    clippy::cast_possible_wrap,
    reason = "registers hold results as two's complement"
)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "registers and usize have 64 bits"
)]
pub fn state(uc: &UContext) -> Option<State> {
    let r = &uc.uc_mcontext;
    let ip = r.rip as usize;
    let start = window as *const () as usize;
    let returned = uzswap_window_returned as *const () as usize;
    let saved = uzswap_window_saved as *const () as usize;
    let end = uzswap_window_end as *const () as usize;
    if ip == CALL_RETURN || ip == CALL_RETURN + 1 || ip == returned {
        Some(State::Returned(r.rax as isize))
    } else if (saved..end).contains(&ip) {
        Some(State::Returned(r.r13 as isize))
    } else if ip == HOUSE {
        // About to block again: r13 is the call's address until there is a result.
        if r.r13 as usize == CALL {
            Some(State::NotIssued)
        } else {
            Some(State::Returned(r.r13 as isize))
        }
    } else if (start..returned).contains(&ip) || (STUB..STUB + PAGE_SIZE).contains(&ip) {
        Some(State::NotIssued)
    } else {
        None
    }
}
