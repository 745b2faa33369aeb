//! *What*: from where a call is served: from the handler of SIGSYS, or, for calls with vectors,
//! from the C library's function in the middle of the host ([`super::vectors`]).
//!
//! *Invariants*: engines are entered with all signals blocked, on a stack of the library's; calls
//! are issued on the host's, under its mask.
//! *Locking*: none. *Context*: signal, and threads of the host.

use uzswap_core::Masked;
use uzswap_sys::signal::{self, UContext};
use uzswap_sys::syscall::call_raw;

use super::Call;
use crate::stack;

/// See above.
#[derive(Clone, Copy)]
pub(super) enum Context {
    /// In the handler, whose frame this is.
    Trapped(*mut UContext),
    /// In the host's own code.
    Called,
}

impl Context {
    /// Runs `job`, which enters engines.
    pub fn enter<R>(self, job: impl FnOnce() -> R) -> R {
        match self {
            // SAFETY: the masks of our handlers are full.
            Context::Trapped(_) => stack::with(&unsafe { Masked::assume() }, job),
            Context::Called => Masked::block(|m| stack::with(m, job)),
        }
    }

    /// Issues a call at the exempt place.
    ///
    /// # Safety
    /// It is one that the host makes, and what it points at in pools is pinned.
    pub unsafe fn issue(self, call: &Call) -> isize {
        // SAFETY: the caller's promise; the frame is this handler's.
        unsafe {
            match self {
                Context::Called => call_raw(call.nr, call.args),
                Context::Trapped(uc) => {
                    signal::set_mask((*uc).uc_sigmask);
                    let ret = call_raw(call.nr, call.args);
                    signal::block_all();
                    ret
                }
            }
        }
    }
}
