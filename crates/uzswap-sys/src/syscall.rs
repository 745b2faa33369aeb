//! What: the `syscall` instruction with zero to six arguments.
//! Invariants: clobbers only what the kernel ABI says (rax, rcx, r11); touches no thread-local.
//! Locking: none.
//! Context: any.

use crate::Errno;
use core::arch::asm;

/// The result of a call: the kernel's return value, or its error number.
pub type Result<T> = core::result::Result<T, Errno>;

/// Issues system call `nr` and returns exactly what the kernel left in rax (`-errno` on failure).
///
/// # Safety
/// The caller answers for everything that this call does to the process.
#[inline(always)]
pub unsafe fn call_raw(nr: usize, args: [usize; 6]) -> isize {
    let ret: isize;
    // SAFETY: the operand list is the x86-64 kernel ABI; what the call itself does is the
    // caller's promise. Memory is assumed clobbered (no `nomem`).
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") nr => ret,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    ret
}

/// Splits a raw return value into value and error, as the kernel ABI defines it
/// (`-4095..=-1` are errors).
#[inline(always)]
#[expect(
    clippy::cast_sign_loss,
    reason = "values that are no error are unsigned by the ABI"
)]
#[expect(clippy::cast_possible_truncation, reason = "-4095..=-1 fits")]
pub const fn from_raw(ret: isize) -> Result<usize> {
    if ret < 0 && ret >= -4095 {
        Err(Errno(-ret as i32))
    } else {
        Ok(ret as usize)
    }
}

/// A C `int` argument (descriptor, flags) as the kernel takes it in a 64-bit register.
#[inline(always)]
#[must_use]
#[expect(
    clippy::cast_sign_loss,
    reason = "sign extension is what the ABI asks for"
)]
pub const fn int(value: i32) -> usize {
    value as isize as usize
}

/// A system call's result known to be a C `int` (descriptors, process numbers).
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the kernel returns an int here"
)]
#[expect(clippy::cast_possible_wrap, reason = "the kernel returns an int here")]
pub(crate) const fn to_int(value: usize) -> i32 {
    value as i32
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
        asm!("syscall", inlateout("rax") $nr => $ret, $(in($reg) $arg,)*
             lateout("rcx") _, lateout("r11") _, options(nostack))
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
