//! *What*: `sigprocmask` and `pthread_sigmask` without a trap, where the set has no signal of ours.
//!
//! *Invariants*: the kernel's mask never has our signals while the program runs.
//! *Locking*: none. *Context*: the program's.

use uzswap_sys::signal::{
    NSIG, SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK, SigSet, sigprocmask as change,
};

use super::{Mask, next, real};
use crate::arch::tls;
use crate::guard::enabled;
use crate::signals::ours;
use uzswap_core::arena_part;

/// Changes the mask without a trap, if that can be done; returns the old one.
unsafe fn change_mask(how: i32, set: usize) -> Option<u64> {
    /// The C library's own signals, which programs cannot block: cancellation, change of user.
    const LIBRARY: u64 = 3 << 31;
    const _: () = assert!(NSIG == 64);
    if !enabled() || arena_part(set, 8).is_some() {
        return None;
    }
    let r = tls::record();
    // SAFETY: the C library reads the set, too, before the call; the record is this thread's.
    unsafe {
        if r.is_null() || (*r).blocked.0 != 0 {
            return None;
        }
        let set = (set as *const u64).read_unaligned() & !LIBRARY;
        if set & ours().0 != 0 && how != SIG_UNBLOCK {
            return None;
        }
        if !matches!(how, SIG_BLOCK | SIG_UNBLOCK | SIG_SETMASK) {
            return None;
        }
        let set = SigSet(set);
        change(how, Some(set)).ok().map(|old| old.0)
    }
}

unsafe fn mask(real: Mask, how: i32, set: usize, old: usize) -> i32 {
    // SAFETY: the program's own call.
    unsafe {
        if set == 0 {
            return real(how, set, old);
        }
        let Some(before) = change_mask(how, set) else {
            return real(how, set, old);
        };
        if old != 0 {
            (old as *mut u64).write_unaligned(before);
        }
        0
    }
}

/// `sigprocmask(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(how: i32, set: usize, old: usize) -> i32 {
    // SAFETY: the program's own call.
    unsafe { mask(real::<Mask>(&next::sigprocmask), how, set, old) }
}

/// `pthread_sigmask(3)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(how: i32, set: usize, old: usize) -> i32 {
    // SAFETY: the program's own call.
    unsafe { mask(real::<Mask>(&next::pthread_sigmask), how, set, old) }
}
