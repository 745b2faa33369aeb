//! *What*: the swap slot allocator. A device is cut into slots of 4 KiB, 512 of them a *cluster*;
//! [`Slots`] hands out runs of 1 to 512 contiguous slots and counts, per process, how many objects
//! lie on each.
//!
//! - `cluster`: a cluster's states, its home and its users
//! - `users`: which processes may count slots of a cluster
//! - `row`: the counts of a process in a cluster, and which slots are free
//! - `home`: alloc and put without a lock, by the process that a cluster is the home of
//! - `lists`: the clusters by state; the device lock
//! - `table`: the shared memory as a process sees it, and the locks on it
//! - `device`: allocation from the CPU's current cluster; `search`: the choice of the next one
//! - `counts`: who counts a slot how often; `dup`, `put`, bad slots, under the cluster's lock
//! - `owners`: the processes: they join, fork, die and are released
//! - `discard`: empty clusters on their way back to the device; bad slots; the walk over full
//!   clusters
//! - `memory`: the layout of the shared memory
//! - `lock`: the locks
//!
//! *Invariants*
//! - Everything is in one zero-filled shared memory that each process maps where it likes: atomics
//!   and indices, no pointers. All zeroes is an empty device.
//! - A slot is taken while any process counts it; bad slots are counted for the supervisor for
//!   good. Counts are 8 bits for each process, so that fork never fails for a full counter.
//! - The counts are the truth: states and lists are derived from them. One atomic change of one
//!   word of a row says that a slot is taken; the rest is updated under the cluster's lock, and
//!   whoever takes over a dead holder's lock derives it again.
//!
//! *Locking*: cluster lock, then device lock; both below every lock of the engine. A call
//! holds one cluster lock at a time, except that the holder of the device lock tries a second one.
//! Most calls take none.
//! *Context*: signal, worker, init; in every process of the group. No call allocates or panics.
#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable
    )
)]
#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        reason = "test data is cut to size on purpose"
    )
)]

mod cluster;
mod counts;
mod device;
mod discard;
mod home;
mod lists;
mod lock;
mod memory;
mod owners;
mod row;
mod search;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;
mod users;

pub use cluster::{CLUSTER_SLOTS, NR_ORDERS};
pub use device::Slots;
#[cfg(loom)]
pub use memory::Model;
pub use memory::{IsAlive, NR_CPUS, NR_PROCESSES, SUPERVISOR};
pub use owners::Owner;

/// Contiguous slots within one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// The first slot; its byte offset on the device is this times 4 KiB.
    pub first: u32,
    /// How many slots.
    pub nr: u16,
}

impl Run {
    /// The slots' numbers.
    #[must_use]
    pub fn slots(self) -> core::ops::Range<u32> {
        self.first..self.first.saturating_add(self.nr.into())
    }
}

/// How often and how long locks were waited for since the device was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockWaits {
    /// Times that a cluster lock was not free.
    pub nr_cluster: u64,
    /// Nanoseconds waited for cluster locks.
    pub cluster_ns: u64,
    /// Times that the device lock was not free.
    pub nr_device: u64,
    /// Nanoseconds waited for the device lock.
    pub device_ns: u64,
}

/// Marks a place between two stores where a process may be killed. Tests kill it at each.
#[cfg(any(not(test), loom))]
#[inline(always)]
fn crash_point() {}

/// Whether a test has killed this thread: it frees no locks then.
#[cfg(any(not(test), loom))]
#[inline(always)]
fn has_crashed() -> bool {
    false
}

#[cfg(all(test, not(loom)))]
use tests::{crash_point, has_crashed};
