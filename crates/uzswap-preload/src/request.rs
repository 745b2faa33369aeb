//! *What*: requests from outside (`uzswap reclaim`, `set`, `swapoff`), announced by a SIGSYS: this
//! process's side of [`uzswap_group::request`].
//!
//! *Invariants*: the door is open only while our SIGSYS handler is in place.
//! *Locking*: none. *Context*: signal, init.

use uzswap_core::Masked;
use uzswap_group::group::is_alive;
use uzswap_group::request::{Request, VALUE};
use uzswap_sys::signal::{self, SI_QUEUE, SIGSYS, SigInfo, SigSet};
use uzswap_sys::thread;

use crate::fork::in_vfork_child;
use crate::init::ENGINE;

/// This process's requests; none in a vfork child, whose parent they are for.
fn own() -> Option<&'static Request> {
    let process = ENGINE.process().filter(|_| !in_vfork_child())?;
    Some(&process.request)
}

/// Takes requests from now on.
pub fn open_door() {
    if let Some(request) = own() {
        request.open();
    }
}

/// Takes the request that a SIGSYS with `info` announces. `None`: it announces none. `Some(false)`:
/// nobody waits for the answer any more.
pub fn take(info: &SigInfo) -> Option<bool> {
    // The value of a sent signal lies where a trap has the number of the call.
    if info.si_code != SI_QUEUE || info.si_syscall() != VALUE {
        return None;
    }
    own()?.take()
}

/// Takes no more requests, before an exec: a SIGSYS would end the new program. Waits for one that
/// is on its way. `false`: the door was not ours to shut, and is not to be opened again if exec
/// fails.
pub fn shut_door(_: &Masked) -> bool {
    let Some(request) = own() else {
        return false;
    };
    // SIGSYS is blocked and taken back here, so no handler sees it.
    let came = || signal::take_pending(SigSet::EMPTY.with(SIGSYS)).is_some();
    request.shut(came, is_alive, thread::sched_yield);
    true
}
