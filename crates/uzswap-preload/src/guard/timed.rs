//! *What*: calls that wait up to a time and that the kernel does not continue after a handler: how
//! long they wait. For most an argument says so, on a socket it may be an option's value.
//!
//! *Invariants*: none. *Locking*: none. *Context*: any.

use core::sync::atomic::{AtomicBool, Ordering};

use uzswap_sys::syscall::{call5, to_int};
use uzswap_sys::thread::Timespec;
use uzswap_sys::{Errno, nr};

use super::stub::Call;
use super::user;

/// See socket(7); the latter two name the same with times of 64 bits.
const SOL_SOCKET: i32 = 1;
const SO_RCVTIMEO: usize = 20;
const SO_SNDTIMEO: usize = 21;
const SO_RCVTIMEO_NEW: usize = 66;
const SO_SNDTIMEO_NEW: usize = 67;
/// See poll(2).
const POLLIN: i16 = 1;
const POLLOUT: i16 = 4;

/// The program has given a socket a timeout. Sockets that it got with one are not known of.
static HAS_SOCKET_TIMEOUTS: AtomicBool = AtomicBool::new(false);

/// Whether calls on sockets are to note when they begin.
#[inline]
pub fn has_socket_timeouts() -> bool {
    HAS_SOCKET_TIMEOUTS.load(Ordering::Relaxed)
}

/// Whether option `name` of a socket is a timeout.
#[must_use]
pub fn is_timeout(level: i32, name: i32) -> bool {
    let names = [SO_RCVTIMEO, SO_SNDTIMEO, SO_RCVTIMEO_NEW, SO_SNDTIMEO_NEW];
    level == SOL_SOCKET && usize::try_from(name).is_ok_and(|name| names.contains(&name))
}

/// The program is about to set option `name` of a socket.
pub fn sets_option(level: i32, name: i32) {
    if is_timeout(level, name) {
        HAS_SOCKET_TIMEOUTS.store(true, Ordering::Relaxed);
    }
}

/// How many nanoseconds a call waits at most by its arguments; 0: not at all, for good, or it is
/// none of those whose end [`crate::signals::resume`] must know.
#[must_use]
pub fn longest(call: &Call) -> u64 {
    let [_, _, c, d, ..] = call.args;
    match call.nr {
        nr::EPOLL_WAIT | nr::EPOLL_PWAIT => u64::try_from(to_int(d)).unwrap_or(0) * 1_000_000,
        nr::EPOLL_PWAIT2 | nr::SEMTIMEDOP => timespec(d),
        nr::RT_SIGTIMEDWAIT => timespec(c),
        _ => 0,
    }
}

fn timespec(at: usize) -> u64 {
    if at == 0 {
        return 0;
    }
    // SAFETY: any bytes are a time.
    let time = unsafe { user::value::<Timespec>(at) };
    time.ok().and_then(Timespec::checked_nanos).unwrap_or(0)
}

/// A call on a socket that has a timeout.
#[derive(Clone, Copy, Debug)]
pub struct SocketWait {
    /// The socket.
    pub fd: i32,
    /// What it waits for, as `poll(2)` names it.
    pub events: i16,
    /// Nanoseconds, not 0.
    pub timeout: u64,
    /// What it returns at the end of that time.
    pub expired: Errno,
}

/// What call `number` on descriptor `fd` waits for; `None`: it is no such call.
#[must_use]
pub fn socket_wait(number: usize, fd: usize) -> Option<SocketWait> {
    let (events, option, expired) = kind(number)?;
    let timeout = option_value(fd, option).filter(|ns| *ns > 0)?;
    Some(SocketWait {
        fd: to_int(fd),
        events,
        timeout,
        expired,
    })
}

/// Whether call `number` may be one on a socket with a timeout.
#[cfg(feature = "loader")]
#[must_use]
pub fn may_be_on_socket(number: usize) -> bool {
    kind(number).is_some()
}

/// Of a call that a socket's timeout ends: what it waits for, the option, what it then returns.
const fn kind(number: usize) -> Option<(i16, usize, Errno)> {
    Some(match number {
        nr::READ
        | nr::READV
        | nr::RECVFROM
        | nr::RECVMSG
        | nr::RECVMMSG
        | nr::ACCEPT
        | nr::ACCEPT4 => (POLLIN, SO_RCVTIMEO, Errno::EAGAIN),
        nr::WRITE | nr::WRITEV | nr::SENDTO | nr::SENDMSG | nr::SENDMMSG => {
            (POLLOUT, SO_SNDTIMEO, Errno::EAGAIN)
        }
        nr::CONNECT => (POLLOUT, SO_SNDTIMEO, Errno::EINPROGRESS),
        _ => return None,
    })
}

/// The value of a timeout option in nanoseconds; `None`: `fd` is no socket.
fn option_value(fd: usize, option: usize) -> Option<u64> {
    // `struct timeval`: seconds and microseconds.
    let mut value = [0u64; 2];
    let mut len = size_of_val(&value);
    let (to, len) = (&raw mut value, &raw mut len);
    let level = SOL_SOCKET.unsigned_abs() as usize;
    // SAFETY: the kernel writes no more than the length says; the length's high half is 0.
    unsafe { call5(nr::GETSOCKOPT, fd, level, option, to as usize, len as usize) }.ok()?;
    let [sec, usec] = value;
    Some(
        sec.saturating_mul(1_000_000_000)
            .saturating_add(usec * 1000),
    )
}
