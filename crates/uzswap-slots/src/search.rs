//! *What*: [`Search`], one allocation for which the CPU's current cluster, taken from without a
//! lock, had no room: finds a cluster that has, and makes it current.
//!
//! *Invariants*: as in `device`.
//! *Locking*: the CPU's current cluster; when that is exhausted, the device, then the next cluster
//! by trying. A cluster whose lock was taken is waited for with nothing else held.
//! *Context*: signal, worker; in every process of the group.

use crate::cluster::{CLUSTER_SLOTS, NR_ORDERS, State};
use crate::lists::{Lists, round_from};
use crate::table::{Held, Table, named_by};
use crate::{Owner, Run, crash_point};
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
/// Attempts of one allocation. Each but the first two follows another thread's success; after so
/// many the caller tries a smaller order.
const MAX_ATTEMPTS: usize = 1000;

/// One allocation, and what it has found so far.
pub(crate) struct Search<'a, 'm> {
    table: &'a Table<'m>,
    owner: Owner,
    cpu: usize,
    order: u8,
    counts: &'a [u8],
    /// A cluster that this attempt has passed over, because its lock was taken.
    locked: Option<u32>,
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

impl<'a, 'm> Search<'a, 'm> {
    /// A search by `owner` on `cpu` for 2^`order` slots that begin with `counts`.
    pub(crate) fn new(
        table: &'a Table<'m>,
        owner: Owner,
        cpu: usize,
        order: u8,
        counts: &'a [u8],
    ) -> Self {
        Self {
            table,
            owner,
            cpu,
            order,
            counts,
            locked: None,
        }
    }

    /// Finds the slots and takes them.
    pub(crate) fn run(mut self) -> Option<Run> {
        let mut again = self.order == 0;
        for _ in 0..MAX_ATTEMPTS {
            let current = match self.find_current()? {
                Found::Run(run) => return Some(run),
                Found::Seat(current) => current,
            };
            self.locked = None;
            let Some(held) = self.choose() else {
                if let Some(run) = self.take_from_other_current() {
                    return Some(run);
                }
                match self.locked {
                    // Its holder may free slots, or be dead: waiting takes the lock over then.
                    Some(index) => drop(self.table.hold(self.owner, index)),
                    // A cluster may have gone from current to a list between the looks at the lists
                    // and at the current ones. A second look misses it only if somebody allocated
                    // from it between.
                    None if again => again = false,
                    None => return None,
                }
                continue;
            };
            if let Some(run) = held.make_current(current, self.order, self.counts) {
                return Some(run);
            }
        }
        None
    }

    /// Allocates from the CPU's current cluster; if its lock is taken, perhaps by a preempted
    /// thread, from that of the CPUs next to it. A current cluster that is exhausted is vacated and
    /// returned.
    fn find_current(&self) -> Option<Found<'m>> {
        let &Self {
            table,
            owner,
            order,
            counts,
            ..
        } = self;
        for beside in 0..MAX_CURRENTS_TRIED {
            let current = table.current(owner, self.cpu.wrapping_add(beside), order)?;
            let Some(index) = named_by(current) else {
                return Some(Found::Seat(current));
            };
            // The first one was exhausted just now.
            if beside > 0
                && let Some(run) = table.take_at_home(owner, index, order, counts)
            {
                return Some(Found::Run(run));
            }
            if let Some(held) = table.try_hold(owner, index) {
                return Some(held.take_or_vacate(current, order, counts));
            }
        }
        let current = table.current(owner, self.cpu, order)?;
        let held = named_by(current).and_then(|index| table.hold(owner, index));
        Some(held.map_or(Found::Seat(current), |held| {
            held.take_or_vacate(current, order, counts)
        }))
    }

    /// Takes a cluster's lock if it is free; remembers the cluster if not.
    fn try_hold(&mut self, index: u32) -> Option<Held<'a, 'm>> {
        let held = self.table.try_hold(self.owner, index);
        if held.is_none() {
            self.locked = Some(index);
        }
        held
    }

    /// A cluster with room: one of the order, an empty one, or one of another order.
    fn choose(&mut self) -> Option<Held<'a, 'm>> {
        let (head, order) = (self.table.head, self.order);
        let fresh = head.lists.fresh.load(Ordering::Relaxed);
        let is_listed = head.lists.have(State::Nonfull(order))
            || head.lists.have(State::Free)
            || self.table.cluster(fresh).is_some();
        if is_listed && let Some(held) = self.choose_listed() {
            return Some(held);
        }
        // Two that start at the same cluster: one finds it locked and goes on.
        let mut scan_start = head.scan_start.0.load(Ordering::Relaxed);
        let next = round_from(scan_start, fresh).take(MAX_CLUSTERS_SCANNED);
        let next = next.inspect(|index| scan_start = index + 1);
        let is_of_order = |state| state == State::Full(order);
        let found = self.first_full(next, is_of_order, MAX_CLUSTERS_SEARCHED);
        head.scan_start.0.store(scan_start, Ordering::Relaxed);
        found.or_else(|| self.choose_of_other_order()).or_else(|| {
            // A single slot is found as long as there is one.
            let all = 0..if order == 0 { fresh } else { 0 };
            let is_full = |state| matches!(state, State::Full(_));
            self.first_full(all, is_full, usize::MAX)
        })
    }

    /// The first of these clusters whose state is `wanted` and that has room; at most `searches`
    /// maps are searched.
    fn first_full(
        &mut self,
        clusters: impl Iterator<Item = u32>,
        wanted: impl Fn(State) -> bool,
        searches: usize,
    ) -> Option<Held<'a, 'm>> {
        let (table, order) = (self.table, self.order);
        let may_have_room = |index: &u32| {
            table
                .cluster(*index)
                .is_some_and(|cluster| cluster.nr_free() >= 1 << order && wanted(cluster.state()))
        };
        let mut searched = clusters.filter(may_have_room).take(searches);
        searched.find_map(|index| {
            let held = self.try_hold(index)?;
            let has_room = wanted(held.cluster.state()) && held.map().find_run(order, 0).is_some();
            has_room.then_some(held)
        })
    }

    /// The first with room among the first clusters of a list.
    fn first(&mut self, lists: &Lists<'a, 'm>, state: State) -> Option<Held<'a, 'm>> {
        let mut slice = lists.iter(state).take(MAX_LISTED_TRIED);
        slice.find_map(|index| {
            let held = self.try_hold(index)?;
            if held.map().find_run(self.order, 0).is_none() {
                // To the end, so that the next attempt looks at others.
                lists.move_to(&held, held.cluster.state());
                return None;
            }
            // Off its list before the device lock is dropped.
            held.take_off_list(lists, self.order);
            Some(held)
        })
    }

    fn choose_listed(&mut self) -> Option<Held<'a, 'm>> {
        let lists = self.table.lists(self.owner);
        let order = self.order;
        let mut first = |state| self.first(&lists, state);
        first(State::Nonfull(order))
            .or_else(|| first(State::Free))
            .or_else(|| lists.grow().then(|| first(State::Free)).flatten())
    }

    /// Room that larger orders cannot use, then room that other orders could.
    fn choose_of_other_order(&mut self) -> Option<Held<'a, 'm>> {
        let lists = self.table.lists(self.owner);
        let mut larger = self.order + 1..largest_order() + 1;
        let mut smaller = (0..self.order).rev();
        let mut first = |state| self.first(&lists, state);
        first(State::Discard)
            .or_else(|| larger.clone().find_map(|order| first(State::Frag(order))))
            .or_else(|| larger.find_map(|order| first(State::Nonfull(order))))
            .or_else(|| smaller.find_map(|order| first(State::Nonfull(order))))
    }

    /// From another CPU's current cluster: the last room there is.
    #[cold]
    fn take_from_other_current(&self) -> Option<Run> {
        let table = self.table;
        let currents = table.head.currents.iter();
        let may_have_room = |&index: &u32| {
            table.cluster(index).is_some_and(|cluster| {
                matches!(cluster.state(), State::Current(_))
                    && table.map(index).nr_taken() < CLUSTER_SLOTS
            })
        };
        currents
            .flat_map(|currents| &currents.0)
            .filter_map(named_by)
            .filter(may_have_room)
            .find_map(|index| {
                let held = table.hold(self.owner, index)?;
                matches!(held.cluster.state(), State::Current(_))
                    .then(|| held.take(self.order, self.counts))
                    .flatten()
            })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "9")]
const fn largest_order() -> u8 {
    (NR_ORDERS - 1) as u8
}
