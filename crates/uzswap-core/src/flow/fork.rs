//! *What*: the engine across fork.
//!
//! The parent stops all operations by acquiring every operation context, then forks. The child's
//! copy of arena, pool and tables is right as it is. It lacks a userfaultfd of its own, which must
//! exist before anything touches the arena: the inherited one acts on the parent, and no
//! userfaultfd covers the child's mappings. What both share then: [`super::share`].
//!
//! *Invariants*: between `prepare` and `ForkGuard::in_child` the child touches no arena memory.
//! *Locking*: all operations, the region map, the list of the engine's own mappings.
//! *Context*: the SIGSYS handler that re-issues clone.

use super::fork_policy::apply_fork_policies;
use super::reserve::reserve_pages;
use super::share::{protect_shared, share_resident};
use crate::account::Account;
use crate::arena::FaultMode;
use crate::arena::region::Held;
use crate::backing::Owners;
use crate::masked::Masked;
use crate::memory::HeldMappings;
use crate::op::RESERVE_PAGES;
use crate::parts::Parts;
use crate::start_error::StartError;
use uzswap_group::counters::{Counters, Kind, add};
use uzswap_group::group::{Process, Reservation};
use uzswap_sync::ledger::Levels;
use uzswap_sync::primitive::Ordering::Relaxed;
use uzswap_sys::thread;

/// All operations, the region map and the list of mappings, taken. Whoever forks passes it on to
/// [`ForkGuard::in_parent`] and [`ForkGuard::in_child`], or to [`ForkGuard::failed`].
#[must_use]
pub struct ForkGuard {
    /// `None`: the engine has not started.
    parts: Option<&'static Parts>,
    _regions: Option<Held<'static>>,
    _mappings: Option<HeldMappings<'static>>,
    child: Option<Child>,
    /// What the child has a copy of: the parent's own are in shared memory, and change as soon as
    /// it goes on.
    gauges: Counters,
    /// The pages used and those shared, likewise.
    used: u64,
    shared: u64,
    refused: bool,
}

/// What the group keeps for a child that is to be.
struct Child {
    reserved: Reservation<'static>,
    /// The record's number.
    user: usize,
    /// As whom it counts swap slots.
    owners: Option<Owners>,
}

impl Child {
    /// Reserves a record for a child of this process, and counts for it all that it will have, with
    /// the `room` that is charged for that. `None`: the group has no record left.
    fn reserve(parts: &Parts, room: u64) -> Option<Child> {
        let group = parts.account.group();
        let reserved = group.reserve(parts.account.process(), thread::getpid().unsigned_abs())?;
        let Some(user) = group.number_of(reserved.record) else {
            reserved.give_back();
            return None;
        };
        let (account, share) = (parts.account, group.share_of(reserved.record));
        let own = group.number_of(account.process());
        if let Some(own) = own.filter(|_| !account.is_limited_alone()) {
            // SAFETY: all operations are held.
            let stored = unsafe { parts.store.share() };
            let resident = share_resident(parts);
            group.ledger.share_with_child(own, share, resident + stored);
        } else {
            // What earlier forks left in common is the child's as well.
            let own = account.charge().share();
            group.ledger.join(own, share, own.shared());
        }
        // What both will write to without a fault: tables, and what system calls use.
        share.inherit(account.charge().used() - room);
        Some(Child {
            reserved,
            user,
            owners: parts
                .backing
                .as_ref()
                .and_then(|backing| backing.fork(user)),
        })
    }
}

impl core::fmt::Debug for ForkGuard {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "ForkGuard(refused: {})", self.refused)
    }
}

impl ForkGuard {
    /// The record in the group that is the child's already; `None`: it claims one.
    #[must_use]
    pub fn reserved(&self) -> Option<Reservation<'static>> {
        self.child.as_ref().map(|child| child.reserved)
    }

    /// Whether there can be no child: it would have pages on the swap device, and the group has no
    /// record left under which to count them.
    #[must_use]
    pub const fn refused(&self) -> bool {
        self.refused
    }

    /// In the parent of process `child`: goes on.
    pub fn in_parent(self, _masked: &Masked, pid: u32) {
        let Some(parts) = self.parts else { return };
        let account = parts.account;
        // In another namespace the pid means nothing to the processes that reap.
        if let Some(child) = self.child.filter(|_| account.knows_pids()) {
            child.reserved.born(pid);
        }
        release_ops(parts);
    }

    /// After a fork that failed: goes on.
    pub fn failed(self, _masked: &Masked) {
        let Some(parts) = self.parts else { return };
        if let Some(child) = self.child {
            if let Some(backing) = &parts.backing {
                backing.fork_failed(child.user);
            }
            child.reserved.give_back();
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
            _mappings: mappings,
            child,
            gauges,
            used,
            shared,
            ..
        } = self;
        let Some(parts) = parts else { return Ok(()) };
        drop((regions, mappings));
        parts.arena.hazards().withdraw_all();
        parts.store.workers().forget();
        let parent = parts.account.process();
        parts.account.become_process(process);
        parts.reclaimer.fork_child(parts.account.kick());
        parts.pages.show_coldest(&process.ask.coldest);
        if child.is_none() {
            let (group, share) = (parts.account.group(), parts.account.charge().share());
            share.inherit(used);
            group.ledger.join(group.share_of(parent), share, shared);
        }
        process.fault_mode.store(parts.arena.mode().into(), Relaxed);
        if let Some(backing) = &parts.backing {
            backing.fork_child(process, child.and_then(|child| child.owners));
        }
        copy_gauges(&gauges, &process.counters);
        parts.arena.renew_mapping()?;
        protect_shared(parts);
        parts
            .pages
            .for_each_folio(parts.arena.partition().pages(), |index, _| {
                parts.pages.folio(index).lock().clear_pins();
            });
        release_ops(parts);
        apply_fork_policies(parts, masked);
        Ok(())
    }
}

/// The child starts with what it has a copy of, and with counters at zero.
fn copy_gauges(from: &Counters, to: &Counters) {
    for ((from, to), what) in from.cells().iter().zip(to.cells()).zip(Counters::ALL) {
        if what.kind != Kind::Counter {
            to.store(from.load(Relaxed), Relaxed);
        }
    }
}

/// Pages by which what the child will have of its own may grow until all operations are held.
const FORK_MARGIN: u64 = 64;

/// Makes room for what the child will have of its own, as far as it can be made: a program that
/// forks natively forks here, and what is too much has to be evicted afterwards. Returns the pages
/// charged.
fn make_room_for_child(parts: &Parts, masked: &Masked) -> u64 {
    // The child has a limit of its own.
    if parts.account.is_limited_alone() {
        return 0;
    }
    let resident = match parts.arena.mode() {
        FaultMode::Segv => 0,
        FaultMode::Signal | FaultMode::Thread => parts.pages.nr_resident(),
    };
    let shared = resident + parts.store.object_pages();
    let nr = parts.account.charge().used().saturating_sub(shared) + FORK_MARGIN;
    let mut op = parts.op(masked);
    if reserve_pages(parts, &mut op, nr) {
        nr
    } else {
        0
    }
}

/// Counts what a child's own memory is above the limits of its groups.
fn count_excess(account: &Account, child: &Child) {
    let own = account.group().share_of(child.reserved.record).used();
    let levels = account.charge().levels();
    let excess = levels.iter().flat_map(Levels::iter);
    let excess = excess.map(|level| level.held.granted.saturating_sub(level.limit));
    let excess = excess.max().unwrap_or(0).min(own);
    add(&account.counters().over_limit_pages, excess);
}

/// Waits until no operation is under way and keeps new ones from starting.
pub(crate) fn prepare(parts: Option<&'static Parts>, masked: &Masked) -> ForkGuard {
    let gauges = Counters::default();
    let Some(parts) = parts else {
        return ForkGuard {
            parts: None,
            _regions: None,
            _mappings: None,
            child: None,
            gauges,
            used: 0,
            shared: 0,
            refused: false,
        };
    };
    let room = make_room_for_child(parts, masked);
    for op in parts.ops.all() {
        let mut op = op.acquire();
        op.reserve.shrink_to(RESERVE_PAGES);
        core::mem::forget(op);
    }
    let account = parts.account;
    // Looks at the region map, which changes no more.
    let child = Child::reserve(parts, room);
    // Looking an address up takes no operation.
    let regions = parts.arena.regions().hold();
    account.charge().uncharge(room);
    account.charge().give_back(0);
    if let Some(child) = &child {
        count_excess(account, child);
    }
    let swapped = account.counters().swapped_pages.load(Relaxed);
    let counted = child.as_ref().is_some_and(|child| child.owners.is_some());
    let refused = !counted && swapped > 0;
    copy_gauges(account.counters(), &gauges);
    ForkGuard {
        parts: Some(parts),
        _regions: Some(regions),
        _mappings: Some(account.memory().hold()),
        child,
        gauges,
        used: account.charge().used(),
        shared: account.charge().share().shared(),
        refused,
    }
}

fn release_ops(parts: &Parts) {
    for op in parts.ops.all() {
        // SAFETY: taken in `prepare` by this thread (or the one it is a copy of), its guard
        // forgotten.
        drop(unsafe { op.held() });
    }
}
