//! *What*: why uzswap ended a process of a run; the first failure is kept.
//! *Invariants*: whoever sets `pid` from 0 writes the rest; `reason` comes last and says that the
//! record is complete.
//! *Locking*: none; claimed by compare-and-swap. *Context*: written by a process about to end, read
//! by the supervisor.

use crate::shared::{Shared, encoded};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

encoded! {
    /// Why a process was ended.
    FailureReason {
        /// None was.
        None,
        /// Compressed data and what must stay resident do not fit the limit.
        OverLimit = 1,
        /// The engine could not start.
        Start = 2,
        /// An invariant of uzswap's own did not hold.
        Internal = 3,
        /// The process has as many mappings as the kernel allows, and evicting folios freed none.
        Mappings = 4,
        /// Its reclaimer was killed.
        ReclaimerKilled = 5,
        /// Memory outside the account takes more than the limit.
        Unmanaged = 6,
    }
}

/// Why a managed process could not start or was ended by uzswap.
#[derive(Debug)]
#[repr(C)]
pub struct Failure {
    /// Set last.
    pub reason: Shared<FailureReason>,
    /// The process.
    pub pid: AtomicU32,
    /// The system call's error number, if one failed.
    pub errno: AtomicU32,
    /// Which step failed, one of `StartStep`'s numbers.
    pub step: AtomicU32,
    /// Bytes that were needed at least.
    pub needed: AtomicU64,
    /// The limit they did not fit in, bytes.
    pub limit: AtomicU64,
}

impl Failure {
    /// There was none: another run begins.
    pub(crate) fn clear(&self) {
        self.reason.store(FailureReason::None, Ordering::Relaxed);
        self.pid.store(0, Ordering::Release);
    }

    /// Records why process `pid` is ended; only the first failure is kept.
    pub fn record(
        &self,
        reason: FailureReason,
        pid: u32,
        errno: u32,
        step: u32,
        needed: u64,
        limit: u64,
    ) {
        if self
            .pid
            .compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            return;
        }
        self.errno.store(errno, Ordering::Relaxed);
        self.step.store(step, Ordering::Relaxed);
        self.needed.store(needed, Ordering::Relaxed);
        self.limit.store(limit, Ordering::Relaxed);
        // Pairs with the supervisor's acquire load: the fields above are complete.
        self.reason.store(reason, Ordering::Release);
    }
}
