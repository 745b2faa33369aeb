//! *What*: the CPU and the kernel's interface on it. All that knows an architecture lies in
//! `arch/NAME/`, here and in `uzswap-preload`; a new architecture is one folder in each.
//!
//! An architecture provides, under these names:
//! - `abi`: constants and structures of the kernel that differ: `AUDIT_ARCH`, `FOREIGN_ABI_NR`,
//!   `CLONE_TID_ARGS`, `USER_END`, `MAP_32BIT`, `O_DIRECT` and its neighbours, `Stat`.
//! - `cpu`: [`ticks`], [`current_cpu`], [`prefetch`].
//! - `nr`: the number of every call named in this workspace. A call that the architecture lacks
//!   (`fork`, `poll` on newer ones) gets a number that no kernel has, different for each.
//! - `ptrace`: `Registers` of a tracee, `CALL_CODE`.
//! - `signal`: `UContext` and `SignalFrame`, the kernel's signal frame, with accessors; the
//!   restorer.
//! - `syscall`: `call0` to `call6`, `call_raw`, the gate (`GATE`, `issue_at`, `GATE_CODE`), and
//!   `SYSCALL_LEN`.
//! - `thread`: `clone_thread`, `leave`.
//!
//! *Invariants*: what is not in the folder names no register, instruction or number of a CPU.
//! *Locking*: none. *Context*: any.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("uzswap supports x86-64 Linux only");

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    pub mod abi;
    pub mod cpu;
    pub mod nr;
    pub mod ptrace;
    pub mod signal;
    pub mod syscall;
    pub mod thread;
}
#[cfg(target_arch = "x86_64")]
use x86_64 as selected;

pub use selected::cpu::{PR_SET_TSC, PR_TSC_SIGSEGV, current_cpu, prefetch, ticks};
pub use selected::{abi, nr, ptrace, signal, syscall, thread};
