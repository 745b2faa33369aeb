//! *What*: Linux system calls without libc, `errno`, allocation or panic. Every other crate talks
//! to the kernel through here: each module is one kernel facility, each function one system call
//! with typed arguments.
//!
//! *Invariants*: all calls but few are issued at the *gate* ([`syscall::issue_at`]), one address in
//! the process, by which seccomp filters tell our calls from the program's. Inline are the clone
//! that starts a thread, the return from a signal frame, and the end of a process that has no stack
//! any more. Addresses travel as `usize`:
//! what lies there belongs to the program and never becomes a Rust reference.
//!
//! *Locking*: none; the crate's only state is the gate.
//!
//! *Context*: any, signal handlers included, unless a function says otherwise.
#![cfg_attr(not(test), no_std)]

pub mod aio;
pub mod arch;
pub mod clock;
pub mod errno;
pub mod file;
pub mod fmt;
pub mod futex;
pub mod mem;
pub mod process;
pub mod ptrace;
pub mod seccomp;
pub mod signal;
pub mod syscall;
pub mod thread;
pub mod uffd;

pub use arch::nr;
pub use errno::Errno;

/// Bytes of a base page, the unit of every range given to the kernel here.
pub const PAGE_SIZE: usize = 1 << PAGE_SHIFT;
/// log2 of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;
