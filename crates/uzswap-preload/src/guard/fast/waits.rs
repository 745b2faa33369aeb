//! *What*: calls that wait. What `poll` and `epoll_wait` write to is managed as what a call sends:
//! see [`super`]. When a wait is to end is noted where the kernel does not tell how much of it is
//! left to whoever continues the call ([`crate::signals::resume`]).
//!
//! *Invariants*, *Locking*, *Context*: as [`super`].

use uzswap_sys::signal::UContext;
use uzswap_sys::syscall::{int, to_int};
use uzswap_sys::thread::Timespec;
use uzswap_sys::{Errno, nr};

use super::{is_ours, is_result, is_tryable, issue, next, on, real, returned};
use crate::arch::tls;
use crate::guard::stub::Call;
use crate::guard::timed;
use crate::maps::set_errno;
use crate::threads::Record;

type Poll = unsafe extern "C" fn(usize, usize, i32) -> i32;
type EpollWait = unsafe extern "C" fn(i32, usize, i32, i32) -> i32;
type EpollPwait = unsafe extern "C" fn(i32, usize, i32, i32, usize) -> i32;
type EpollPwait2 = unsafe extern "C" fn(i32, usize, i32, usize, usize) -> i32;
type SemTimedOp = unsafe extern "C" fn(i32, usize, usize, usize) -> i32;
type SigTimedWait = unsafe extern "C" fn(usize, usize, usize) -> i32;
type Syscall = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize) -> isize;
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

/// Makes call `nr`, whose arguments say how long it waits, with its end noted.
fn until<T>(nr: usize, args: [usize; 6], make: impl FnOnce() -> T) -> T {
    let record = tls::record();
    if !on() || record.is_null() {
        return make();
    }
    let ns = timed::longest(&Call { nr, args });
    if ns == 0 {
        return make();
    }
    // SAFETY: this thread's record.
    unsafe {
        (*record).deadline = now().saturating_add(ns);
        let ret = make();
        (*record).deadline = 0;
        ret
    }
}

/// Makes a call on what may be a socket, with its begin noted if it may have a timeout.
#[inline]
pub fn timed<T>(make: impl FnOnce() -> T) -> T {
    if timed::has_socket_timeouts() {
        since(make)
    } else {
        make()
    }
}

fn since<T>(make: impl FnOnce() -> T) -> T {
    let record = tls::record();
    if !on() || record.is_null() {
        return make();
    }
    // SAFETY: this thread's record.
    unsafe {
        (*record).began = now();
        let ret = make();
        (*record).began = 0;
        ret
    }
}

/// Nanoseconds of the monotonic clock.
fn now() -> u64 {
    const CLOCK_MONOTONIC: i32 = 1;
    let mut now = Timespec::default();
    // SAFETY: the C library's function, which takes no system call.
    unsafe { real::<ClockGettime>(&next::clock_gettime)(CLOCK_MONOTONIC, &raw mut now) };
    now.nanos()
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
    until(nr::EPOLL_WAIT, args, || unsafe {
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
    let args = [int(fd), events, int(most), int(timeout), mask, 0];
    // SAFETY: the program's own call.
    until(nr::EPOLL_PWAIT, args, || unsafe {
        real(fd, events, most, timeout, mask)
    })
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
    let args = [int(fd), events, int(most), timeout, mask, 0];
    // SAFETY: the program's own call.
    until(nr::EPOLL_PWAIT2, args, || unsafe {
        real(fd, events, most, timeout, mask)
    })
}

/// `semtimedop(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn semtimedop(set: i32, ops: usize, nr_ops: usize, timeout: usize) -> i32 {
    let real = real::<SemTimedOp>(&next::semtimedop);
    let args = [int(set), ops, nr_ops, timeout, 0, 0];
    // SAFETY: the program's own call.
    until(nr::SEMTIMEDOP, args, || unsafe {
        real(set, ops, nr_ops, timeout)
    })
}

/// `sigtimedwait(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigtimedwait(signals: usize, info: usize, timeout: usize) -> i32 {
    let real = real::<SigTimedWait>(&next::sigtimedwait);
    let args = [signals, info, timeout, 0, 0, 0];
    // SAFETY: the program's own call.
    until(nr::RT_SIGTIMEDWAIT, args, || unsafe {
        real(signals, info, timeout)
    })
}

/// `syscall(2)`: the kernel does not say which call a signal interrupted, and the C library's code,
/// which is given the number, does not either.
///
/// # Safety
/// As the C library's. It takes six arguments, whatever the program passed; so does the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    nr: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    let real = real::<Syscall>(&next::syscall);
    let record = tls::record();
    if record.is_null() {
        // SAFETY: the program's own call.
        return unsafe { real(nr, a, b, c, d, e, f) };
    }
    let args = [a, b, c, d, e, f];
    // SAFETY: the program's own call; this thread's record.
    until(nr, args, || unsafe {
        (*record).passed_on = nr.wrapping_add(1);
        let ret = real(nr, a, b, c, d, e, f);
        (*record).passed_on = 0;
        ret
    })
}

/// The number of the call of [`syscall`] that has just returned to `uc`, a context of the thread
/// of record `r`.
///
/// # Safety
/// The record is this thread's.
pub unsafe fn passed_on(r: *mut Record, uc: &UContext) -> Option<usize> {
    /// Instructions of the C library's function up to the call take no more.
    const MAX_LEN: usize = 64;
    // SAFETY: the caller's promise.
    let number = unsafe { (*r).passed_on }.checked_sub(1)?;
    // Found when the call was made.
    let at = next::syscall.get() as usize;
    let is_there = (at..at + MAX_LEN).contains(&uc.instruction_pointer());
    is_there.then_some(number)
}
