//! *What*: the guard of system calls. Where a page that is out faults in user space only, the
//! kernel's own access to it fails with `EFAULT`. A seccomp [`filter`] traps calls whose pointer
//! arguments lie in a pool; the handler of SIGSYS pins what they point at and issues them again, at
//! a place that the filter exempts. A filter does not see pointers behind pointers: the C library's
//! own calls with vectors of buffers or strings come here by a jump instead ([`vectors`]).
//!
//! *Not covered*: vectors in calls that the C library does not make, io_uring, other processes'
//! accesses: pin first.
//!
//! *Invariants*
//! - The filter is the same in every process and stays for good, in children too: so does the page
//!   with the exempt instruction, at an address that all agree on.
//! - While a call is issued the host's signals are unblocked as they were, and its handlers run on
//!   top. One that jumps out of such a call leaves its memory pinned.
//!
//! *Locking*: the engines'. *Context*: signal; installing: a thread of the host.

mod context;
mod exec;
mod filter;
mod pins;
mod process_vm;
mod transfer;
mod vectors;

use uzswap_core::{Masked, StartError, StartStep};
use uzswap_guard::gate;
use uzswap_sync::lock::Lock;
use uzswap_sys::signal::{SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK, SIGSYS, SYS_SECCOMP};
use uzswap_sys::signal::{SigInfo, SigSet, UContext};
use uzswap_sys::syscall::{issue_at, to_int};
use uzswap_sys::{Errno, nr, seccomp};

use crate::{faults, user};
use context::Context;
use pins::{MAX_POINTERS, Pins};
use transfer::Transfer;

/// A trapped call: its number and arguments.
#[derive(Clone, Copy, Debug)]
struct Call {
    nr: usize,
    args: [usize; 6],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Absent,
    /// Calls are issued at the exempt place, and trapped ones are served.
    Serving,
    /// This process has the filter.
    Filtering,
}

static STATE: Lock<State> = Lock::new(State::Absent);

/// Makes ready for a pool: if it `wants` a guard, or if this process has inherited a filter, which
/// would end it otherwise.
///
/// # Errors
/// What the kernel refused; nothing has changed then but that trapped calls are served.
pub(crate) fn prepare(wants: bool) -> Result<(), StartError> {
    let mut state = STATE.lock();
    let inherited = *state == State::Absent && filter::is_present();
    if *state == State::Absent && (wants || inherited) {
        gate::map().map_err(failed)?;
        // SAFETY: mapped just now, for good.
        unsafe { issue_at(gate::PROGRAM_GATE) };
        faults::install(SIGSYS).map_err(failed)?;
        *state = if inherited {
            State::Filtering
        } else {
            State::Serving
        };
    }
    if wants && *state == State::Serving {
        install_filter().map_err(failed)?;
        *state = State::Filtering;
    }
    if wants {
        vectors::begin();
    }
    Ok(())
}

/// Whether the guard serves vectors of buffers and strings (`readv`, `sendmsg`, `execve` and
/// theirs) that the C library passes to the kernel. Not where that makes its calls in a way that
/// the library does not know (musl; glibc from 2.41 on): [`pin`](crate::Pool::pin) their buffers
/// first.
#[must_use]
pub fn serves_vectors() -> bool {
    vectors::are_served()
}

const fn failed(errno: Errno) -> StartError {
    StartError {
        step: StartStep::Guard,
        errno,
    }
}

fn install_filter() -> Result<(), Errno> {
    let built = filter::build()?;
    let flags = seccomp::FILTER_FLAG_TSYNC | seccomp::FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the handler is in place.
    match unsafe { seccomp::install_filter(built.code(), flags) } {
        Err(Errno::EACCES) => {
            seccomp::set_no_new_privs()?;
            // SAFETY: as above.
            unsafe { seccomp::install_filter(built.code(), flags) }
        }
        done => done,
    }
}

/// SIGSYS.
pub(crate) unsafe extern "C" fn on_sigsys(signal: i32, info: *mut SigInfo, uc: *mut UContext) {
    // SAFETY: the kernel's frame; our handlers' masks are full.
    unsafe {
        let m = Masked::assume();
        if (*info).si_code != SYS_SECCOMP || !filter::is_tag((*info).si_errno) {
            return faults::pass_on(&m, signal, *info, uc);
        }
        let call = Call {
            nr: usize::try_from((*info).si_syscall()).unwrap_or(0),
            args: (*uc).syscall_args(),
        };
        let ret = serve(Context::Trapped(uc), &call);
        (*uc).set_syscall_return(ret.unwrap_or_else(|errno| -(errno.0 as isize)));
    }
}

/// Carries out a call that names memory of a pool.
///
/// # Safety
/// `context` is that of a thread that makes the call.
unsafe fn serve(context: Context, call: &Call) -> Result<isize, Errno> {
    let mut pins = Pins::<MAX_POINTERS>::new();
    if exec::is_exec(call.nr) {
        // SAFETY: the caller's promise.
        return unsafe { exec::exec(context, call) };
    }
    if transfer::is_vectored(call.nr) || process_vm::is_process_vm(call.nr) {
        // Vectors and headers, which are about to be read.
        context.enter(|| pins.pin(call))?;
    }
    // SAFETY: the caller's promise; what the call points at is pinned before it is issued.
    let done = unsafe {
        match Transfer::of(call) {
            _ if transfer::is_of_messages(call.nr) => transfer::first_message(context, call),
            _ if process_vm::is_process_vm(call.nr) => process_vm::process_vm(context, call),
            Ok(Some(transfer)) => transfer.run(context),
            // One without more to it, or a wrong one, for the kernel to say so.
            _ => {
                pins.count();
                let pinned = context.enter(|| pins.pin(call));
                pinned.and_then(|()| issue(context, call))
            }
        }
    };
    context.enter(|| pins.release());
    done
}

/// # Safety
/// As [`serve`]; what it points at is pinned.
unsafe fn issue(context: Context, call: &Call) -> Result<isize, Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        match (context, call.nr) {
            (Context::Trapped(uc), nr::RT_SIGPROCMASK) => sigprocmask(uc, call),
            // It would be undone at the handler's end.
            (_, nr::SIGALTSTACK) => Err(Errno::EFAULT),
            _ => Ok(context.issue(call)),
        }
    }
}

/// `rt_sigprocmask` with a set in a pool: changes the mask that returns with the handler.
///
/// # Safety
/// `uc` is the frame of this handler; the sets are pinned.
unsafe fn sigprocmask(uc: *mut UContext, call: &Call) -> Result<isize, Errno> {
    let [how, set, old, size, ..] = call.args;
    if size != size_of::<SigSet>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the kernel's frame.
    let before = unsafe { (*uc).uc_sigmask };
    if set != 0 {
        // SAFETY: a number.
        let set = SigSet(unsafe { user::read(set) }?);
        let after = match to_int(how) {
            SIG_BLOCK => SigSet(before.0 | set.0),
            SIG_UNBLOCK => SigSet(before.0 & !set.0),
            SIG_SETMASK => set,
            _ => return Err(Errno::EINVAL),
        };
        // SAFETY: as above.
        unsafe { (*uc).uc_sigmask = after };
    }
    if old != 0 {
        user::write(old, before.0)?;
    }
    Ok(0)
}
