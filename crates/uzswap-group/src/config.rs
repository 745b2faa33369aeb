//! *What*: what the command line decided for a group.
//! *Invariants*: written before the group is published and fixed then, but for the ceilings and
//! what [`SwapConfig`] says of devices.
//! *Locking*: none; every cell is an atomic. *Context*: read in every process of the group.

use crate::shared::{Shared, encoded};
use crate::swap_config::SwapConfig;
use core::sync::atomic::{AtomicU32, AtomicU64};

encoded! {
    /// How page faults on managed memory are served.
    FaultMode {
        /// The library chooses.
        Auto,
        /// SIGBUS in the faulting thread, system calls guarded.
        Signal = 1,
        /// Handler threads.
        Thread = 2,
        /// SIGSEGV in the faulting thread, without userfaultfd, system calls guarded.
        Segv = 3,
    }
}

/// What the command line decided.
#[derive(Debug)]
#[repr(C)]
pub struct Config {
    /// Bytes: the knob `ram`, or, while `uzswap set` lowers that and until no process is above it,
    /// what the knob was. Only then does the lower limit hold strictly.
    pub ram_ceiling: AtomicU64,
    /// The same of the knob `ram_per_process`.
    pub ram_per_process_ceiling: AtomicU64,
    /// Folio order: a folio is 4 KiB shifted left by this, 0 to 9.
    pub folio_order: AtomicU32,
    /// How page faults are served.
    pub fault_mode: Shared<FaultMode>,
    /// 1: go over the limit rather than end the program.
    pub over_limit_allow: AtomicU32,
    /// 1: a reclaimer keeps room free.
    pub background: AtomicU32,
    /// Ticks of the time stamp counter in a second, measured once, so that reported times never go
    /// back.
    pub tsc_hz: AtomicU64,
    /// 1: there is a reclaimer to make cold pages denser, even if it keeps no room free.
    pub densifier: AtomicU32,
    /// 1: each process reports its fault mode on stderr.
    pub verbose: AtomicU32,
    /// 1: a process may have several records, so that one with its number is not what it was before
    /// exec(2).
    pub several_records: AtomicU32,
    /// Inode number of the supervisor's pid namespace: process ids mean nothing elsewhere.
    pub pid_namespace: AtomicU64,
    /// The swap devices.
    pub swap: SwapConfig,
}
