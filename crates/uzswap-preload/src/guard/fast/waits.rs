//! *What*: calls that wait. What `poll` and `epoll_wait` write to is managed as what a call sends:
//! see [`super`]. When a wait is to end is noted where the kernel does not tell how much of it is
//! left to whoever continues the call ([`crate::signals::resume`]).
//!
//! *Invariants*, *Locking*, *Context*: as [`super`].

use uzswap_sys::syscall::{int, to_int};
use uzswap_sys::thread::Timespec;
use uzswap_sys::{Errno, nr};

use super::{is_ours, is_result, is_tryable, issue, next, on, real, returned};
use crate::arch::tls;
use crate::guard::user;
use crate::maps::set_errno;

type Poll = unsafe extern "C" fn(usize, usize, i32) -> i32;
type EpollWait = unsafe extern "C" fn(i32, usize, i32, i32) -> i32;
type EpollPwait = unsafe extern "C" fn(i32, usize, i32, i32, usize) -> i32;
type EpollPwait2 = unsafe extern "C" fn(i32, usize, i32, usize, usize) -> i32;
type SemTimedOp = unsafe extern "C" fn(i32, usize, usize, usize) -> i32;
type SigTimedWait = unsafe extern "C" fn(usize, usize, usize) -> i32;
type ClockGettime = unsafe extern "C" fn(i32, *mut Timespec) -> i32;

/// Issues a call that waits for what is written to `[addr, addr + len)`. `None`: the C library is
/// to make it.
unsafe fn wait(nr: usize, args: [usize; 6], addr: usize, len: usize) -> Option<i32> {
    if !is_ours(addr, len) || !is_tryable(addr, len) {
        return None;
    }
    let [a, b, c, d, e, f] = args;
    // SAFETY: the program's own call.
    let ret = unsafe { issue(nr, a, b, c, d, e, f) };
    is_result(ret).then(|| to_int(returned(ret).cast_unsigned()))
}

/// Makes a call that waits up to `timeout` milliseconds, with its end noted.
fn until(timeout: i32, call: impl FnOnce() -> i32) -> i32 {
    within(u64::try_from(timeout).unwrap_or(0) * 1_000_000, call)
}

/// As [`until`], with the timeout as the program has it at an address.
fn until_timespec(timeout: usize, call: impl FnOnce() -> i32) -> i32 {
    // SAFETY: any bytes are a time.
    let time = unsafe { user::value::<Timespec>(timeout) };
    within(
        time.ok().and_then(Timespec::checked_nanos).unwrap_or(0),
        call,
    )
}

/// Makes a call that waits up to `ns` nanoseconds, with its end noted; 0: not at all, or for good.
fn within(ns: u64, call: impl FnOnce() -> i32) -> i32 {
    let record = tls::record();
    if ns == 0 || !on() || record.is_null() {
        return call();
    }
    const CLOCK_MONOTONIC: i32 = 1;
    let mut now = Timespec::default();
    // SAFETY: the C library's function, which takes no system call; this thread's record.
    unsafe {
        real::<ClockGettime>(&next::clock_gettime)(CLOCK_MONOTONIC, &raw mut now);
        (*record).deadline = now.nanos().saturating_add(ns);
        let ret = call();
        (*record).deadline = 0;
        ret
    }
}

/// `poll(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(fds: usize, nr_fds: usize, timeout: i32) -> i32 {
    let real = real::<Poll>(&next::poll);
    // SAFETY: the program's own call.
    unsafe {
        let args = [fds, nr_fds, int(timeout), 0, 0, 0];
        wait(nr::POLL, args, fds, nr_fds.saturating_mul(8))
            .unwrap_or_else(|| real(fds, nr_fds, timeout))
    }
}

/// `epoll_wait(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(fd: i32, events: usize, most: i32, timeout: i32) -> i32 {
    let real = real::<EpollWait>(&next::epoll_wait);
    let len = usize::try_from(most).unwrap_or(0).saturating_mul(12);
    let args = [int(fd), events, int(most), int(timeout), 0, 0];
    // SAFETY: the program's own call.
    until(timeout, || unsafe {
        wait(nr::EPOLL_WAIT, args, events, len).unwrap_or_else(|| real(fd, events, most, timeout))
    })
}

/// `epoll_pwait(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(
    fd: i32,
    events: usize,
    most: i32,
    timeout: i32,
    mask: usize,
) -> i32 {
    let real = real::<EpollPwait>(&next::epoll_pwait);
    // SAFETY: the program's own call.
    until(timeout, || unsafe { real(fd, events, most, timeout, mask) })
}

/// `epoll_pwait2(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait2(
    fd: i32,
    events: usize,
    most: i32,
    timeout: usize,
    mask: usize,
) -> i32 {
    // Older ones do not have it.
    if next::epoll_pwait2.get().is_null() {
        set_errno(Errno::ENOSYS);
        return -1;
    }
    let real = real::<EpollPwait2>(&next::epoll_pwait2);
    // SAFETY: the program's own call.
    until_timespec(timeout, || unsafe { real(fd, events, most, timeout, mask) })
}

/// `semtimedop(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn semtimedop(set: i32, ops: usize, nr_ops: usize, timeout: usize) -> i32 {
    let real = real::<SemTimedOp>(&next::semtimedop);
    // SAFETY: the program's own call.
    until_timespec(timeout, || unsafe { real(set, ops, nr_ops, timeout) })
}

/// `sigtimedwait(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigtimedwait(signals: usize, info: usize, timeout: usize) -> i32 {
    let real = real::<SigTimedWait>(&next::sigtimedwait);
    // SAFETY: the program's own call.
    until_timespec(timeout, || unsafe { real(signals, info, timeout) })
}
