//! *What*: keeps the signals by which faults and trapped calls arrive out of the masks that threads
//! of the host set: the kernel ends a process that faults while the signal is blocked, and libraries
//! block all signals in their workers (numexpr). The C library's function is led here ([`sites`]).
//!
//! Natively nothing but a signal that somebody sends would be blocked: a fault ends the process.
//!
//! *Invariants*: a mask that names none of these signals is set by the C library, as if this were
//! not there. Threads that had blocked them before the first pool have them blocked still:
//! [`blocking_thread`] finds these.
//! *Locking*: none. *Context*: building a pool; [`on_call`]: any thread of the host.

use std::ffi::CStr;
use std::fs;
use std::sync::Once;

use uzswap_guard::ramp::Outcome;
use uzswap_sys::nr;
use uzswap_sys::signal::{SIG_UNBLOCK, SIGBUS, SigSet};
use uzswap_sys::syscall::{call_raw, to_int};

use crate::{faults, sites, user};

const NAMES: [(&CStr, usize); 1] = [(c"pthread_sigmask", nr::RT_SIGPROCMASK)];

static BEGUN: Once = Once::new();

/// Keeps them out from now on, where the C library's function can be led here.
pub(crate) fn begin() {
    BEGUN.call_once(|| {
        sites::lead_away(&NAMES, on_call);
    });
}

unsafe extern "C" fn on_call(number: usize, args: *const [usize; 6]) -> Outcome {
    const NOT_SERVED: Outcome = Outcome { ret: 0, served: 0 };
    // SAFETY: the ramp passes the arguments as the function has them.
    let [how, set, old, size, ..] = unsafe { args.read() };
    if set == 0 || size != size_of::<SigSet>() || to_int(how) == SIG_UNBLOCK {
        return NOT_SERVED;
    }
    // SAFETY: a number.
    let Ok(SigSet(wanted)) = (unsafe { user::read::<SigSet>(set) }) else {
        return NOT_SERVED;
    };
    let ours = faults::signals().0;
    if wanted & ours == 0 {
        return NOT_SERVED;
    }
    let allowed = SigSet(wanted & !ours);
    let args = [how, (&raw const allowed) as usize, old, size, 0, 0];
    // SAFETY: the call that the host makes, but for the signals.
    let ret = unsafe { call_raw(number, args) };
    Outcome { ret, served: 1 }
}

/// The C library's own signal, which it lets nobody block. Where it is blocked, too, the C library is
/// starting a thread, or an engine is at work, and the mask is about to change.
const SIGCANCEL: i32 = 32;

/// A thread of this process that blocks SIGBUS: its name and id.
pub(crate) fn blocking_thread() -> Option<(String, i32)> {
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    tasks.flatten().find_map(|task| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let field = |name| {
            status
                .lines()
                .find_map(|line: &str| line.strip_prefix(name))
        };
        let blocked = u64::from_str_radix(field("SigBlk:\t")?, 16).ok()?;
        let tid = task.file_name().to_str()?.parse().ok()?;
        let name = field("Name:\t")?.to_owned();
        let blocked = SigSet(blocked);
        (blocked.contains(SIGBUS) && !blocked.contains(SIGCANCEL)).then_some((name, tid))
    })
}
