//! *What*: has all calls of a thread come to us, by the kernel's Syscall User Dispatch.
//!
//! *Invariants*: it is the thread's own, and each new thread and fork child begins without: it is
//! turned on again before the program's first instruction there. The kernel turns it off at exec.
//! *Locking*: none. *Context*: init, signal, the start of every thread.

use uzswap_core::Masked;
use uzswap_sys::signal::{SYS_USER_DISPATCH, SigInfo};
use uzswap_sys::syscall::call5;
use uzswap_sys::{Errno, PAGE_SIZE, nr};

use super::BASE;
use crate::guard::stub::STUB;
use crate::inject::PR_SET_SYSCALL_USER_DISPATCH;

/// Has every call of this thread raise SIGSYS that is not made from the image, the handler stacks
/// or the stub page. The handler is in place.
///
/// # Errors
/// `EINVAL`: the kernel cannot.
pub fn trap_calls(_: &Masked) -> Result<(), Errno> {
    const PR_SYS_DISPATCH_ON: usize = 1;
    let len = STUB + PAGE_SIZE - BASE;
    // SAFETY: the handler serves what is trapped; no selector.
    unsafe {
        call5(
            nr::PRCTL,
            PR_SET_SYSCALL_USER_DISPATCH,
            PR_SYS_DISPATCH_ON,
            BASE,
            len,
            0,
        )
    }
    .map(drop)
}

/// Whether a SIGSYS stands for a call of the program.
#[must_use]
pub const fn is_trapped_call(info: &SigInfo) -> bool {
    info.si_code == SYS_USER_DISPATCH
}
