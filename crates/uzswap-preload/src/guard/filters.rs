//! *What*: puts the [filters](super::filter) on this process.
//!
//! *Invariants*: filter A is on every process of a run once; each has a filter B of its own.
//! *Locking*: none. *Context*: init; [`is_trapped_call`] signal.

use core::cell::UnsafeCell;

use uzswap_core::Masked;
use uzswap_sys::signal::{SYS_SECCOMP, SigInfo};
use uzswap_sys::{Errno, seccomp};

use super::filter::{self, Builder, TAG_A, TAG_B};
use super::text;
use crate::{show_memory, workers};

/// Where the filters are built.
struct Shared(UnsafeCell<Builder>);
// SAFETY: used by `install` only, which runs once.
unsafe impl Sync for Shared {}
static BUILDER: Shared = Shared(UnsafeCell::new(Builder::new()));

/// Has the program's calls trap where they concern us. The handler is in place.
///
/// # Errors
/// What the kernel refused.
pub fn trap_calls(_: &Masked) -> Result<(), Errno> {
    // SAFETY: `install` runs once.
    let builder = unsafe { &mut *BUILDER.0.get() };
    if !filter::present() {
        builder.build_a()?;
        put_on(builder)?;
    }
    let (ranges, nr) = text::foreign();
    let ranges = ranges.get(..nr).unwrap_or_default();
    if !ranges.is_empty() {
        builder.build_b(ranges, workers::may_exist(), show_memory::begin())?;
        put_on(builder)?;
    }
    Ok(())
}

fn put_on(builder: &Builder) -> Result<(), Errno> {
    let code = builder.program.code().ok_or(Errno::ENOMEM)?;
    let flags = seccomp::FILTER_FLAG_TSYNC | seccomp::FILTER_FLAG_SPEC_ALLOW;
    // First without NO_NEW_PRIVS: set-user-ID programs of a privileged process keep their effect.
    // SAFETY: the handler is in place.
    match unsafe { seccomp::install_filter(code, flags) } {
        Err(Errno::EACCES) => {
            seccomp::set_no_new_privs()?;
            // SAFETY: the handler is in place.
            unsafe { seccomp::install_filter(code, flags) }
        }
        other => other,
    }
}

/// Whether a SIGSYS stands for a call that a filter trapped.
#[must_use]
pub const fn is_trapped_call(info: &SigInfo) -> bool {
    let tag = info.si_errno.unsigned_abs();
    info.si_code == SYS_SECCOMP && (tag == TAG_A || tag == TAG_B)
}
