//! *What*: the stub page, through which trapped system calls are issued again, and the *window*:
//! the one stretch of code in which a handler of ours has the program's signals unblocked.
//!
//! *Invariants*: the page lies at the same address in every managed process, since an inherited
//! filter exempts it by address. It holds two gates: calls of the program go through
//! [`PROGRAM_GATE`], which filter A exempts; calls of ours through [`OWN_GATE`]. The page is in no
//! program's text, so no filter B matches it, while our own text may lie where another program's
//! was. While a window is open nothing runs between its two mask changes but loads, the call and a
//! move, so a signal finds the call in one of two states, told apart by the instruction pointer:
//! not issued, or returned with a known value.
//! *Locking*: none. *Context*: signal, init.

use uzswap_guard::gate;
pub use uzswap_guard::gate::{OWN_GATE, OWN_GATE_RETURN, PROGRAM_GATE, PROGRAM_GATE_RETURN, STUB};
use uzswap_sys::{Errno, syscall};

pub use crate::arch::stub::{issue, state, window};

/// Maps the stub page, and issues all calls of ours there from now on.
///
/// # Errors
/// `EEXIST`: something else lies there. Others as mmap(2).
pub fn map() -> Result<(), Errno> {
    gate::map()?;
    // SAFETY: our own page, which stays.
    unsafe { syscall::issue_at(OWN_GATE) };
    Ok(())
}

/// A system call and its six arguments, as the window takes them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Number.
    pub nr: usize,
    /// Arguments.
    pub args: [usize; 6],
}

/// How far a call in the window has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not issued, or the kernel wants it issued again.
    NotIssued,
    /// It returned this.
    Returned(isize),
}
