//! *What*: the start of a thread that the C library does not know of.
//! *Invariants*: the child touches no stack but its own.
//! *Locking*: none. *Context*: init.

use super::nr;
use super::syscall::GATE;
use core::arch::naked_asm;

/// clone(2), whose child calls `entry` on its own stack. Not issued at the gate, whose return
/// address is on the parent's stack.
///
/// # Safety
/// As [`crate::thread::spawn_raw`].
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn clone_thread(
    flags: usize,
    stack_top: usize,
    tid: *mut u32,
    entry: extern "C" fn(*mut core::ffi::c_void),
    arg: *mut core::ffi::c_void,
) -> isize {
    naked_asm!(
        "and rsi, -16",
        // The child finds its entry and argument on its own stack.
        "sub rsi, 16",
        "mov [rsi], rcx",
        "mov [rsi + 8], r8",
        // parent_tid (rdx) and child_tid (r10) are the same word; tls (r8) is not set.
        "mov r10, rdx",
        "xor r8d, r8d",
        "mov eax, {clone}",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        // Frame pointer 0 ends back traces.
        "xor ebp, ebp",
        "pop rax",
        "pop rdi",
        "call rax",
        "xor edi, edi",
        "mov eax, {exit}",
        "call [rip + {gate}]",
        "ud2",
        clone = const nr::CLONE,
        exit = const nr::EXIT,
        gate = sym GATE,
    )
}

/// Calls `job` with `argument` on the stack that ends at `top`.
///
/// # Safety
/// As [`crate::thread::call_on_stack`].
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call_on_stack(
    top: usize,
    job: unsafe extern "C" fn(*mut core::ffi::c_void),
    argument: *mut core::ffi::c_void,
) {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "and rdi, -16",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
    )
}

/// Ends a thread or process that has its stack in `[addr, addr + len)`, and unmaps that. Not issued
/// at the gate, which would use the stack.
///
/// # Safety
/// As [`crate::process::leave`].
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn leave(addr: usize, len: usize) -> ! {
    naked_asm!(
        "mov r12, rdi",
        "mov r13, rsi",
        // The kernel would write to memory that may be another's by then.
        "xor edi, edi",
        "mov eax, {set_tid_address}",
        "syscall",
        "mov rdi, r12",
        "mov rsi, r13",
        "mov eax, {munmap}",
        "syscall",
        "xor edi, edi",
        "mov eax, {exit}",
        "syscall",
        "ud2",
        set_tid_address = const nr::SET_TID_ADDRESS,
        munmap = const nr::MUNMAP,
        exit = const nr::EXIT,
    )
}
