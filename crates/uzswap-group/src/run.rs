//! *What*: one `uzswap run` of a group: who supervises it, in which node, and what is its alone:
//! memory outside, the first failure, its descriptors of the swap devices, the sums of what has
//! ended.
//!
//! *Invariants*
//! - A run that ended leaves its cells as they are until another begins in their place, which is
//!   not before all records of its processes are free.
//! - The supervisor alone writes to it, but for the failure, `nr_started` and `ended`.
//!
//! *Locking*: none here; runs begin and end under the lock of the group's name. *Context*: any.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::failure::Failure;
use crate::outside::Outside;
use crate::process::Process;
use crate::swap_config::NR_DEVICES;
use uzswap_sync::node::PathCell;

/// Runs of a group at a time.
pub const NR_RUNS: usize = uzswap_sync::ledger::NR_OUTSIDE;

/// One `uzswap run`.
#[derive(Debug)]
#[repr(C)]
pub struct Run {
    /// Process id of `uzswap run`; 0: it has ended, or never began.
    pub supervisor: AtomicU32,
    /// Processes that have ever claimed a record.
    pub nr_started: AtomicU32,
    /// When the supervisor started, clock ticks since the machine did: who has its number later is
    /// another.
    pub started: AtomicU64,
    /// Its node, and those that this lies in.
    pub path: PathCell,
    /// Bytes that its processes and its supervisor have outside the account of any engine, as last
    /// measured.
    pub unmanaged: AtomicU64,
    /// Highest `unmanaged`.
    pub unmanaged_peak: AtomicU64,
    /// Bytes that a process is taken to have there until it is measured.
    pub presumed: AtomicU64,
    /// Where that is.
    pub outside: Outside,
    /// Why a process was ended by uzswap, if one was.
    pub failure: Failure,
    /// Seconds for which any process thrashed.
    pub thrashing_s: AtomicU64,
    /// The supervisor's descriptors of the swap devices.
    pub device_fds: [AtomicU32; NR_DEVICES],
    /// The supervisor's descriptors of the memory that their slot allocators live in.
    pub table_fds: [AtomicU32; NR_DEVICES],
    /// Sums of the processes whose records were reused.
    pub ended: Process,
}

/// Sums of runs whose places were reused.
#[derive(Debug)]
#[repr(C)]
pub struct Past {
    /// Processes that they had.
    pub nr_started: AtomicU32,
    /// Their sums.
    pub sums: Process,
}

impl Run {
    /// Has its processes find the swap devices where those of `other` do, whose supervisor has them
    /// too.
    pub fn share_devices(&self, other: &Run) {
        for (to, from) in [
            (&self.device_fds, &other.device_fds),
            (&self.table_fds, &other.table_fds),
        ] {
            for (to, from) in to.iter().zip(from) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    /// Begins with nothing; what ran here before is added to `past`.
    pub(crate) fn begin(&self, past: &Past) {
        let started = self.nr_started.swap(0, Ordering::Relaxed);
        past.nr_started.fetch_add(started, Ordering::Relaxed);
        past.sums.take_over(&self.ended);
        self.failure.clear();
        let [unmanaged, peak] = [&self.unmanaged, &self.unmanaged_peak];
        for cell in [unmanaged, peak, &self.presumed, &self.thrashing_s]
            .into_iter()
            .chain(self.outside.cells())
        {
            cell.store(0, Ordering::Relaxed);
        }
    }
}
