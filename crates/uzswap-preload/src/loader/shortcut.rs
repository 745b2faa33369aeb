//! *What*: calls by rewritten sites ([`super::sites`]): those that the guard would only issue are
//! issued in the program's own context. Others go on to the site's system call instruction, which
//! is still there, and are trapped as before.
//!
//! What a call touches in the arena is announced as a [hazard](uzswap_core::arena::hazard), which
//! reclaim passes over; futex words and the events of `epoll_wait` are not, since these calls can
//! be made again when they fail with `EFAULT`.
//!
//! *Invariants*: nothing is held but the thread's hazard. A signal of the program takes the thread
//! back ([`take_back`]): to its site, about to issue the call, or just returned from it. So
//! handlers, unwinders and the cancellation of threads see what they would see natively.
//! *Locking*: none. *Context*: the program's.

use core::sync::atomic::{Ordering, compiler_fence};

use uzswap_core::arena_part;
use uzswap_sys::signal::UContext;
use uzswap_sys::syscall::to_int;
use uzswap_sys::{Errno, file, nr};

use super::sites;
use crate::arch::shortcut::{Go, Saved, State};
use crate::fds::is_ours;
use crate::guard::frame::fail;
use crate::guard::is_writable;
use crate::guard::stub::Call;
use crate::guard::table::{self, Extent};
use crate::guard::timed;
use crate::init::ENGINE;
use crate::threads::{self, Record};

/// Longest memory that is announced for a call.
const MAX_BYTES: usize = 64 << 10;
/// For [`Saved::again`].
const NEVER: u64 = 0;
const AGAIN: u64 = 1;
const AGAIN_IF_WRITABLE: u64 = 2;

/// The call is to be trapped.
const TRAP: Go = Go {
    word: core::ptr::null(),
    says: 0,
};

/// How a call may be issued here.
enum Way {
    /// It touches no memory of the arena.
    Freely,
    /// It touches this memory, which lies there.
    Announced(usize, usize),
    /// If it fails with `EFAULT` it has done nothing.
    Repeatable,
    /// It is the guard's.
    Trapped,
}

/// Whether calls of that number are among those that may be issued here.
#[must_use]
pub const fn may_pass(number: usize) -> bool {
    matches!(
        number,
        nr::READ
            | nr::WRITE
            | nr::PREAD64
            | nr::PWRITE64
            | nr::RECVFROM
            | nr::SENDTO
            | nr::FUTEX
            | nr::EPOLL_WAIT
            | nr::EPOLL_PWAIT
            | nr::EPOLL_CTL
            | nr::POLL
            | nr::CLOSE
            | nr::FSTAT
            | nr::NEWFSTATAT
            | nr::STATX
            | nr::OPENAT
            | nr::FCNTL
            | nr::LSEEK
            | nr::GETDENTS64
            | nr::CLOCK_GETTIME
            | nr::NANOSLEEP
            | nr::CLOCK_NANOSLEEP
            | nr::SCHED_YIELD
            | nr::GETPID
            | nr::GETTID
            | nr::GETPPID
            | nr::KILL
            | nr::TGKILL
            | nr::GETRANDOM
            | nr::GETRUSAGE
            | nr::ACCEPT4
            | nr::GETSOCKOPT
            | nr::SETSOCKOPT
    )
}

/// Whether the guard would do more than pin what the call's pointers name, and issue it.
fn is_special(call: &Call) -> bool {
    let [a, _, _, d, ..] = call.args;
    match call.nr {
        nr::CLOSE | nr::FSTAT => is_ours(to_int(a)),
        nr::NEWFSTATAT => is_ours(to_int(a)),
        nr::FCNTL => is_ours(to_int(a)) || !matches!(to_int(call.args[1]), F_GETFD..=F_SETFL),
        nr::SETSOCKOPT => timed::is_timeout(to_int(call.args[1]), to_int(call.args[2])),
        // Their end would have to be noted.
        nr::EPOLL_WAIT | nr::EPOLL_PWAIT => to_int(d) > 0,
        _ => timed::has_socket_timeouts() && timed::may_be_on_socket(call.nr),
    }
}

const F_GETFD: i32 = file::F_GETFD;
const F_SETFL: i32 = 4;

/// How `call` may be issued.
fn way(call: &Call) -> Way {
    if !may_pass(call.nr) || is_special(call) {
        return Way::Trapped;
    }
    let mut found = None;
    for pointer in table::pointers(call.nr) {
        let arg = |n: u8| call.args.get(usize::from(n)).copied().unwrap_or(0);
        let addr = arg(pointer.arg);
        let len = match pointer.extent {
            Extent::Bytes(n) => n as usize,
            Extent::Units(n, unit) => arg(n).saturating_mul(usize::from(unit)),
            _ => 1,
        };
        if arena_part(addr, len.max(1)).is_none() {
            continue;
        }
        let is_known = matches!(pointer.extent, Extent::Bytes(_) | Extent::Units(..));
        match (call.nr, pointer.arg) {
            (nr::FUTEX, 0) if is_repeatable_futex(call) => {}
            // A number, where the call is one that wakes.
            (nr::FUTEX, 3 | 4) if is_waking(to_int(call.args[1])) => {}
            (nr::EPOLL_WAIT | nr::EPOLL_PWAIT, 1) => {}
            // The kernel continues these after a signal of ours, and goes back to their memory.
            (nr::POLL | nr::NANOSLEEP | nr::CLOCK_NANOSLEEP, _) => return Way::Trapped,
            _ if found.is_some() || !is_known => return Way::Trapped,
            _ => found = Some((addr, len)),
        }
    }
    match found {
        Some((_, 0)) => Way::Freely,
        Some((addr, len)) if len <= MAX_BYTES => Way::Announced(addr, len),
        Some(_) => Way::Trapped,
        None if matches!(call.nr, nr::FUTEX | nr::EPOLL_WAIT | nr::EPOLL_PWAIT) => Way::Repeatable,
        None => Way::Freely,
    }
}

/// `FUTEX_WAKE`, or `FUTEX_WAIT` without a time, each also with a bit set: those that the kernel
/// does not continue after a signal of ours.
const fn is_repeatable_futex(call: &Call) -> bool {
    const WAIT: i32 = 0;
    const WAIT_BITSET: i32 = 9;
    let [_, op, _, time, ..] = call.args;
    let op = to_int(op) & 0x7f;
    is_waking(op) || op == WAIT_BITSET || (op == WAIT && time == 0)
}

const fn is_waking(op: i32) -> bool {
    const WAKE: i32 = 1;
    const WAKE_BITSET: i32 = 10;
    matches!(op & 0x7f, WAKE | WAKE_BITSET)
}

/// The record whose shortcut `saved` belongs to.
fn record(saved: *mut Saved) -> Option<*mut Record> {
    threads::at(saved.addr())
}

/// Decides whether the call may be issued, and announces what it touches.
///
/// # Safety
/// From the code behind a site, with this thread's `saved`.
pub unsafe extern "C" fn prepare(saved: *mut Saved) -> Go {
    let Some(r) = record(saved) else {
        return TRAP;
    };
    // SAFETY: the caller's promise: a record is its thread's.
    let call = unsafe {
        (*r).deadline = 0;
        (*r).began = 0;
        (*saved).call()
    };
    let (again, hazard) = match way(&call) {
        Way::Trapped => return TRAP,
        Way::Freely => (NEVER, None),
        Way::Repeatable => (AGAIN, None),
        Way::Announced(addr, len) => match ENGINE.announce(threads::number(r), addr, len) {
            Some(hazard) => (AGAIN_IF_WRITABLE, Some(hazard)),
            None => return TRAP,
        },
    };
    // SAFETY: as above.
    unsafe {
        (*saved).again = again;
        (*saved).nothing = 0;
        hazard.map_or(
            Go {
                word: &raw const (*saved).nothing,
                says: 0,
            },
            |hazard| Go {
                word: hazard.word().cast(),
                says: hazard.value(),
            },
        )
    }
}

/// Withdraws the hazard of a call that has returned. `false`: the call found no memory, and is to
/// be trapped.
///
/// # Safety
/// As [`prepare`].
pub unsafe extern "C" fn finish(saved: *mut Saved) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        if (*saved).again == AGAIN_IF_WRITABLE
            && let Some(r) = record(saved)
        {
            ENGINE.withdraw(threads::number(r));
        }
        if is_result(&*saved, (*saved).ret) {
            return true;
        }
        // A signal from here on finds the call not issued.
        (&raw mut (*saved).returned).write_volatile(0);
    }
    compiler_fence(Ordering::SeqCst);
    false
}

/// Whether `ret` is the program's to see. Memory that may be written was there: to fail is then the
/// call's own result, and what it took from a socket is gone, as natively.
fn is_result(saved: &Saved, ret: isize) -> bool {
    if ret != fail(Errno::EFAULT) {
        return true;
    }
    match saved.again {
        NEVER => true,
        AGAIN => false,
        _ => match way(&saved.call()) {
            Way::Announced(addr, len) => !is_writable(addr, len),
            _ => false,
        },
    }
}

/// Takes back a thread that a signal found on its way through a rewritten site, so that `uc` is the
/// context that it would have been interrupted in with the site as it was. Returns the number of
/// the call if it had returned.
///
/// # Safety
/// In a handler of ours that interrupted the thread of record `r`; `uc` is its frame.
pub unsafe fn take_back(r: *mut Record, uc: &mut UContext) -> Option<usize> {
    if sites::take_back(uc) {
        return None;
    }
    // SAFETY: the record is this thread's.
    let shortcut = unsafe { &mut (*r).shortcut };
    let mut state = shortcut.state(uc);
    if state == State::Elsewhere {
        return None;
    }
    ENGINE.withdraw(threads::number(r));
    if let State::Returned(ret) = state
        && !is_result(shortcut.saved(), ret)
    {
        state = State::NotIssued;
    }
    let number = shortcut.saved().call().nr;
    // SAFETY: the caller's promise.
    unsafe { shortcut.take_back(uc, state) };
    matches!(state, State::Returned(_)).then_some(number)
}

/// [`take_back`], from the handler stack of the thread.
///
/// # Safety
/// As [`take_back`].
pub unsafe fn take_back_here(uc: &mut UContext) {
    let here = 0u8;
    if let Some(r) = threads::at((&raw const here).addr()) {
        // SAFETY: the record of the handler stack that we run on is this thread's.
        let _ = unsafe { take_back(r, uc) };
    }
}
