//! *What*: the address space as the program sees it: mmap, munmap, mremap, madvise, mprotect,
//! mlock, mincore and their relatives, over the arena and over memory of the kernel's.
//!
//! Where to look: [`map`] (mmap, munmap), [`remap`], [`advise`] (madvise, msync), [`protect`]
//! (mprotect, mlock, mincore), [`fork_policy`] (what children get), [`give_back`] (memory that the
//! program wants the kernel to manage after all), [`span`] (splitting a range at the arena's edges),
//! [`walk`] (what is mapped of a range), [`unmanaged`] (gauges of unmanaged memory), [`exports`] (the
//! C functions), [`raw_calls`] (the same calls, not made by those functions).
//!
//! *Invariants*: arguments are judged as the kernel judges them, in the kernel's order, so that
//! errors are what they would be without us. Program memory is never touched while signals are
//! blocked: a fault there could not be served.
//! *Locking*: the engine's. *Context*: the program's.

mod advise;
#[cfg(not(feature = "loader"))]
mod exports;
mod fork_policy;
mod give_back;
mod map;
mod protect;
pub mod raw_calls;
mod remap;
mod span;
mod unmanaged;
mod walk;

use uzswap_core::MapError;
use uzswap_sys::Errno;

#[cfg(not(feature = "loader"))]
unsafe extern "C" {
    fn __errno_location() -> *mut i32;
}

/// Sets the program's `errno`.
#[cfg(not(feature = "loader"))]
pub fn set_errno(errno: Errno) {
    // SAFETY: the calling thread's own cell.
    unsafe { __errno_location().write(errno.0) };
}

/// The error number for what the engine refuses.
fn errno_of(error: MapError) -> Errno {
    match error {
        MapError::NoSpace => Errno::ENOMEM,
        MapError::Invalid => Errno::EINVAL,
        MapError::NotMapped => Errno::EFAULT,
        MapError::Kernel(errno) => errno,
    }
}
