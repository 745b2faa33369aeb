//! *What*: the guard of system calls. Where a page that is out faults in user space only, the
//! kernel's own access to it fails with `EFAULT`. A seccomp [`filter`] traps calls whose pointer
//! arguments lie in a pool; the handler of SIGSYS pins what they point at and issues them again, at
//! a place that the filter exempts.
//!
//! *Not covered*: pointers behind pointers (`readv`, `sendmsg`, the strings of `execve`), io_uring,
//! other processes' accesses: pin first.
//!
//! *Invariants*
//! - The filter is the same in every process and stays for good, in children too: so does the page
//!   with the exempt instruction, at an address that all agree on.
//! - While a call is issued the host's signals are unblocked as they were, and its handlers run on
//!   top. One that jumps out of such a call leaves its memory pinned.
//!
//! *Locking*: the engines'. *Context*: signal; installing: a thread of the host.

mod filter;
mod pins;

use uzswap_core::{Masked, StartError, StartStep};
use uzswap_guard::gate;
use uzswap_sync::lock::Lock;
use uzswap_sys::signal::{self, SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK, SIGSYS, SYS_SECCOMP};
use uzswap_sys::signal::{SigInfo, SigSet, UContext};
use uzswap_sys::syscall::{call_raw, issue_at, to_int};
use uzswap_sys::{Errno, nr, seccomp};

use crate::faults;
use crate::stack;
use pins::Pins;

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
    Ok(())
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
        let ret = serve(&m, uc, call);
        (*uc).set_syscall_return(ret.unwrap_or_else(|errno| -(errno.0 as isize)));
    }
}

/// Carries out a trapped call.
///
/// # Safety
/// In the handler of SIGSYS, whose context is `uc`.
unsafe fn serve(m: &Masked, uc: *mut UContext, call: Call) -> Result<isize, Errno> {
    let mut pins = Pins::new();
    pins.count();
    let done = match Pieces::of(&call) {
        // SAFETY: the caller's promise.
        Some(pieces) => unsafe { transfer(m, uc, &mut pins, call, pieces) },
        None => stack::with(m, || pins.pin(&call)).and_then(|()| {
            // SAFETY: the caller's promise; what it points at is in.
            unsafe {
                match call.nr {
                    nr::RT_SIGPROCMASK => sigprocmask(uc, &call),
                    // It would be undone at the handler's end.
                    nr::SIGALTSTACK => Err(Errno::EFAULT),
                    _ => Ok(issue(uc, &call)),
                }
            }
        }),
    };
    stack::with(m, || pins.release());
    done
}

/// Issues a call under the mask that the host has in force.
///
/// # Safety
/// What it points at in pools is pinned; `uc` is the context of the trapped call.
unsafe fn issue(uc: *mut UContext, call: &Call) -> isize {
    // SAFETY: what the host asked for.
    unsafe {
        signal::set_mask((*uc).uc_sigmask);
        let ret = call_raw(call.nr, call.args);
        signal::block_all();
        ret
    }
}

/// A transfer between a file and one buffer, longer than may be pinned at once.
struct Pieces {
    /// Bytes at once.
    most: usize,
    /// Whether a position is advanced.
    positioned: bool,
    /// A read, which ends with what there is, unless it is of a file.
    reads: bool,
}

impl Pieces {
    fn of(call: &Call) -> Option<Pieces> {
        let (positioned, reads) = match call.nr {
            nr::READ => (false, true),
            nr::WRITE => (false, false),
            nr::PREAD64 => (true, true),
            nr::PWRITE64 => (true, false),
            _ => return None,
        };
        let engine = pins::engine_of(call.args[1])?;
        let most = engine.pin_budget();
        (call.args[2] > most).then_some(Pieces {
            most,
            positioned,
            reads,
        })
    }
}

/// # Safety
/// As [`serve`].
unsafe fn transfer(
    m: &Masked,
    uc: *mut UContext,
    pins: &mut Pins,
    call: Call,
    pieces: Pieces,
) -> Result<isize, Errno> {
    let [fd, buffer, len, position, ..] = call.args;
    let goes_on = !pieces.reads || is_file(to_int(fd));
    let mut done = 0;
    while done < len {
        let mut piece = call;
        piece.args[1] = buffer + done;
        piece.args[2] = pieces.most.min(len - done);
        if pieces.positioned {
            piece.args[3] = position + done;
        }
        let pinned = stack::with(m, || pins.pin(&piece));
        let ret = match pinned {
            // SAFETY: the caller's promise; what it points at is in.
            Ok(()) => unsafe { issue(uc, &piece) },
            Err(errno) => -(errno.0 as isize),
        };
        stack::with(m, || pins.release());
        match usize::try_from(ret) {
            Ok(moved) => {
                done += moved;
                if moved < piece.args[2] || !goes_on {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(_) => return Ok(ret),
        }
    }
    Ok(done.cast_signed())
}

/// Whether a descriptor is of a regular file, of which a read returns as much as there is.
fn is_file(fd: i32) -> bool {
    const S_IFMT: u32 = 0o170_000;
    const S_IFREG: u32 = 0o100_000;
    uzswap_sys::file::fstat(fd).is_ok_and(|stat| stat.st_mode & S_IFMT == S_IFREG)
}

/// `rt_sigprocmask` with a set in a pool: changes the mask that returns with the handler.
///
/// # Safety
/// As [`issue`].
unsafe fn sigprocmask(uc: *mut UContext, call: &Call) -> Result<isize, Errno> {
    let [how, set, old, size, ..] = call.args;
    if size != size_of::<SigSet>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the kernel's frame.
    let before = unsafe { (*uc).uc_sigmask };
    if set != 0 {
        let set = SigSet(pins::read_word(set)?);
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
        pins::write_word(old, before.0)?;
    }
    Ok(0)
}
