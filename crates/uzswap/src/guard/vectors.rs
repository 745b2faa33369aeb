//! *What*: the C library's calls with vectors of buffers or of strings, led here ([`sites`]) to be
//! served if they name memory of a pool.
//!
//! *Invariants*: calls that name none are issued by the C library, as if this were not there.
//! *Locking*: the guard's state. *Context*: building a pool; [`on_call`]: any thread of the host,
//! and what `posix_spawn` starts, which has no handlers.

use std::ffi::CStr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use uzswap_guard::ramp::Outcome;
use uzswap_sys::nr;

use super::context::Context;
use super::{Call, exec, process_vm, serve, transfer};
use crate::sites;

/// The functions, and their calls.
const NAMES: [(&CStr, usize); 16] = [
    (c"readv", nr::READV),
    (c"writev", nr::WRITEV),
    (c"preadv", nr::PREADV),
    (c"pwritev", nr::PWRITEV),
    (c"preadv2", nr::PREADV2),
    (c"pwritev2", nr::PWRITEV2),
    (c"sendmsg", nr::SENDMSG),
    (c"recvmsg", nr::RECVMSG),
    (c"sendmmsg", nr::SENDMMSG),
    (c"recvmmsg", nr::RECVMMSG),
    (c"vmsplice", nr::VMSPLICE),
    (c"process_vm_readv", nr::PROCESS_VM_READV),
    (c"process_vm_writev", nr::PROCESS_VM_WRITEV),
    // `execv`, `posix_spawn` and all others call it; `fexecve` has a call of its own.
    (c"execve", nr::EXECVE),
    (c"execveat", nr::EXECVEAT),
    (c"fexecve", nr::EXECVEAT),
];

/// All of [`NAMES`] lead here.
static SERVED: AtomicBool = AtomicBool::new(false);

/// Whether all of the C library's calls with vectors are served.
pub(super) fn are_served() -> bool {
    SERVED.load(Ordering::Relaxed)
}

static BEGUN: Once = Once::new();

/// Has them served from now on.
pub(super) fn begin() {
    BEGUN.call_once(|| {
        SERVED.store(sites::lead_away(&NAMES, on_call), Ordering::Relaxed);
    });
}

/// A call that one of the functions is about to make.
unsafe extern "C" fn on_call(nr: usize, args: *const [usize; 6]) -> Outcome {
    // SAFETY: the ramp passes the arguments as the function has them.
    let call = unsafe {
        Call {
            nr,
            args: args.read(),
        }
    };
    let names_a_pool = match nr {
        nr if exec::is_exec(nr) => exec::names_a_pool(&call),
        nr if process_vm::is_process_vm(nr) => process_vm::names_a_pool(&call),
        _ => transfer::names_a_pool(&call),
    };
    if !names_a_pool {
        return Outcome { ret: 0, served: 0 };
    }
    // SAFETY: this thread makes the call.
    let ret = unsafe { serve(Context::Called, &call) };
    Outcome {
        ret: ret.unwrap_or_else(|errno| -(errno.0 as isize)),
        served: 1,
    }
}
