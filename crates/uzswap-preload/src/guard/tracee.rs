//! *What*: a vfork child that asks its parent to trace it, as debuggers start programs. Every
//! signal then stops it until its parent lets it go on, who waits for it to execute a program: the
//! trap of its exec would stop both for ever. So it is traced from where no trap follows.
//!
//! *Invariants*: a vfork child only sets things up before it executes a program or ends.
//! *Locking*: none; one vfork child at a time asks, or its parent would not wait. *Context*: the
//! program's; [`begin`]: signal.

use core::ffi::{c_int, c_long};
use core::sync::atomic::{AtomicI32, Ordering};

use uzswap_sys::file::{X_OK, accessible};
use uzswap_sys::{nr, syscall, thread};

use super::servable::File;
use crate::fork::in_vfork_child;
#[cfg(not(feature = "loader"))]
use crate::next::Next;

/// The request of a process that asks to be traced.
pub const PTRACE_TRACEME: c_int = 0;

/// The vfork child that is to be traced; 0: none.
static ASKED: AtomicI32 = AtomicI32::new(0);

#[cfg(not(feature = "loader"))]
static PTRACE: Next = Next::new(c"ptrace");

/// This process asks to be traced. Whether it is one that must wait for its exec.
pub fn ask() -> bool {
    let waits = in_vfork_child();
    if waits {
        ASKED.store(thread::getpid(), Ordering::Relaxed);
    }
    waits
}

/// `ptrace(2)`.
///
/// # Safety
/// As the C library's.
#[cfg(not(feature = "loader"))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptrace(request: c_int, pid: usize, addr: usize, data: usize) -> c_long {
    if request == PTRACE_TRACEME && ask() {
        return 0;
    }
    type Ptrace = unsafe extern "C" fn(c_int, usize, usize, usize) -> c_long;
    // SAFETY: the symbol's type, its further arguments passed as C passes variable ones; as the
    // caller's.
    unsafe { PTRACE.typed::<Ptrace>()(request, pid, addr, data) }
}

/// This process executes `file` now: it is traced from here on if it has asked to be, and there is
/// something to execute. (Another attempt of one that is traced would trap.)
pub fn begin(file: File<'_>) {
    if ASKED.load(Ordering::Relaxed) == thread::getpid() && accessible(file.dir, file.path, X_OK) {
        ASKED.store(0, Ordering::Relaxed);
        // SAFETY: touches no memory.
        let _ = unsafe { syscall::call4(nr::PTRACE, 0, 0, 0, 0) };
    }
}
