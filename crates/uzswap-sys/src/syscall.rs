//! *What*: system calls with zero to six arguments, issued at the *gate*, and their results.
//! *Invariants*: a call touches no thread-local, in particular not `errno`.
//! *Locking*: none. *Context*: any.

use crate::Errno;
pub use crate::arch::syscall::{
    call_raw, call0, call1, call2, call3, call4, call5, call6, issue_at,
};

/// The result of a call: the kernel's return value, or its error number.
pub type Result<T> = core::result::Result<T, Errno>;

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

/// A C `int` as a 64-bit register holds it, whose upper half is anything: a result known to be one
/// (descriptors, process numbers), or an argument of the program's.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "an int is the low half")]
#[expect(clippy::cast_possible_wrap, reason = "an int is the low half")]
#[must_use]
pub const fn to_int(value: usize) -> i32 {
    value as i32
}

/// The address of what the kernel reads.
#[inline(always)]
pub(crate) fn addr<T>(value: &T) -> usize {
    core::ptr::from_ref(value) as usize
}

/// The address of what the kernel writes.
#[inline(always)]
pub(crate) fn addr_mut<T>(value: &mut T) -> usize {
    core::ptr::from_mut(value) as usize
}

/// The address of what the kernel reads, or null.
#[inline(always)]
pub(crate) fn addr_or_null<T>(value: Option<&T>) -> usize {
    value.map_or(0, addr)
}
