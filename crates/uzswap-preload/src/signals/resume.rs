//! *What*: continues a system call that a signal of ours interrupted, as though nothing had come.
//!
//! The kernel restarts most calls by itself (`SA_RESTART`). Calls that wait return EINTR after any
//! handler, and a program without handlers need not expect that. The kernel does not say which call
//! it was, but the C library's instructions before the system call do, and of `syscall(2)` the
//! thread's record.
//!
//! *Invariants*: only a call that is known for certain is continued; another returns EINTR.
//! `restart_syscall` continues the call that was interrupted last, so it is issued only after one
//! that can be continued by it. *Locking*: none. *Context*: signal.

use uzswap_core::page::narrow;
use uzswap_core::{Masked, arena_part};
use uzswap_sys::file::PollFd;
use uzswap_sys::signal::UContext;
use uzswap_sys::syscall::to_int;
use uzswap_sys::thread::Timespec;
use uzswap_sys::{Errno, PAGE_SIZE, nr, thread};

use crate::arch::code;
use crate::guard::fast;
use crate::guard::frame::{Frame, fail};
use crate::guard::stub::{self, Call, PROGRAM_GATE_RETURN};
use crate::guard::timed::{self, SocketWait};
use crate::threads::{self, Record};

/// Stack that must be left to issue the call from the handler: the next signal comes on top of it.
const MIN_STACK_LEFT: usize = 24 << 10;

/// Continues the call that the signal of context `uc` interrupted, if it did interrupt one.
///
/// # Safety
/// In a handler of ours of the thread of record `r`; `uc` is its frame.
pub unsafe fn resume(m: &Masked, r: *mut Record, uc: *mut UContext) {
    // SAFETY: the caller's promise.
    let (args, interrupted) = unsafe { ((*uc).syscall_args(), interrupted(r, &*uc)) };
    let Some((number, by)) = interrupted else {
        return;
    };
    // SAFETY: the record is this thread's.
    let Some(way) = way(number, args, unsafe { ((*r).deadline, (*r).began) }) else {
        return;
    };
    // SAFETY: the caller's promise; a thread that is in no window has no open frame.
    unsafe {
        let mut poll;
        let call = match way {
            Way::By(call) => call,
            Way::Within(ns, at) => {
                (*r).time_left = Timespec::from_nanos(ns);
                let mut call = Call { nr: number, args };
                if let Some(time) = call.args.get_mut(at) {
                    *time = (&raw const (*r).time_left).addr();
                }
                call
            }
            Way::Again => {
                (*uc).set_syscall_nr(number);
                (*uc).rewind_syscall();
                return;
            }
            Way::Ready(wait, ns) => {
                poll = PollFd {
                    fd: wait.fd,
                    events: wait.events,
                    revents: 0,
                };
                (*r).time_left = Timespec::from_nanos(ns);
                let (fds, time) = ((&raw mut poll).addr(), (&raw const (*r).time_left).addr());
                Call {
                    nr: nr::PPOLL,
                    args: [fds, 1, time, 0, 0, 0],
                }
            }
        };
        let here = (&raw const call).addr();
        if here.saturating_sub(threads::kernel_stack(r).sp) < MIN_STACK_LEFT {
            return;
        }
        // A handler of the program's that runs meanwhile may find the call about to be issued. A
        // restart then returns EINTR, as after a handler; a call on a socket begins anew.
        let again = match way {
            Way::Ready(..) => number,
            _ => nr::RESTART_SYSCALL,
        };
        let ret = match by {
            // Its frame is open, and its pins hold.
            Issuer::Guard => Frame::issue(r, &call),
            Issuer::Program => {
                (*uc).set_syscall_nr(again);
                Frame::open(r, uc);
                let ret = Frame::issue(r, &call);
                Frame::close(m, r);
                ret
            }
        };
        match way {
            Way::Ready(wait, _) if ret == 0 => (*uc).set_syscall_return(fail(wait.expired)),
            Way::Ready(..) if ret > 0 => {
                (*r).frame.nr = number;
                (*uc).set_syscall_nr(number);
                (*uc).rewind_syscall();
            }
            _ => (*uc).set_syscall_return(ret),
        }
    }
}

/// How a call is continued.
#[derive(Clone, Copy)]
enum Way {
    /// As it was: it is issued again.
    Again,
    /// By another one.
    By(Call),
    /// With so many nanoseconds in place of the time that the argument of that number points to.
    Within(u64, usize),
    /// Again as soon as it need not wait, for which so many nanoseconds are left.
    Ready(SocketWait, u64),
}

/// How call `number` is continued; `None`: it returns EINTR. `deadline`: of a wait whose end is
/// known, else 0; `began`: as [`Record::began`].
fn way(number: usize, args: [usize; 6], (deadline, began): (u64, u64)) -> Option<Way> {
    const FUTEX_WAIT: usize = 0;
    const FUTEX_WAIT_BITSET: usize = 9;
    let [a, b, c, d, ..] = args;
    let left = || deadline.saturating_sub(thread::monotonic_ns());
    let restart = Call {
        nr: nr::RESTART_SYSCALL,
        args: [0; 6],
    };
    match number {
        nr::NANOSLEEP | nr::POLL | nr::RESTART_SYSCALL => Some(Way::By(restart)),
        nr::CLOCK_NANOSLEEP if b & 1 == 0 => Some(Way::By(restart)),
        nr::FUTEX if b & 0x7f == FUTEX_WAIT => Some(Way::By(restart)),
        // Their time is a moment, or the kernel has written back what is left of it.
        nr::CLOCK_NANOSLEEP | nr::SELECT | nr::PSELECT6 | nr::PPOLL => Some(Way::Again),
        nr::FUTEX if b & 0x7f == FUTEX_WAIT_BITSET => Some(Way::Again),
        // These wait without end.
        nr::PAUSE | nr::RT_SIGSUSPEND | nr::SEMOP | nr::MSGSND | nr::MSGRCV => Some(Way::Again),
        nr::EPOLL_WAIT | nr::EPOLL_PWAIT if to_int(d) < 0 => Some(Way::Again),
        nr::RT_SIGTIMEDWAIT if c == 0 => Some(Way::Again),
        nr::EPOLL_WAIT | nr::EPOLL_PWAIT if deadline != 0 => {
            let mut call = Call { nr: number, args };
            call.args[3] = narrow(left().div_ceil(1_000_000));
            Some(Way::By(call))
        }
        nr::EPOLL_PWAIT2 | nr::SEMTIMEDOP if d == 0 => Some(Way::Again),
        nr::EPOLL_PWAIT2 | nr::SEMTIMEDOP if deadline != 0 => Some(Way::Within(left(), 3)),
        nr::RT_SIGTIMEDWAIT if deadline != 0 => Some(Way::Within(left(), 2)),
        // On a socket without a timeout the kernel has restarted it.
        _ => {
            let wait = timed::socket_wait(number, a)?;
            let waited = match began {
                0 => 0,
                began => thread::monotonic_ns().saturating_sub(began),
            };
            Some(Way::Ready(wait, wait.timeout.saturating_sub(waited)))
        }
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
            None => loaded(uc)
                .or_else(|| fast::passed_on(r, uc))
                .map(|number| (number, Issuer::Program)),
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
    if arena_part(at, code::LEN).is_some() || at % PAGE_SIZE > PAGE_SIZE - code::LEN {
        return None;
    }
    // SAFETY: code of the page that the thread has just executed a call from.
    code::loaded_nr(unsafe { *(at as *const [u8; code::LEN]) })
}
