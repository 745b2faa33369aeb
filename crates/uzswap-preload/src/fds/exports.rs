//! *What*: `close`, `dup2`, `dup3`, `closefrom` and `close_range`, interposed, and `fstat` and
//! `fcntl`, by which programs find out what is open: to all of them our descriptors are not.
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
type IntAndPlace = unsafe extern "C" fn(i32, usize) -> i32;
type TwoIntsAndWord = unsafe extern "C" fn(i32, i32, usize) -> i32;

static CLOSE: Next = Next::new(c"close");
static DUP2: Next = Next::new(c"dup2");
static DUP3: Next = Next::new(c"dup3");
static FSTAT: Next = Next::new(c"fstat");
static FSTAT64: Next = Next::new(c"fstat64");
static FXSTAT: Next = Next::new(c"__fxstat");
static FXSTAT64: Next = Next::new(c"__fxstat64");
static FCNTL: Next = Next::new(c"fcntl");
static FCNTL64: Next = Next::new(c"fcntl64");

/// Looks up what signal handlers may call.
extern "C" fn find_all() {
    // None of them is in every C library.
    for next in [
        &CLOSE, &FSTAT, &FSTAT64, &FXSTAT, &FXSTAT64, &FCNTL, &FCNTL64,
    ] {
        let _ = next.get();
    }
}

/// While the library is set up, where locks of the loader can be waited for.
#[used]
#[unsafe(link_section = ".init_array.00002")]
static FIND: extern "C" fn() = find_all;

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

/// `fstat(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat(fd: i32, into: usize) -> i32 {
    // SAFETY: the symbol's type; as the caller's.
    unsafe { stat_by(&FSTAT, fd, into) }
}

/// `fstat(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat64(fd: i32, into: usize) -> i32 {
    // SAFETY: the symbol's type; as the caller's.
    unsafe { stat_by(&FSTAT64, fd, into) }
}

/// # Safety
/// `next` is an `fstat`; as its caller's.
unsafe fn stat_by(next: &Next, fd: i32, into: usize) -> i32 {
    if is_ours(fd) {
        return refuse(Errno::EBADF);
    }
    // SAFETY: as the caller's.
    unsafe { next.typed::<IntAndPlace>()(fd, into) }
}

/// `fstat(2)`, in programs linked with glibc before 2.33.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __fxstat(version: i32, fd: i32, into: usize) -> i32 {
    // SAFETY: the symbol's type; as the caller's.
    unsafe { versioned_stat_by(&FXSTAT, version, fd, into) }
}

/// `fstat(2)`, in programs linked with glibc before 2.33.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __fxstat64(version: i32, fd: i32, into: usize) -> i32 {
    // SAFETY: the symbol's type; as the caller's.
    unsafe { versioned_stat_by(&FXSTAT64, version, fd, into) }
}

/// # Safety
/// `next` is an `__fxstat`; as its caller's.
unsafe fn versioned_stat_by(next: &Next, version: i32, fd: i32, into: usize) -> i32 {
    if is_ours(fd) {
        return refuse(Errno::EBADF);
    }
    // SAFETY: as the caller's.
    unsafe { next.typed::<TwoIntsAndWord>()(version, fd, into) }
}

/// `fcntl(2)`. Not variadic: the third argument is in the same register, whatever its type, and
/// goes on as it is where the call has none.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: i32, command: i32, arg: usize) -> i32 {
    // SAFETY: the symbol's type; as the caller's.
    unsafe { control_by(&FCNTL, fd, command, arg) }
}

/// `fcntl(2)`, by the name that new programs call.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: i32, command: i32, arg: usize) -> i32 {
    // SAFETY: the symbol's type; as the caller's.
    unsafe { control_by(&FCNTL64, fd, command, arg) }
}

/// # Safety
/// `next` is an `fcntl`; as its caller's.
unsafe fn control_by(next: &Next, fd: i32, command: i32, arg: usize) -> i32 {
    if is_ours(fd) {
        return refuse(Errno::EBADF);
    }
    // SAFETY: as the caller's. A variadic function finds its third argument in the same register;
    // it has none in vector registers, whose number it is not told.
    unsafe { next.typed::<TwoIntsAndWord>()(fd, command, arg) }
}
