//! *What*: [`Slots`], one device: allocation from the CPU's current cluster, and the choice of the
//! next one.
//!
//! *Invariants*
//! - A run is handed out by the home of its cluster (see `home`) or by the holder of its lock.
//! - The cluster that a CPU names as current may be stale: it is current only while its state says
//!   so, for the same order.
//!
//! *Locking*: alloc by the home of the CPU's current cluster takes no lock. Otherwise it locks that
//! cluster; when that is exhausted, the device, then the next cluster by trying. A cluster whose
//! lock was taken is waited for with nothing else held.
//! *Context*: signal, worker; in every process of the group.

use crate::cluster::{CLUSTER_SLOTS, NR_ORDERS, State};
use crate::lists::{Lists, round_from};
use crate::memory::{CLOSED, DISCARD, NR_CPUS, ROTATIONAL};
use crate::row::MAX_COUNT;
use crate::table::{Held, Table};
use crate::{LockWaits, Owner, Run, crash_point};
use uzswap_sync::primitive::{AtomicU32, Ordering};

/// Clusters of one list that one attempt tries.
const MAX_LISTED_TRIED: usize = 16;
/// Current clusters, of this CPU and of those next to it, that are tried before the first is waited
/// for.
const MAX_CURRENTS_TRIED: usize = if cfg!(loom) { 1 } else { 8 };
/// Clusters whose summary one attempt scans for a full one with room, before it takes room from
/// other orders: 64 KiB of memory.
const MAX_CLUSTERS_SCANNED: usize = 1 << 13;
/// Of them, those whose map is searched: free slots need not be contiguous.
const MAX_CLUSTERS_SEARCHED: usize = 64;
/// Distance between the current clusters of one process and of the next. Two processes share one
/// only with more CPUs, or more processes, than fit.
const CURRENTS_APART: usize = 8;
/// Attempts of one allocation. Each but the first two follows another thread's success; after so
/// many the caller tries a smaller order.
const MAX_ATTEMPTS: usize = 1000;

/// One swap device's slots, in shared memory.
#[derive(Debug)]
pub struct Slots<'m> {
    pub(crate) table: Table<'m>,
}

/// What the search for a current cluster found.
enum Found<'m> {
    Run(Run),
    Seat(&'m AtomicU32),
}

impl<'a, 'm> Held<'a, 'm> {
    /// Allocates from this cluster, which `current` names, or else vacates `current`.
    fn take_or_vacate(self, current: &'m AtomicU32, order: u8, counts: &[u8]) -> Found<'m> {
        if self.cluster.state() == State::Current(order) {
            // The home has just tried without the lock.
            if !self.cluster.is_home_of(self.owner.index())
                && let Some(run) = self.take(order, counts)
            {
                return Found::Run(run);
            }
            self.relist(order);
        }
        // Not current any more, and it does not become so while its lock is held.
        if current.load(Ordering::Relaxed) == self.index + 1 {
            current.store(0, Ordering::Relaxed);
        }
        Found::Seat(current)
    }

    /// Takes the cluster, in which there is room for `order`, off its list.
    fn take_off_list(&self, lists: &Lists<'a, 'm>, order: u8) {
        if self.cluster.state().is_empty() {
            self.become_home();
        }
        // Scanners see that there is room and wait for the lock.
        self.cluster.set_nr_free(CLUSTER_SLOTS);
        lists.move_to(self, State::Full(order));
    }

    /// Makes this full cluster, which has room after all, the CPU's current one if that is vacant.
    /// Allocates from it in any case; `None` if its home took the room meanwhile.
    fn make_current(self, current: &AtomicU32, order: u8, counts: &[u8]) -> Option<Run> {
        let free = Ordering::Relaxed;
        let sits = current
            .compare_exchange(0, self.index + 1, free, free)
            .is_ok();
        crash_point();
        self.cluster.set_cursor(0);
        if sits {
            self.change_to(State::Current(order));
        }
        let run = self.take(order, counts);
        if !sits {
            self.relist(order);
        }
        run
    }
}

impl<'m> Slots<'m> {
    /// Allocates 2^`order` contiguous slots, aligned to as many.
    /// Slot `i` starts with `counts[i]` (at most 254) of the owner's counts: how many objects
    /// touch it. Slots whose count is 0 or not given stay free. `cpu` is a hint.
    ///
    /// `None`: the device is closed, full or too fragmented; counted in [`Slots::fallbacks`]. The
    /// caller goes on with a smaller order. Order 0 fails only when no slot is free, or others have
    /// just taken the last ones.
    #[must_use]
    #[inline]
    pub fn alloc(&self, owner: Owner, cpu: usize, order: u8, counts: &[u8]) -> Option<Run> {
        match (order, counts) {
            // A copy of its own for single slots: the compiler drops what handles runs and words.
            (0, &[count]) => self.alloc_inline(owner, cpu, 0, &[count]),
            _ => self.alloc_run(owner, cpu, order, counts),
        }
    }

    #[inline(never)]
    fn alloc_run(&self, owner: Owner, cpu: usize, order: u8, counts: &[u8]) -> Option<Run> {
        self.alloc_inline(owner, cpu, order, counts)
    }

    #[inline(always)]
    fn alloc_inline(&self, owner: Owner, cpu: usize, order: u8, counts: &[u8]) -> Option<Run> {
        if usize::from(order) >= NR_ORDERS || counts.len() > 1 << order || !owner.owns() {
            return None;
        }
        let most = counts.iter().copied().max().unwrap_or(0);
        if self.is_closed() || most == 0 || most > MAX_COUNT {
            return None;
        }
        let current = self.current(owner, cpu, order)?;
        if let Some(index) = self.named_by(current)
            && let Some(run) = self.take_at_home(owner, index, order, counts)
        {
            return Some(run);
        }
        self.alloc_or_count(owner, cpu, order, counts)
    }

    #[cold]
    fn alloc_or_count(&self, owner: Owner, cpu: usize, order: u8, counts: &[u8]) -> Option<Run> {
        let run = self.alloc_locked(owner, cpu, order, counts);
        if run.is_none()
            && let Some(fallbacks) = self.table.head.fallbacks.get(usize::from(order))
        {
            fallbacks.fetch_add(1, Ordering::Relaxed);
        }
        run
    }

    fn alloc_locked(&self, owner: Owner, cpu: usize, order: u8, counts: &[u8]) -> Option<Run> {
        let mut again = order == 0;
        for _ in 0..MAX_ATTEMPTS {
            let current = match self.find_current(owner, cpu, order, counts)? {
                Found::Run(run) => return Some(run),
                Found::Seat(current) => current,
            };
            let mut locked = None;
            let Some(held) = self.choose(owner, order, &mut locked) else {
                if let Some(run) = self.alloc_from_other_current(owner, order, counts) {
                    return Some(run);
                }
                match locked {
                    // Its holder may free slots, or be dead: waiting takes the lock over then.
                    Some(index) => drop(self.table.hold(owner, index)),
                    // A cluster may have gone from current to a list between the looks at the lists
                    // and at the current ones. A second look misses it only if somebody allocated
                    // from it between.
                    None if again => again = false,
                    None => return None,
                }
                continue;
            };
            if let Some(run) = held.make_current(current, order, counts) {
                return Some(run);
            }
        }
        None
    }

    /// Allocates from the CPU's current cluster; if its lock is taken, perhaps by a preempted
    /// thread, from that of the CPUs next to it. A current cluster that is exhausted is vacated and
    /// returned.
    fn find_current(
        &self,
        owner: Owner,
        cpu: usize,
        order: u8,
        counts: &[u8],
    ) -> Option<Found<'m>> {
        for beside in 0..MAX_CURRENTS_TRIED {
            let current = self.current(owner, cpu.wrapping_add(beside), order)?;
            let Some(index) = self.named_by(current) else {
                return Some(Found::Seat(current));
            };
            // The first one was exhausted just now.
            if beside > 0
                && let Some(run) = self.take_at_home(owner, index, order, counts)
            {
                return Some(Found::Run(run));
            }
            if let Some(held) = self.table.try_hold(owner, index) {
                return Some(held.take_or_vacate(current, order, counts));
            }
        }
        let current = self.current(owner, cpu, order)?;
        let held = self
            .named_by(current)
            .and_then(|index| self.table.hold(owner, index));
        Some(held.map_or(Found::Seat(current), |held| {
            held.take_or_vacate(current, order, counts)
        }))
    }

    /// Names the current cluster of a process on a CPU; of all, on a rotational device.
    #[inline]
    fn current(&self, owner: Owner, cpu: usize, order: u8) -> Option<&'m AtomicU32> {
        let number = match self.table.head.has(ROTATIONAL) {
            true => 0,
            false => cpu.wrapping_add(owner.index() * CURRENTS_APART) % NR_CPUS,
        };
        self.table
            .head
            .currents
            .get(number)?
            .0
            .get(usize::from(order))
    }

    #[inline]
    fn named_by(&self, current: &AtomicU32) -> Option<u32> {
        current.load(Ordering::Relaxed).checked_sub(1)
    }

    /// A cluster with room for `order`: one of that order, an empty one, or one of another order.
    /// One whose lock was taken is left in `locked`.
    fn choose(&self, owner: Owner, order: u8, locked: &mut Option<u32>) -> Option<Held<'_, 'm>> {
        let lists = &self.table.head.lists;
        let fresh = lists.fresh.load(Ordering::Relaxed);
        let is_listed = lists.have(State::Nonfull(order))
            || lists.have(State::Free)
            || self.table.cluster(fresh).is_some();
        if is_listed && let Some(held) = self.choose_listed(owner, order, locked) {
            return Some(held);
        }
        // Two that start at the same cluster: one finds it locked and goes on.
        let mut scan_start = self.table.head.scan_start.0.load(Ordering::Relaxed);
        let next = round_from(scan_start, fresh).take(MAX_CLUSTERS_SCANNED);
        let next = next.inspect(|index| scan_start = index + 1);
        let is_of_order = |state| state == State::Full(order);
        let found = self.first_full(
            owner,
            order,
            next,
            is_of_order,
            MAX_CLUSTERS_SEARCHED,
            locked,
        );
        self.table
            .head
            .scan_start
            .0
            .store(scan_start, Ordering::Relaxed);
        found
            .or_else(|| self.choose_of_other_order(owner, order, locked))
            .or_else(|| {
                // A single slot is found as long as there is one.
                let all = 0..if order == 0 { fresh } else { 0 };
                let is_full = |state| matches!(state, State::Full(_));
                self.first_full(owner, order, all, is_full, usize::MAX, locked)
            })
    }

    /// The first of these clusters whose state is `wanted` and that has a run of `order`; at most
    /// `searches` maps are searched.
    fn first_full(
        &self,
        owner: Owner,
        order: u8,
        clusters: impl Iterator<Item = u32>,
        wanted: impl Fn(State) -> bool,
        searches: usize,
        locked: &mut Option<u32>,
    ) -> Option<Held<'_, 'm>> {
        let may_have_room = |index: &u32| {
            self.table
                .cluster(*index)
                .is_some_and(|cluster| cluster.nr_free() >= 1 << order && wanted(cluster.state()))
        };
        let mut searched = clusters.filter(may_have_room).take(searches);
        searched.find_map(|index| {
            let Some(held) = self.table.try_hold(owner, index) else {
                *locked = Some(index);
                return None;
            };
            let has_room = wanted(held.cluster.state()) && held.map().find_run(order, 0).is_some();
            has_room.then_some(held)
        })
    }

    /// The first with room among the first clusters of a list.
    fn first<'a>(
        &'a self,
        lists: &Lists<'a, 'm>,
        owner: Owner,
        order: u8,
        state: State,
        locked: &mut Option<u32>,
    ) -> Option<Held<'a, 'm>> {
        let mut slice = lists.iter(state).take(MAX_LISTED_TRIED);
        slice.find_map(|index| {
            let Some(held) = self.table.try_hold(owner, index) else {
                *locked = Some(index);
                return None;
            };
            if held.map().find_run(order, 0).is_none() {
                // To the end, so that the next attempt looks at others.
                lists.move_to(&held, held.cluster.state());
                return None;
            }
            // Off its list before the device lock is dropped.
            held.take_off_list(lists, order);
            Some(held)
        })
    }

    fn choose_listed(
        &self,
        owner: Owner,
        order: u8,
        locked: &mut Option<u32>,
    ) -> Option<Held<'_, 'm>> {
        let lists = self.table.lists(owner);
        let mut first = |state| self.first(&lists, owner, order, state, locked);
        first(State::Nonfull(order))
            .or_else(|| first(State::Free))
            .or_else(|| lists.grow().then(|| first(State::Free)).flatten())
    }

    /// Room that larger orders cannot use, then room that other orders could.
    fn choose_of_other_order(
        &self,
        owner: Owner,
        order: u8,
        locked: &mut Option<u32>,
    ) -> Option<Held<'_, 'm>> {
        let lists = self.table.lists(owner);
        let mut first = |state| self.first(&lists, owner, order, state, locked);
        let larger = order + 1..largest_order() + 1;
        first(State::Discard)
            .or_else(|| larger.clone().find_map(|order| first(State::Frag(order))))
            .or_else(|| {
                larger
                    .clone()
                    .find_map(|order| first(State::Nonfull(order)))
            })
            .or_else(|| {
                (0..order)
                    .rev()
                    .find_map(|order| first(State::Nonfull(order)))
            })
    }

    /// From another CPU's current cluster: the last room there is.
    #[cold]
    fn alloc_from_other_current(&self, owner: Owner, order: u8, counts: &[u8]) -> Option<Run> {
        let currents = self
            .table
            .head
            .currents
            .iter()
            .flat_map(|currents| &currents.0);
        currents
            .filter_map(|current| self.named_by(current))
            .filter(|&index| {
                self.table.cluster(index).is_some_and(|cluster| {
                    matches!(cluster.state(), State::Current(_))
                        && self.table.map(index).nr_taken() < CLUSTER_SLOTS
                })
            })
            .find_map(|index| {
                let held = self.table.hold(owner, index)?;
                matches!(held.cluster.state(), State::Current(_))
                    .then(|| held.take(order, counts))
                    .flatten()
            })
    }

    /// What kind of device this is. Set once by its creator, before others attach.
    ///
    /// `rotational`: all CPUs share one current cluster of each order, so that writes stay
    /// sequential. `discard`: empty clusters are discarded on the device ([`Slots::take_discard`])
    /// before they are free.
    pub fn set_kind(&self, rotational: bool, discard: bool) {
        self.table.head.set(ROTATIONAL, rotational);
        self.table.head.set(DISCARD, discard);
    }

    /// Allocates nothing from now on; calls under way may still succeed.
    pub fn close(&self) {
        self.table.head.set(CLOSED, true);
    }

    /// Undoes [`Slots::close`].
    pub fn open(&self) {
        self.table.head.set(CLOSED, false);
    }

    /// Whether nothing is allocated.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.table.head.has(CLOSED)
    }

    /// Slots of the device.
    #[must_use]
    pub fn nr_slots(&self) -> u32 {
        u32::try_from(self.table.nr_clusters()).map_or(u32::MAX, |nr| nr * CLUSTER_SLOTS)
    }

    /// Slots that are taken; exact while nothing changes. Looks at every cluster that was ever
    /// used.
    #[must_use]
    pub fn used(&self) -> u64 {
        let fresh = self.table.head.lists.fresh.load(Ordering::Relaxed);
        (0..fresh)
            .map(|index| u64::from(self.table.map(index).nr_taken()))
            .sum()
    }

    /// Slots of the clusters that are not empty: what the device occupies at most.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        let nr = self.table.head.lists.nr_nonempty.load(Ordering::Relaxed);
        u64::from(nr) * u64::from(CLUSTER_SLOTS)
    }

    /// The most that [`Slots::in_use`] ever was.
    #[must_use]
    pub fn peak(&self) -> u64 {
        let nr = self.table.head.lists.peak_nonempty.load(Ordering::Relaxed);
        u64::from(nr) * u64::from(CLUSTER_SLOTS)
    }

    /// How often a run of `order` was asked for and not found.
    #[must_use]
    pub fn fallbacks(&self, order: u8) -> u64 {
        let fallbacks = self.table.head.fallbacks.get(usize::from(order));
        fallbacks.map_or(0, |nr| nr.load(Ordering::Relaxed))
    }

    /// How often and how long locks were waited for.
    #[must_use]
    pub fn lock_waits(&self) -> LockWaits {
        let (cluster, device) = (&self.table.head.cluster_waits, &self.table.head.lists.waits);
        LockWaits {
            nr_cluster: cluster.nr.load(Ordering::Relaxed),
            cluster_ns: cluster.ns.load(Ordering::Relaxed),
            nr_device: device.nr.load(Ordering::Relaxed),
            device_ns: device.ns.load(Ordering::Relaxed),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "9")]
const fn largest_order() -> u8 {
    (NR_ORDERS - 1) as u8
}
