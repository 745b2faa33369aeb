//! *What*: whether the group's limit follows what its surroundings leave, and how low and how high
//! that has made it.
//! *Invariants*: only a user starts or ends following; the supervisor says what it follows while it
//! does. `lowest` and `highest` are written by the supervisor alone; 0: it never followed.
//! *Locking*: none; every cell is an atomic. *Context*: written by `uzswap run` and `uzswap set`.

use crate::shared::{Shared, encoded};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

encoded! {
    /// What decides about the limit.
    Follows {
        /// The user alone.
        Nothing,
        /// The supervisor has been told to follow, and has not looked yet.
        Asked = 1,
        /// Its cgroups.
        Cgroup = 2,
        /// The memory available on the machine.
        Machine = 3,
    }
}

/// Following, in shared memory.
#[derive(Debug)]
#[repr(C)]
pub struct Follow {
    /// What is followed.
    pub what: Shared<Follows>,
    /// The lowest limit while it followed, bytes.
    pub lowest: AtomicU64,
    /// The highest limit while it followed, bytes.
    pub highest: AtomicU64,
}

impl Follow {
    /// Following has made the limit `bytes`.
    pub fn note(&self, bytes: u64) {
        let lower = |lowest| (lowest == 0 || bytes < lowest).then_some(bytes);
        let _ = self.lowest.fetch_update(Relaxed, Relaxed, lower);
        self.highest.fetch_max(bytes, Relaxed);
    }

    /// Lowest and highest limit while it followed; `None`: it never did.
    #[must_use]
    pub fn range(&self) -> Option<(u64, u64)> {
        let range = (self.lowest.load(Relaxed), self.highest.load(Relaxed));
        (range.1 > 0).then_some(range)
    }
}
