//! *What*: the descriptors that are ours (userfaultfd, swap devices, the reclaimer's pipe), which
//! the program must neither close nor replace: interposed `close`, `dup2`, `dup3`, `closefrom` and
//! `close_range` treat them as not open.
//!
//! *Invariants*: our descriptors have high numbers, where programs do not put theirs. Calls of
//! `close_range` from inside the C library (spawn file actions) come through filter B.
//! *Locking*: none. *Context*: any but signal; [`split_close_range`] also signal.

use uzswap_sys::syscall::{call3, from_raw};
use uzswap_sys::{Errno, nr};

use crate::guard::frame::{fail, is_error};
use crate::init::ENGINE;
use crate::maps::set_errno;
use crate::next::Next;

/// Whether `fd` is ours.
#[must_use]
pub fn is_ours(fd: i32) -> bool {
    fd >= 0 && ENGINE.descriptors().contains(&fd)
}

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

/// `close_range` around our descriptors; returns as the kernel does.
#[must_use]
pub fn split_close_range(first: usize, last: usize, flags: usize) -> isize {
    const CLOSE_RANGE_UNSHARE: usize = 2;
    let mut ours = ENGINE.descriptors();
    ours.sort_unstable();
    let ours = ours.map(usize::try_from);
    let ours = ours
        .iter()
        .flatten()
        .filter(|fd| (first..=last).contains(*fd));
    let mut flags = flags;
    let mut from = first;
    // Up to each of ours, then the rest; what is left empty needs no call, but an invalid range is
    // the kernel's to refuse.
    for &fd in ours {
        if fd > from {
            let done = close_all(from, fd - 1, flags);
            if done != 0 {
                return done;
            }
            // Done by the first call.
            flags &= !CLOSE_RANGE_UNSHARE;
        }
        from = fd + 1;
    }
    if from > last && from > first {
        return 0;
    }
    close_all(from, last, flags)
}

fn close_all(first: usize, last: usize, flags: usize) -> isize {
    // SAFETY: closes what the program asked to close, and nothing of ours.
    unsafe { call3(nr::CLOSE_RANGE, first, last, flags) }.map_or_else(fail, |_| 0)
}
