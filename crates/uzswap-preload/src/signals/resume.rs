//! *What*: a system call that a signal of ours broke off goes on as though nothing had come.
//!
//! The kernel restarts most calls by itself (`SA_RESTART`). Those that wait, it breaks off with EINTR
//! for every handler, and a program without handlers need not expect that. Which call it was, the
//! kernel does not tell, but the C library's instructions before the `syscall` do.
//!
//! *Invariants*: only a call that is known for certain is touched; another returns EINTR.
//! `restart_syscall` goes on with the call that was broken off last, so it is issued only after one that
//! left itself to be gone on with. *Locking*: none. *Context*: signal.

use uzswap_core::Masked;
use uzswap_sys::signal::UContext;
use uzswap_sys::syscall::to_int;
use uzswap_sys::{Errno, PAGE_SIZE, nr};

use crate::arch::code;
use crate::guard::fast;
use crate::guard::frame::{Frame, fail, in_arena};
use crate::guard::stub::{self, CALL_RETURN, Call};
use crate::threads::{self, Record};

/// Stack that must be left for a call to go on in the handler: the next signal comes on top of it.
const ROOM: usize = 24 << 10;

/// Lets the call that the signal of context `uc` broke off go on, if it did one.
///
/// # Safety
/// In a handler of ours of the thread of record `r`; `uc` is its frame.
pub unsafe fn resume(m: &Masked, r: *mut Record, uc: *mut UContext) {
    // SAFETY: the caller's promise.
    let ([_, b, c, d, ..], broken_off) = unsafe { ((*uc).syscall_args(), broken_off(r, &*uc)) };
    let Some((number, by)) = broken_off else {
        return;
    };
    let again = match number {
        nr::NANOSLEEP | nr::POLL | nr::RESTART_SYSCALL => false,
        nr::CLOCK_NANOSLEEP => b & 1 != 0,
        // Those that take a time write back what is left of it.
        nr::PAUSE | nr::SELECT | nr::PSELECT6 | nr::PPOLL => true,
        nr::EPOLL_WAIT | nr::EPOLL_PWAIT if to_int(d) < 0 => true,
        nr::RT_SIGTIMEDWAIT if c == 0 => true,
        _ => return,
    };
    // SAFETY: the caller's promise; a thread that is in no window has no open frame.
    unsafe {
        if again {
            (*uc).set_syscall_nr(number);
            (*uc).rewind_syscall();
            return;
        }
        let here = (&raw const again).addr();
        if here.saturating_sub(threads::kernel_stack(r).sp) < ROOM {
            return;
        }
        let restart = Call {
            nr: nr::RESTART_SYSCALL,
            args: [0; 6],
        };
        let ret = match by {
            // Its frame is open, and its pins hold.
            By::Guard => Frame::issue(r, &restart),
            By::Program => {
                // A handler of the program's that comes finds the restart about to be issued, which then
                // returns EINTR: as it is after a handler.
                (*uc).set_syscall_nr(restart.nr);
                Frame::open(r, uc);
                let ret = Frame::issue(r, &restart);
                Frame::close(m, r);
                ret
            }
        };
        (*uc).set_syscall_return(ret);
    }
}

/// Who has issued a call.
enum By {
    Program,
    /// The guard, or an earlier signal of ours, for the program.
    Guard,
}

/// The number of the call that the signal of context `uc` broke off, if it did one and it is known which.
///
/// # Safety
/// As [`resume`].
unsafe fn broken_off(r: *mut Record, uc: &UContext) -> Option<(usize, By)> {
    if uc.syscall_return() != fail(Errno::EINTR) {
        return None;
    }
    let sp = uc.stack_pointer();
    // SAFETY: the caller's promise.
    unsafe {
        match stub::state(uc) {
            None => loaded(uc).map(|number| (number, By::Program)),
            // Past the call, its result may be saved already: EINTR it is.
            Some(_) if uc.instruction_pointer() != CALL_RETURN => None,
            Some(_) if threads::at(sp).is_some() => Some(((*r).frame.nr, By::Guard)),
            Some(_) => fast::returned_from(uc).map(|number| (number, By::Program)),
        }
    }
}

/// The number that the instructions before the context's load.
///
/// # Safety
/// The thread has just executed what is before its instruction pointer.
unsafe fn loaded(uc: &UContext) -> Option<usize> {
    let at = uc.instruction_pointer().checked_sub(code::LEN)?;
    // Code in managed memory may be gone; before a page's beginning there may be nothing. A call of the C
    // library's that happens to lie there returns EINTR.
    if in_arena(at, code::LEN).is_some() || at % PAGE_SIZE > PAGE_SIZE - code::LEN {
        return None;
    }
    // SAFETY: code of the page that the thread has just executed a call from.
    code::loaded_nr(unsafe { *(at as *const [u8; code::LEN]) })
}
