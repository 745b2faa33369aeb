//! *What*: the `syscall` instruction with zero to six arguments, and the *gate*, where it stands.
//! *Invariants*: a call clobbers what the kernel ABI says (rax, rcx, r11) and touches no
//! thread-local. The gate is always the address of a `syscall; ret`.
//! *Locking*: none. *Context*: any.

use crate::syscall::{Result, from_raw};
use core::arch::{asm, naked_asm};
use core::sync::atomic::{AtomicPtr, Ordering};

/// Bytes of the `syscall` instruction.
pub const SYSCALL_LEN: usize = 2;

/// `syscall; ret`: what stands at a gate.
pub const GATE_CODE: [u8; 3] = [0x0f, 0x05, 0xc3];

/// Where our calls are issued. A seccomp filter judges a call by its address, and one that this
/// process inherited may name the address range where our own text lies now.
pub(crate) static GATE: AtomicPtr<()> = AtomicPtr::new(own as *const () as *mut ());

#[unsafe(naked)]
unsafe extern "C" fn own() {
    naked_asm!("syscall", "ret")
}

/// Issues all calls of ours at `gate` from now on.
///
/// # Safety
/// [`GATE_CODE`] is there, and stays.
pub unsafe fn issue_at(gate: usize) {
    // Relaxed: the old gate still works.
    GATE.store(gate as *mut (), Ordering::Relaxed);
}

/// The gate.
#[inline(always)]
fn gate() -> *mut () {
    GATE.load(Ordering::Relaxed)
}

/// Issues system call `nr` and returns exactly what the kernel left in rax (`-errno` on failure).
///
/// # Safety
/// The caller answers for everything that this call does to the process.
#[inline(always)]
pub unsafe fn call_raw(nr: usize, args: [usize; 6]) -> isize {
    let ret: isize;
    // SAFETY: the operand list is the x86-64 kernel ABI, and the gate keeps to it; what the call
    // itself does is the caller's promise. Memory is assumed clobbered (no `nomem`).
    unsafe {
        asm!(
            "call {gate}",
            gate = in(reg) gate(),
            inlateout("rax") nr => ret,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    ret
}

macro_rules! calls {
    ($($name:ident($($arg:ident),*) $operands:tt;)*) => {$(
        /// Issues system call `nr` with as many arguments as the name says.
        ///
        /// # Safety
        /// The caller answers for everything that this call does to the process.
        #[inline(always)]
        pub unsafe fn $name(nr: usize $(, $arg: usize)*) -> Result<usize> {
            let ret: isize;
            // SAFETY: as for `call_raw`; registers not named are not arguments of the call.
            unsafe { calls!(@asm ret, nr, $operands) };
            from_raw(ret)
        }
    )*};
    (@asm $ret:ident, $nr:ident, { $($reg:tt = $arg:ident),* }) => {
        asm!("call {gate}", gate = in(reg) gate(), inlateout("rax") $nr => $ret, $(in($reg) $arg,)*
             lateout("rcx") _, lateout("r11") _)
    };
}

calls! {
    call0() {};
    call1(a) { "rdi" = a };
    call2(a, b) { "rdi" = a, "rsi" = b };
    call3(a, b, c) { "rdi" = a, "rsi" = b, "rdx" = c };
    call4(a, b, c, d) { "rdi" = a, "rsi" = b, "rdx" = c, "r10" = d };
    call5(a, b, c, d, e) { "rdi" = a, "rsi" = b, "rdx" = c, "r10" = d, "r8" = e };
    call6(a, b, c, d, e, f) { "rdi" = a, "rsi" = b, "rdx" = c, "r10" = d, "r8" = e, "r9" = f };
}
