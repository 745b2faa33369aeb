//! *What*: the engine across fork.
//!
//! The parent stops all operations by taking every slot, then forks. The child's copy of arena, pool
//! and tables is right as it is; what it lacks is a userfaultfd of its own (the inherited one acts on
//! the parent, and the child's mappings are registered with none), which must be there before
//! anything touches the arena. The limit holds for each process: pages that both share count in both.
//!
//! *Invariants*: between `fork_prepare` and `fork_child` the child touches no arena memory.
//! *Locking*: all slots, then the region map. *Context*: the SIGSYS handler that re-issues clone.

use super::start::StartError;
use super::swap::Owners;
use super::{Engine, Parts};
use crate::arena::{ARENA_BASE, ARENA_LEN, PageRange};
use crate::masked::Masked;
use crate::region::{Flags, Held};
use uzswap_group::counters::{Counters, Kind};
use uzswap_group::group::Process;
use uzswap_sync::primitive::Ordering::Relaxed;
use uzswap_sys::thread;

/// All slots and the region map, taken.
#[derive(Debug)]
#[must_use]
pub struct ForkGuard {
    _regions: Option<Held<'static>>,
    child: Option<(&'static Process, Owners)>,
    /// What the child has a copy of: the parent's own are in shared memory, and change as soon as it goes on.
    gauges: Counters,
    refused: bool,
}

impl ForkGuard {
    /// The slot in the group that is the child's already; `None`: it claims one.
    #[must_use]
    pub const fn child(&self) -> Option<&'static Process> {
        match self.child {
            Some((process, _)) => Some(process),
            None => None,
        }
    }

    /// Whether there can be no child: it would have pages on the swap device, and the group has no slot
    /// left under which to count them.
    #[must_use]
    pub const fn refused(&self) -> bool {
        self.refused
    }
}

impl Engine {
    /// Waits until no operation is under way and keeps new ones from starting.
    pub fn fork_prepare(&self, _masked: &Masked) -> ForkGuard {
        if let Some(parts) = self.parts() {
            for slot in parts.slots.all() {
                core::mem::forget(slot.acquire());
            }
        }
        // Looking an address up takes no slot.
        let regions = self.parts().map(|parts| parts.regions.hold());
        let swap = self
            .parts()
            .and_then(|parts| Some((parts, parts.swap.as_ref()?)));
        let child = swap.and_then(|(parts, swap)| swap.fork(parts.group));
        let refused = child.is_none()
            && swap.is_some_and(|(parts, _)| parts.counters().swapped_pages.load(Relaxed) > 0);
        let gauges = Counters::default();
        if let Some(parts) = self.parts() {
            copy_gauges(parts.counters(), &gauges);
        }
        ForkGuard {
            _regions: regions,
            child,
            gauges,
            refused,
        }
    }

    /// In the parent of process `child`: goes on.
    pub fn fork_parent(&self, _masked: &Masked, guard: ForkGuard, child: u32) {
        if let Some(parts) = self.parts() {
            if let Some((swap, (process, _))) = parts.swap.as_ref().zip(guard.child) {
                swap.fork_parent(parts.group, process, child);
            }
            parts.release_slots();
        }
    }

    /// After a fork that failed: goes on.
    pub fn fork_failed(&self, _masked: &Masked, guard: ForkGuard) {
        if let Some(parts) = self.parts() {
            if let Some((swap, (child, _))) = parts.swap.as_ref().zip(guard.child) {
                swap.fork_failed(parts.group, child);
            }
            parts.release_slots();
        }
    }

    /// In the child: makes the copied engine its own, counting into `process`.
    ///
    /// # Errors
    /// The child has no userfaultfd: it must not go on.
    pub fn fork_child(
        &self,
        masked: &Masked,
        guard: ForkGuard,
        process: &'static Process,
    ) -> Result<(), StartError> {
        let ForkGuard {
            _regions: regions,
            child,
            gauges,
            ..
        } = guard;
        drop(regions);
        let owners = child.map(|(_, owners)| owners);
        let Some(parts) = self.parts() else {
            return Ok(());
        };
        parts.hazards.withdraw_all();
        parts.densifier.fork_child();
        parts.engines.forget();
        parts
            .process
            .store(core::ptr::from_ref(process).cast_mut(), Relaxed);
        process.fault_mode.store(parts.mode.into(), Relaxed);
        if let Some(swap) = &parts.swap {
            swap.fork_child(parts.group, process, owners);
        }
        copy_gauges(&gauges, &process.counters);
        parts.pid.store(thread::getpid(), Relaxed);
        parts.renew_mapping()?;
        parts.for_each_folio(whole_arena(), |index, _| {
            parts.folios.at(index).lock().clear_pins();
        });
        parts.release_slots();
        let mut at = ARENA_BASE;
        while let Some(region) = parts.regions.next_in(at, ARENA_BASE + ARENA_LEN - at) {
            at = region.end;
            let (start, len) = (region.start, region.end - region.start);
            if region.flags.contains(Flags::FOREIGN) {
                continue;
            }
            if region.flags.contains(Flags::DONT_FORK) {
                let _ = self.unmap(masked, start, len);
            } else if region.flags.contains(Flags::WIPE_ON_FORK) {
                let _ = self.discard(masked, start, len);
            }
        }
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

impl Parts {
    fn release_slots(&self) {
        for slot in self.slots.all() {
            // SAFETY: taken in `fork_prepare` by this thread (or the one it is a copy of), its
            // guard forgotten.
            drop(unsafe { slot.held() });
        }
    }
}
