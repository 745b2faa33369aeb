//! *What*: calls that reach the guard in this image alone, since only here every call does.
//!
//! *Invariants*: a call that is none of these is the guard's.
//! *Locking*: none. *Context*: signal.

use uzswap_core::Masked;
use uzswap_sys::mem::{MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT};
use uzswap_sys::seccomp::PR_SET_SECCOMP;
use uzswap_sys::signal::UContext;
use uzswap_sys::syscall::to_int;
use uzswap_sys::{Errno, nr, thread};

use super::{clone, program_break};
use crate::fds::is_ours;
use crate::guard::servable::AT_EMPTY_PATH;
use crate::guard::stub::Call;
use crate::guard::timed;
use crate::guard::tracee::{self, PTRACE_TRACEME};
use crate::inject::PR_SET_SYSCALL_USER_DISPATCH;
use crate::threads::Record;

/// See prctl(2) and seccomp(2).
const MODE_STRICT: usize = 1;
const SET_MODE_STRICT: usize = 0;

/// Carries out a trapped call, if it is one of these.
///
/// # Safety
/// In the SIGSYS handler of the thread of record `r`, whose frame is open; `uc` is its context.
pub unsafe fn serve(
    m: &Masked,
    r: *mut Record,
    uc: *mut UContext,
    call: &Call,
) -> Option<Result<isize, Errno>> {
    let [a, b, ..] = call.args;
    Some(match call.nr {
        nr::BRK => Ok(program_break::brk(m, a).cast_signed()),
        // SAFETY: the caller's promise.
        _ if clone::shares_memory(call) => unsafe { clone::clone(m, r, uc, call) },
        nr::CLOSE | nr::FSTAT | nr::FCNTL if is_ours(to_int(a)) => Err(Errno::EBADF),
        // The C library's `fstat`.
        nr::NEWFSTATAT if is_ours(to_int(a)) && to_int(call.args[3]) & AT_EMPTY_PATH != 0 => {
            Err(Errno::EBADF)
        }
        nr::DUP2 | nr::DUP3 if is_ours(to_int(a)) || is_ours(to_int(b)) => Err(Errno::EBADF),
        nr::PTRACE if to_int(a) == PTRACE_TRACEME && tracee::ask() => Ok(0),
        nr::MLOCKALL => mlockall(to_int(a)),
        // Callers fall back, as they do in containers. Their memory would be reached unseen, or
        // their children come about so.
        nr::CLONE3 | nr::IO_URING_SETUP | nr::IO_SETUP | nr::USERFAULTFD => Err(Errno::ENOSYS),
        // As on a processor without protection keys, whose rights our handlers would not have.
        nr::PKEY_ALLOC => Err(Errno::ENOSPC),
        nr::PRCTL if a == PR_SET_SYSCALL_USER_DISPATCH => Err(Errno::EINVAL),
        // Four calls would be left, on pain of death: a page fault takes others.
        nr::PRCTL if to_int(a) == PR_SET_SECCOMP && b == MODE_STRICT => Err(Errno::EINVAL),
        nr::SECCOMP if a == SET_MODE_STRICT => Err(Errno::EINVAL),
        _ => return None,
    })
}

/// Notes what [`crate::signals::resume`] must know of a call's times.
///
/// # Safety
/// In the SIGSYS handler of the thread of record `r`.
pub unsafe fn note_times(r: *mut Record, call: &Call) {
    if call.nr == nr::SETSOCKOPT {
        timed::sets_option(to_int(call.args[1]), to_int(call.args[2]));
    }
    let longest = timed::longest(call);
    let is_timed = longest != 0;
    let may_be_socket = timed::has_socket_timeouts() && timed::may_be_on_socket(call.nr);
    let now = if is_timed || may_be_socket {
        thread::monotonic_ns()
    } else {
        0
    };
    // SAFETY: the caller's promise.
    unsafe {
        (*r).deadline = if is_timed {
            now.saturating_add(longest)
        } else {
            0
        };
        (*r).began = if may_be_socket { now } else { 0 };
    }
}

/// `mlockall(2)` does nothing: the kernel would try to fill the whole arena.
const fn mlockall(flags: i32) -> Result<isize, Errno> {
    let known = MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT;
    if flags == 0 || flags == MCL_ONFAULT || flags & !known != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(0)
}
