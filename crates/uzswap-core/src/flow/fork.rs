//! *What*: the engine across fork.
//!
//! The parent stops all operations by acquiring every operation context, then forks. The child's
//! copy of arena, pool and tables is right as it is. It lacks a userfaultfd of its own, which must
//! exist before anything touches the arena: the inherited one acts on the parent, and no
//! userfaultfd covers the child's mappings. The limit holds for each process: shared pages count in
//! both.
//!
//! *Invariants*: between `prepare` and `ForkGuard::in_child` the child touches no arena memory.
//! *Locking*: all operations, then the region map.
//! *Context*: the SIGSYS handler that re-issues clone.

use super::space;
use crate::arena::region::{Flags, Held};
use crate::backing::Owners;
use crate::masked::Masked;
use crate::page::{ARENA_BASE, ARENA_LEN, PageRange};
use crate::parts::Parts;
use crate::start_error::StartError;
use uzswap_group::counters::{Counters, Kind};
use uzswap_group::group::Process;
use uzswap_sync::primitive::Ordering::Relaxed;

/// All operations and the region map, taken. Whoever forks passes it on to [`ForkGuard::in_parent`]
/// and [`ForkGuard::in_child`], or to [`ForkGuard::failed`].
#[must_use]
pub struct ForkGuard {
    /// `None`: the engine has not started.
    parts: Option<&'static Parts>,
    _regions: Option<Held<'static>>,
    child: Option<(&'static Process, Owners)>,
    /// What the child has a copy of: the parent's own are in shared memory, and change as soon as
    /// it goes on.
    gauges: Counters,
    refused: bool,
}

impl core::fmt::Debug for ForkGuard {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "ForkGuard(refused: {})", self.refused)
    }
}

impl ForkGuard {
    /// The record in the group that is the child's already; `None`: it claims one.
    #[must_use]
    pub const fn record(&self) -> Option<&'static Process> {
        match self.child {
            Some((process, _)) => Some(process),
            None => None,
        }
    }

    /// Whether there can be no child: it would have pages on the swap device, and the group has no
    /// record left under which to count them.
    #[must_use]
    pub const fn refused(&self) -> bool {
        self.refused
    }

    /// In the parent of process `child`: goes on.
    pub fn in_parent(self, _masked: &Masked, child: u32) {
        let Some(parts) = self.parts else { return };
        if let Some((backing, (record, _))) = parts.backing.as_ref().zip(self.child) {
            backing.fork_parent(parts.account.group(), record, child);
        }
        release_ops(parts);
    }

    /// After a fork that failed: goes on.
    pub fn failed(self, _masked: &Masked) {
        let Some(parts) = self.parts else { return };
        if let Some((backing, (record, _))) = parts.backing.as_ref().zip(self.child) {
            backing.fork_failed(parts.account.group(), record);
        }
        release_ops(parts);
    }

    /// In the child: makes the copied engine its own, counting into `process`.
    ///
    /// # Errors
    /// The child has no userfaultfd: it must not go on.
    pub fn in_child(self, masked: &Masked, process: &'static Process) -> Result<(), StartError> {
        let ForkGuard {
            parts,
            _regions: regions,
            child,
            gauges,
            ..
        } = self;
        let Some(parts) = parts else { return Ok(()) };
        drop(regions);
        let owners = child.map(|(_, owners)| owners);
        parts.arena.hazards().withdraw_all();
        parts.reclaimer.fork_child();
        parts.store.workers().forget();
        parts.account.become_process(process);
        process.fault_mode.store(parts.arena.mode().into(), Relaxed);
        if let Some(backing) = &parts.backing {
            backing.fork_child(parts.account.group(), process, owners);
        }
        copy_gauges(&gauges, &process.counters);
        parts.arena.renew_mapping()?;
        parts.pages.for_each_folio(whole_arena(), |index, _| {
            parts.pages.folio(index).lock().clear_pins();
        });
        release_ops(parts);
        apply_fork_policies(parts, masked);
        Ok(())
    }
}

fn whole_arena() -> PageRange {
    PageRange::covering(ARENA_BASE, ARENA_LEN)
}

/// The child starts with what it has a copy of, and with counters at zero.
fn copy_gauges(from: &Counters, to: &Counters) {
    for ((from, to), what) in from.cells().iter().zip(to.cells()).zip(Counters::ALL) {
        if what.kind != Kind::Counter {
            to.store(from.load(Relaxed), Relaxed);
        }
    }
}

/// Waits until no operation is under way and keeps new ones from starting.
pub(crate) fn prepare(parts: Option<&'static Parts>) -> ForkGuard {
    let gauges = Counters::default();
    let Some(parts) = parts else {
        return ForkGuard {
            parts: None,
            _regions: None,
            child: None,
            gauges,
            refused: false,
        };
    };
    for op in parts.ops.all() {
        core::mem::forget(op.acquire());
    }
    // Looking an address up takes no operation.
    let regions = parts.arena.regions().hold();
    let account = parts.account;
    let backing = parts.backing.as_ref();
    let child = backing.and_then(|backing| backing.fork(account.group()));
    let swapped = account.counters().swapped_pages.load(Relaxed);
    let refused = child.is_none() && backing.is_some() && swapped > 0;
    copy_gauges(account.counters(), &gauges);
    ForkGuard {
        parts: Some(parts),
        _regions: Some(regions),
        child,
        gauges,
        refused,
    }
}

/// What the program asked not to be inherited goes.
fn apply_fork_policies(parts: &Parts, masked: &Masked) {
    let regions = parts.arena.regions();
    let mut at = ARENA_BASE;
    while let Some(region) = regions.next_in(at, ARENA_BASE + ARENA_LEN - at) {
        at = region.end;
        let (start, len) = (region.start, region.len());
        if region.flags.contains(Flags::FOREIGN) {
            continue;
        }
        let mut op = parts.op(masked);
        if region.flags.contains(Flags::DONT_FORK) {
            let _ = space::unmap(parts, &mut op, start, len);
        } else if region.flags.contains(Flags::WIPE_ON_FORK) {
            let _ = space::discard(parts, start, len);
        }
    }
}

fn release_ops(parts: &Parts) {
    for op in parts.ops.all() {
        // SAFETY: taken in `prepare` by this thread (or the one it is a copy of), its guard
        // forgotten.
        drop(unsafe { op.held() });
    }
}
