//! Raw Linux system calls for uzswap: no libc, no `errno`, no allocation, no panic.
//!
//! What: the narrow page through which every other crate talks to the kernel. Each module is one
//! kernel facility; each function is one system call with typed arguments.
//!
//! Invariants: the calls are inline `syscall` instructions, so the `errno` of the interrupted
//! program is never touched, and the instruction lies in the text of whichever object links us
//! (the syscall guard tells our own calls from the program's by that).
//!
//! Locking: none. The crate holds no state at all.
//!
//! Context: any, including signal handlers, unless a function says otherwise.
//!
//! Addresses travel as `usize`: what lies there belongs to the program and must never be turned
//! into a Rust reference.
#![cfg_attr(not(test), no_std)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("uzswap supports x86-64 Linux only");

pub mod aio;
pub mod arch;
pub mod errno;
pub mod file;
pub mod fmt;
pub mod futex;
pub mod mem;
pub mod nr;
pub mod seccomp;
pub mod signal;
pub mod syscall;
pub mod thread;
pub mod uffd;

pub use errno::Errno;

/// Bytes in the smallest page of x86-64, and the unit of every range given to the kernel here.
pub const PAGE_SIZE: usize = 1 << PAGE_SHIFT;
/// log2 of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;
