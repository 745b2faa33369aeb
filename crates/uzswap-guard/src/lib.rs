//! What every guard of system calls goes by, in the preload library and in the library for programs
//! that want pools: the pointer arguments of each call, an assembler of seccomp filters, and the
//! addresses that all processes agree on.
//!
//! *Invariants*: no std, no allocation. *Locking*: none. *Context*: any.
#![no_std]

#[cfg(target_arch = "x86_64")]
#[path = "x86_64/table.rs"]
mod arch_table;
pub mod bpf;
pub mod gate;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64/ramp.rs"]
pub mod ramp;
pub mod table;
