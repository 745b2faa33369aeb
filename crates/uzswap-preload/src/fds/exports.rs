//! *What*: `close`, `dup2`, `dup3`, `closefrom` and `close_range`, interposed: to them our
//! descriptors are not open.
//!
//! *Invariants*: as the C library's in all else.
//! *Locking*: none. *Context*: any but signal.

use uzswap_sys::Errno;
use uzswap_sys::syscall::from_raw;

use super::{is_ours, split_close_range};
use crate::guard::frame::is_error;
use crate::maps::set_errno;
use crate::next::Next;

fn refuse(errno: Errno) -> i32 {
    set_errno(errno);
    -1
}

type OneInt = unsafe extern "C" fn(i32) -> i32;
type TwoInts = unsafe extern "C" fn(i32, i32) -> i32;
type ThreeInts = unsafe extern "C" fn(i32, i32, i32) -> i32;

static CLOSE: Next = Next::new(c"close");
static DUP2: Next = Next::new(c"dup2");
static DUP3: Next = Next::new(c"dup3");

/// `close(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: i32) -> i32 {
    if is_ours(fd) {
        return refuse(Errno::EBADF);
    }
    // SAFETY: the symbol's type; as the caller's.
    unsafe { CLOSE.typed::<OneInt>()(fd) }
}

/// `dup2(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(from: i32, to: i32) -> i32 {
    if is_ours(to) || is_ours(from) {
        return refuse(Errno::EBADF);
    }
    // SAFETY: the symbol's type; as the caller's.
    unsafe { DUP2.typed::<TwoInts>()(from, to) }
}

/// `dup3(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(from: i32, to: i32, flags: i32) -> i32 {
    if is_ours(to) || is_ours(from) {
        return refuse(Errno::EBADF);
    }
    // SAFETY: the symbol's type; as the caller's.
    unsafe { DUP3.typed::<ThreeInts>()(from, to, flags) }
}

/// `close_range(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: u32, last: u32, flags: i32) -> i32 {
    match from_raw(split_close_range(
        first as usize,
        last as usize,
        uzswap_sys::syscall::int(flags),
    )) {
        Ok(_) => 0,
        Err(errno) => refuse(errno),
    }
}

/// `closefrom(3)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: i32) {
    let first = usize::try_from(first).unwrap_or(0);
    let most = u32::MAX as usize;
    if is_error(split_close_range(first, most, 0)) {
        // A kernel before 5.9.
        for fd in first..1 << 16 {
            // SAFETY: closes what the program asked to close.
            unsafe { close(i32::try_from(fd).unwrap_or(-1)) };
        }
    }
}
