//! *What*: the descriptors that are ours (userfaultfd, swap devices, the reclaimer's pipe), which
//! the program must neither close nor replace. The C library's functions ([`exports`]) and trapped
//! calls treat them as not open.
//!
//! *Invariants*: our descriptors have high numbers, where programs do not put theirs. Calls of
//! `close_range` from inside the C library (spawn file actions) come through filter B.
//! *Locking*: none. *Context*: any but signal; [`split_close_range`] also signal.

#[cfg(not(feature = "loader"))]
mod exports;

use uzswap_sys::nr;
use uzswap_sys::syscall::call3;

use crate::guard::frame::fail;
use crate::init::ENGINE;

/// Whether `fd` is ours.
#[must_use]
pub fn is_ours(fd: i32) -> bool {
    fd >= 0 && ENGINE.descriptors().contains(&fd)
}

/// `close_range` around our descriptors; returns as the kernel does.
#[must_use]
pub fn split_close_range(first: usize, last: usize, flags: usize) -> isize {
    const CLOSE_RANGE_UNSHARE: usize = 2;
    let mut ours = ENGINE.descriptors();
    ours.sort_unstable();
    let ours = ours.map(usize::try_from);
    let ours = ours
        .iter()
        .flatten()
        .filter(|fd| (first..=last).contains(*fd));
    let mut flags = flags;
    let mut from = first;
    // Up to each of ours, then the rest; what is left empty needs no call, but an invalid range is
    // the kernel's to refuse.
    for &fd in ours {
        if fd > from {
            let done = close_all(from, fd - 1, flags);
            if done != 0 {
                return done;
            }
            // Done by the first call.
            flags &= !CLOSE_RANGE_UNSHARE;
        }
        from = fd + 1;
    }
    if from > last && from > first {
        return 0;
    }
    close_all(from, last, flags)
}

fn close_all(first: usize, last: usize, flags: usize) -> isize {
    // SAFETY: closes what the program asked to close, and nothing of ours.
    unsafe { call3(nr::CLOSE_RANGE, first, last, flags) }.map_or_else(fail, |_| 0)
}
