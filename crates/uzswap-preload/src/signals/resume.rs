//! *What*: continues a system call that a signal of ours interrupted, as though nothing had come.
//!
//! The kernel restarts most calls by itself (`SA_RESTART`). Calls that wait return EINTR after any
//! handler, and a program without handlers need not expect that. The kernel does not say which call
//! it was, but the C library's instructions before the system call do.
//!
//! *Invariants*: only a call that is known for certain is continued; another returns EINTR.
//! `restart_syscall` continues the call that was interrupted last, so it is issued only after one
//! that can be continued by it. *Locking*: none. *Context*: signal.

use uzswap_core::Masked;
use uzswap_sys::signal::UContext;
use uzswap_sys::syscall::to_int;
use uzswap_sys::{Errno, PAGE_SIZE, nr};

use crate::arch::code;
use crate::guard::fast;
use crate::guard::frame::{Frame, fail, in_arena};
use crate::guard::stub::{self, Call, PROGRAM_GATE_RETURN};
use crate::threads::{self, Record};

/// Stack that must be left to issue the call from the handler: the next signal comes on top of it.
const MIN_STACK_LEFT: usize = 24 << 10;

/// Continues the call that the signal of context `uc` interrupted, if it did interrupt one.
///
/// # Safety
/// In a handler of ours of the thread of record `r`; `uc` is its frame.
pub unsafe fn resume(m: &Masked, r: *mut Record, uc: *mut UContext) {
    // SAFETY: the caller's promise.
    let ([_, b, c, d, ..], interrupted) = unsafe { ((*uc).syscall_args(), interrupted(r, &*uc)) };
    let Some((number, by)) = interrupted else {
        return;
    };
    let again = match number {
        nr::NANOSLEEP | nr::POLL | nr::RESTART_SYSCALL => false,
        nr::CLOCK_NANOSLEEP => b & 1 != 0,
        // Where these take a time, the kernel has written back what is left of it.
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
        if here.saturating_sub(threads::kernel_stack(r).sp) < MIN_STACK_LEFT {
            return;
        }
        let restart = Call {
            nr: nr::RESTART_SYSCALL,
            args: [0; 6],
        };
        let ret = match by {
            // Its frame is open, and its pins hold.
            Issuer::Guard => Frame::issue(r, &restart),
            Issuer::Program => {
                // A handler of the program's that runs meanwhile finds the restart about to be
                // issued, which then returns EINTR: as it does after a handler.
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
enum Issuer {
    Program,
    /// The guard, or an earlier signal of ours, for the program.
    Guard,
}

/// The number of the call that the signal of context `uc` interrupted; `None` if there was none, or
/// it is not known which.
///
/// # Safety
/// As [`resume`].
unsafe fn interrupted(r: *mut Record, uc: &UContext) -> Option<(usize, Issuer)> {
    if uc.syscall_return() != fail(Errno::EINTR) {
        return None;
    }
    let sp = uc.stack_pointer();
    // SAFETY: the caller's promise.
    unsafe {
        match stub::state(uc) {
            None => loaded(uc).map(|number| (number, Issuer::Program)),
            // Past the call, its result may be saved already: it stays EINTR.
            Some(_) if uc.instruction_pointer() != PROGRAM_GATE_RETURN => None,
            Some(_) if threads::at(sp).is_some() => Some(((*r).frame.nr, Issuer::Guard)),
            Some(_) => fast::returned_from(uc).map(|number| (number, Issuer::Program)),
        }
    }
}

/// The number that the instructions before the context's load.
///
/// # Safety
/// The thread has just executed what is before its instruction pointer.
unsafe fn loaded(uc: &UContext) -> Option<usize> {
    let at = uc.instruction_pointer().checked_sub(code::LEN)?;
    // Code in managed memory may be evicted, and the page before may not be mapped. A call of the C
    // library's that lies so returns EINTR.
    if in_arena(at, code::LEN).is_some() || at % PAGE_SIZE > PAGE_SIZE - code::LEN {
        return None;
    }
    // SAFETY: code of the page that the thread has just executed a call from.
    code::loaded_nr(unsafe { *(at as *const [u8; code::LEN]) })
}
