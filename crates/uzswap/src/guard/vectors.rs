//! *What*: the C library's calls with vectors of buffers, led here ([`sites`]) to be served if they
//! name memory of a pool.
//!
//! *Invariants*: calls that name none are issued by the C library, as if this were not there.
//! *Locking*: the guard's state. *Context*: building a pool; [`on_call`]: any thread of the host.

use std::ffi::CStr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use uzswap_guard::ramp::Outcome;
use uzswap_sys::nr;

use super::context::Context;
use super::{Call, serve, transfer};
use crate::sites;

/// The functions, and their calls.
const NAMES: [(&CStr, usize); 10] = [
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
    if !transfer::names_a_pool(&call) {
        return Outcome { ret: 0, served: 0 };
    }
    // SAFETY: this thread makes the call.
    let ret = unsafe { serve(Context::Called, &call) };
    Outcome {
        ret: ret.unwrap_or_else(|errno| -(errno.0 as isize)),
        served: 1,
    }
}
