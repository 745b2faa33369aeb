//! # What
//! [`Slots`], one device: allocation from the CPU's current cluster, and the choice of the next one.
//!
//! # Invariants
//! - A run is handed out by the holder of its cluster's lock alone, from slots whose taken bits are clear.
//! - A seat's cluster that is not `Current` of the seat's order any more is no current cluster:
//!   a seat may be stale, and is looked at again under the cluster's lock.
//!
//! # Locking
//! Alloc: the seat's cluster, then (only when that is exhausted) the device lock, then the next cluster
//! by trying. A cluster that could not be tried is waited for with nothing else held.
//!
//! # Context
//! Signal, worker; in every process of the group.

use super::cluster::{CLUSTER_SLOTS, Cluster, NR_ORDERS, State};
use super::lists::Lists;
use super::lock::Got;
use super::memory::{CLOSED, DISCARD, Head, IsAlive, NR_CPUS, ROTATIONAL};
use super::{LockWaits, Owner, Run};
use crate::primitive::{AtomicU32, AtomicU64, Ordering};

/// Clusters of one list that are looked at in one attempt to take a run from another order's cluster.
const SLICE: usize = 16;
/// Free slots from which on a cluster is preferred to an empty one.
const WORTH_A_TURN: u32 = if cfg!(loom) { 1 } else { 32 };
/// Seats that are tried before the first one's cluster is waited for.
const SEATS_TRIED: usize = if cfg!(loom) { 1 } else { 8 };
/// Attempts of one allocation; each but the first follows another thread's success, so this many
/// mean that the caller had better ask for less.
const ATTEMPTS: usize = 1000;

/// One swap device's slots, in shared memory.
pub struct Slots<'m> {
    pub(super) head: &'m Head,
    pub(super) clusters: &'m [Cluster],
    pub(super) counts: &'m [AtomicU64],
    is_alive: IsAlive<'m>,
}

impl core::fmt::Debug for Slots<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Slots")
            .field("nr_slots", &self.nr_slots())
            .field("in_use", &self.in_use())
            .finish_non_exhaustive()
    }
}

/// A cluster whose lock this thread holds.
#[must_use = "the cluster's lock is freed when this is dropped"]
pub(super) struct Held<'a, 'm> {
    pub(super) slots: &'a Slots<'m>,
    pub(super) index: u32,
    pub(super) cluster: &'a Cluster,
    pub(super) owner: Owner,
}

impl Drop for Held<'_, '_> {
    fn drop(&mut self) {
        if super::died() {
            return;
        }
        self.cluster.lock.unlock();
    }
}

/// What looking for a cluster to allocate from led to.
enum Pick<'a, 'm> {
    Found(Held<'a, 'm>),
    /// Another thread took a seat here meanwhile.
    Again,
    /// Nothing but, maybe, this cluster, whose lock was not free.
    Nothing {
        locked: Option<u32>,
    },
}

impl<'m> Slots<'m> {
    pub(super) fn new(
        head: &'m Head,
        clusters: &'m [Cluster],
        counts: &'m [AtomicU64],
        is_alive: IsAlive<'m>,
    ) -> Self {
        Self {
            head,
            clusters,
            counts,
            is_alive,
        }
    }

    /// Allocates 2^`order` contiguous slots, aligned to as many.
    ///
    /// Slot `i` is born with `counts[i]` of the owner's counts: how many objects touch it. Slots whose count
    /// is 0 or not given stay free. `cpu` is a hint.
    ///
    /// `None`: the device is closed, full or too fragmented; counted in [`Slots::fallbacks`]. The caller goes
    /// on with a smaller order. Order 0 fails only when no slot is free.
    #[must_use]
    pub fn alloc(&self, owner: Owner, cpu: usize, order: u8, counts: &[u8]) -> Option<Run> {
        if usize::from(order) >= NR_ORDERS || counts.len() > 1 << order || !owner.owns() {
            return None;
        }
        if self.is_closed() || counts.iter().all(|&count| count == 0) {
            return None;
        }
        let run = self.alloc_near(owner, cpu, order, counts);
        if run.is_none()
            && let Some(fallbacks) = self.head.fallbacks.get(usize::from(order))
        {
            fallbacks.fetch_add(1, Ordering::Relaxed);
        }
        run
    }

    fn alloc_near(&self, owner: Owner, cpu: usize, order: u8, counts: &[u8]) -> Option<Run> {
        for _ in 0..ATTEMPTS {
            let (seat, current) = self.sit(owner, cpu, order)?;
            if let Some(held) = &current
                && held.cluster.state() == State::Current(order)
                && let Some(run) = held.take(order, counts)
            {
                return Some(run);
            }
            let locked = match self.pick(owner, seat, order, current) {
                Pick::Found(held) => return held.take(order, counts),
                Pick::Again => continue,
                Pick::Nothing { locked } => locked,
            };
            if let Some(run) = self.alloc_beside(owner, order, counts) {
                return Some(run);
            }
            // Its holder may make room there, or may be dead: waiting takes it over.
            drop(self.hold(owner, locked?));
        }
        None
    }

    /// The CPU's seat, or one beside it if a thread that was preempted (or another CPU's) is in the cluster there:
    /// what it waits for may take long. And the seat's cluster.
    #[inline]
    fn sit(
        &self,
        owner: Owner,
        cpu: usize,
        order: u8,
    ) -> Option<(&AtomicU32, Option<Held<'_, 'm>>)> {
        let seat = |cpu: usize| {
            let seats = self.head.seats.get(cpu % NR_CPUS)?;
            seats.0.get(usize::from(order))
        };
        let cpus = match self.head.has(ROTATIONAL) {
            true => 0..0,
            false => cpu..cpu.saturating_add(SEATS_TRIED),
        };
        for seat in cpus.clone().filter_map(seat) {
            let Some(index) = self.seated(seat) else {
                return Some((seat, None));
            };
            if let Some(held) = self.try_hold(owner, index) {
                return Some((seat, Some(held)));
            }
        }
        let seat = seat(cpus.start)?;
        let held = self.seated(seat).and_then(|index| self.hold(owner, index));
        Some((seat, held))
    }

    fn seated(&self, seat: &AtomicU32) -> Option<u32> {
        seat.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Sends the exhausted current cluster to its list and seats another.
    fn pick<'a>(
        &'a self,
        owner: Owner,
        seat: &AtomicU32,
        order: u8,
        exhausted: Option<Held<'a, 'm>>,
    ) -> Pick<'a, 'm> {
        let lists = self.lists(owner);
        if let Some(held) = exhausted
            && held.cluster.state() == State::Current(order)
        {
            lists.move_to(&held, held.cluster.resting(order, self.empty()));
        }
        // States stand still now. A seat is taken from a cluster only when it is not current any more,
        // or that cluster would be on no list and in no seat.
        let seated = self.seated(seat).and_then(|index| self.cluster(index));
        if seated.is_some_and(|cluster| cluster.state() == State::Current(order)) {
            return Pick::Again;
        }
        let mut locked = None;
        let Some(held) = self.choose(&lists, owner, order, &mut locked) else {
            return Pick::Nothing { locked };
        };
        seat.store(held.index + 1, Ordering::Relaxed);
        super::step();
        lists.move_to(&held, State::Current(order));
        Pick::Found(held)
    }

    /// A cluster with room for `order`: one of that order, an empty one, or one of another order.
    fn choose<'a>(
        &'a self,
        lists: &Lists<'a, 'm>,
        owner: Owner,
        order: u8,
        locked: &mut Option<u32>,
    ) -> Option<Held<'a, 'm>> {
        let mut first = |state| {
            let mut slice = lists.iter(state).take(SLICE);
            slice.find_map(|index| {
                let Some(held) = self.try_hold(owner, index) else {
                    *locked = Some(index);
                    return None;
                };
                if held.cluster.find_run(order).is_none() {
                    // To the end, so that the next attempt looks at others.
                    lists.move_to(&held, held.cluster.state());
                    return None;
                }
                Some(held)
            })
        };
        // A turn costs the device lock: it should yield more than the slot that was freed last.
        let oldest = lists.iter(State::Nonfull(order)).next();
        let worth = oldest
            .and_then(|index| self.cluster(index))
            .is_some_and(|cluster| CLUSTER_SLOTS - cluster.nr_taken() >= WORTH_A_TURN);
        if worth && let Some(held) = first(State::Nonfull(order)) {
            return Some(held);
        }
        if let Some(held) = first(State::Free) {
            return Some(held);
        }
        if lists.grow()
            && let Some(held) = first(State::Free)
        {
            return Some(held);
        }
        if let Some(held) = first(State::Nonfull(order)) {
            return Some(held);
        }
        // Holes that are of no use to a larger order any more, then room that would have been.
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

    /// From another seat's cluster: the last room there is.
    #[cold]
    fn alloc_beside(&self, owner: Owner, order: u8, counts: &[u8]) -> Option<Run> {
        let seats = self.head.seats.iter().flat_map(|seats| &seats.0);
        seats
            .filter_map(|seat| self.seated(seat))
            .filter(|&index| {
                self.cluster(index).is_some_and(|cluster| {
                    matches!(cluster.state(), State::Current(_))
                        && cluster.nr_taken() < CLUSTER_SLOTS
                })
            })
            .find_map(|index| {
                let held = self.hold(owner, index)?;
                matches!(held.cluster.state(), State::Current(_))
                    .then(|| held.take(order, counts))
                    .flatten()
            })
    }

    /// Takes a cluster's lock, waiting for it. When its holder is dead, the cluster is put in order first.
    #[inline]
    pub(super) fn hold(&self, owner: Owner, index: u32) -> Option<Held<'_, 'm>> {
        let cluster = self.cluster(index)?;
        let is_dead = |stamp| self.is_dead(stamp);
        let waits = &self.head.cluster_waits;
        Some(match cluster.lock.lock(owner.stamp(), waits, is_dead) {
            Got::Clean => self.held(owner, index, cluster),
            Got::FromTheDead => self.taken_over(owner, index, cluster),
        })
    }

    #[inline]
    pub(super) fn try_hold(&self, owner: Owner, index: u32) -> Option<Held<'_, 'm>> {
        let cluster = self.cluster(index)?;
        let held = || self.held(owner, index, cluster);
        cluster.lock.try_lock(owner.stamp()).then(held)
    }

    /// The cluster whose lock this thread has just taken.
    #[inline]
    fn held<'a>(&'a self, owner: Owner, index: u32, cluster: &'a Cluster) -> Held<'a, 'm> {
        cluster.lock.assert_held();
        Held {
            slots: self,
            index,
            cluster,
            owner,
        }
    }

    #[cold]
    fn taken_over<'a>(&'a self, owner: Owner, index: u32, cluster: &'a Cluster) -> Held<'a, 'm> {
        let held = self.held(owner, index, cluster);
        held.repair();
        held
    }

    /// Takes the device lock. The caller may hold one cluster.
    pub(super) fn lists(&self, owner: Owner) -> Lists<'_, 'm> {
        let heads = &self.head.lists;
        let got = heads
            .lock
            .lock(owner.stamp(), &heads.waits, |stamp| self.is_dead(stamp));
        let lists = Lists::held(self);
        if got == Got::FromTheDead {
            lists.relink();
        }
        lists
    }

    pub(super) fn is_dead(&self, stamp: u32) -> bool {
        let (index, is_of_this_life) = self.life_of(stamp);
        !is_of_this_life || !(self.is_alive)(index)
    }

    #[inline]
    pub(super) fn cluster(&self, index: u32) -> Option<&'m Cluster> {
        self.clusters.get(index as usize)
    }

    /// Where clusters go that have nothing in them any more.
    pub(super) fn empty(&self) -> State {
        if self.head.has(DISCARD) {
            State::Discard
        } else {
            State::Free
        }
    }

    /// What kind of device this is. Set once by its creator, before others attach.
    ///
    /// `rotational`: all CPUs share one current cluster of each order, so that writes stay sequential.
    /// `discard`: empty clusters are told to the device ([`Slots::take_discard`]) before they are free.
    pub fn set_kind(&self, rotational: bool, discard: bool) {
        self.head.set(ROTATIONAL, rotational);
        self.head.set(DISCARD, discard);
    }

    /// Hands out nothing from now on; calls that are under way may still succeed.
    pub fn close(&self) {
        self.head.set(CLOSED, true);
    }

    /// Takes [`Slots::close`] back.
    pub fn open(&self) {
        self.head.set(CLOSED, false);
    }

    /// Whether nothing is handed out.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.head.has(CLOSED)
    }

    /// Slots of the device.
    #[must_use]
    pub fn nr_slots(&self) -> u32 {
        u32::try_from(self.clusters.len()).map_or(u32::MAX, |nr| nr * CLUSTER_SLOTS)
    }

    /// Slots that are taken; exact while nothing changes. Looks at every cluster that was ever used.
    #[must_use]
    pub fn used(&self) -> u64 {
        let fresh = self.head.lists.fresh.load(Ordering::Relaxed) as usize;
        let used = self.clusters.iter().take(fresh);
        used.map(|cluster| u64::from(cluster.nr_taken())).sum()
    }

    /// Slots of the clusters that are not empty: what the device occupies at most.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        let nr = self.head.lists.nr_nonempty.load(Ordering::Relaxed);
        u64::from(nr) * u64::from(CLUSTER_SLOTS)
    }

    /// The most that [`Slots::in_use`] ever was.
    #[must_use]
    pub fn peak(&self) -> u64 {
        let nr = self.head.lists.peak_nonempty.load(Ordering::Relaxed);
        u64::from(nr) * u64::from(CLUSTER_SLOTS)
    }

    /// How often a run of `order` was asked for and not found.
    #[must_use]
    pub fn fallbacks(&self, order: u8) -> u64 {
        let fallbacks = self.head.fallbacks.get(usize::from(order));
        fallbacks.map_or(0, |nr| nr.load(Ordering::Relaxed))
    }

    /// How often and how long locks were waited for.
    #[must_use]
    pub fn lock_waits(&self) -> LockWaits {
        let (cluster, device) = (&self.head.cluster_waits, &self.head.lists.waits);
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
