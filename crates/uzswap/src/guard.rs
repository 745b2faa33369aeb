//! *What*: the guard of system calls.
//! *Invariants*: none. *Locking*: none. *Context*: signal.

use uzswap_core::Masked;
use uzswap_sys::signal::{SigInfo, UContext};

use crate::faults;

/// SIGSYS.
pub(crate) unsafe extern "C" fn on_sigsys(signal: i32, info: *mut SigInfo, uc: *mut UContext) {
    // SAFETY: the kernel's frame; our handlers' masks are full.
    unsafe { faults::pass_on(&Masked::assume(), signal, *info, uc) }
}
