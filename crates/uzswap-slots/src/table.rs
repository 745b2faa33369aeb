//! *What*: [`Table`], the shared memory of a device as this process sees it: clusters, rows of
//! counts, and the locks on both.
//!
//! *Invariants*: whoever finds a lock's holder dead repairs what it guards before going on.
//! *Locking*: [`Table::hold`] takes a cluster's lock, [`Table::lists`] the device's.
//! *Context*: signal, worker; in every process of the group.

use crate::Owner;
use crate::cluster::{CLUSTER_SLOTS, Cluster, Descriptor, State, Summary};
use crate::lists::Lists;
use crate::lock::Acquired;
use crate::memory::{DISCARD, Head, IsAlive, NR_CPUS, ROTATIONAL};
use crate::row::{Row, Words};
use crate::users::Users;
use uzswap_sync::primitive::{AtomicU32, AtomicU64, Ordering};

/// Distance between the current clusters of one process and of the next. Two processes share one
/// only with more CPUs, or more processes, than fit.
const CURRENTS_APART: usize = 8;

/// A device's shared memory.
pub(crate) struct Table<'m> {
    pub(crate) head: &'m Head,
    pub(crate) summaries: &'m [Summary],
    pub(crate) descriptors: &'m [Descriptor],
    pub(crate) users: &'m [AtomicU64],
    pub(crate) counts: &'m [Words],
    pub(crate) is_alive: IsAlive<'m>,
}

impl core::fmt::Debug for Table<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Table({} clusters)", self.nr_clusters())
    }
}

/// A cluster whose lock this thread holds.
#[must_use = "the cluster's lock is freed when this is dropped"]
pub(crate) struct Held<'a, 'm> {
    pub(crate) table: &'a Table<'m>,
    pub(crate) index: u32,
    pub(crate) cluster: Cluster<'m>,
    pub(crate) owner: Owner,
}

impl Drop for Held<'_, '_> {
    fn drop(&mut self) {
        if crate::has_crashed() {
            return;
        }
        self.cluster.descriptor.lock.unlock();
    }
}

/// The cluster that `current` names.
#[inline]
pub(crate) fn named_by(current: &AtomicU32) -> Option<u32> {
    current.load(Ordering::Relaxed).checked_sub(1)
}

impl<'m> Table<'m> {
    /// Names the current cluster of a process on a CPU; of all, on a rotational device.
    #[inline]
    pub(crate) fn current(&self, owner: Owner, cpu: usize, order: u8) -> Option<&'m AtomicU32> {
        let number = match self.head.has(ROTATIONAL) {
            true => 0,
            false => cpu.wrapping_add(owner.index() * CURRENTS_APART) % NR_CPUS,
        };
        let currents = self.head.currents.get(number)?;
        currents.0.get(usize::from(order))
    }

    /// What row `index` says of a cluster's slots.
    #[inline]
    pub(crate) fn row(&self, index: usize, cluster: u32) -> Row<'m> {
        let at = index * self.nr_clusters() + cluster as usize;
        Row::new(self.counts.get(at))
    }

    /// The row that says which slots of a cluster are free; an empty row if it was never used.
    #[inline]
    pub(crate) fn map(&self, cluster: u32) -> Row<'m> {
        let home = self.cluster(cluster).and_then(|cluster| cluster.home());
        self.row(home.unwrap_or(0), cluster)
    }

    /// The count of `slot` by a process or the supervisor.
    pub(crate) fn count_in_row(&self, index: usize, slot: u32) -> u8 {
        let (number, offset) = (slot / CLUSTER_SLOTS, slot % CLUSTER_SLOTS);
        let cluster = self.cluster(number);
        let at_home = cluster.is_some_and(|cluster| cluster.is_home_of(index));
        match self.row(index, number).byte(offset) {
            u8::MAX if at_home => 0,
            count => count,
        }
    }

    /// Takes a cluster's lock, waiting for it. If its holder is dead, the cluster is repaired
    /// first.
    #[inline]
    pub(crate) fn hold(&self, owner: Owner, index: u32) -> Option<Held<'_, 'm>> {
        let cluster = self.cluster(index)?;
        let is_dead = |stamp| self.is_dead(stamp);
        let waits = &self.head.cluster_waits;
        Some(
            match cluster.descriptor.lock.lock(owner.stamp(), waits, is_dead) {
                Acquired::Clean => self.held(owner, index, cluster),
                Acquired::FromDead => self.taken_over(owner, index, cluster),
            },
        )
    }

    #[inline]
    pub(crate) fn try_hold(&self, owner: Owner, index: u32) -> Option<Held<'_, 'm>> {
        let cluster = self.cluster(index)?;
        let held = || self.held(owner, index, cluster);
        cluster.descriptor.lock.try_lock(owner.stamp()).then(held)
    }

    /// The cluster whose lock this thread has just taken.
    #[inline]
    fn held<'a>(&'a self, owner: Owner, index: u32, cluster: Cluster<'m>) -> Held<'a, 'm> {
        cluster.descriptor.lock.assert_held();
        Held {
            table: self,
            index,
            cluster,
            owner,
        }
    }

    #[cold]
    fn taken_over<'a>(&'a self, owner: Owner, index: u32, cluster: Cluster<'m>) -> Held<'a, 'm> {
        let held = self.held(owner, index, cluster);
        held.repair();
        held
    }

    /// Takes the device lock. The caller may hold one cluster.
    pub(crate) fn lists(&self, owner: Owner) -> Lists<'_, 'm> {
        let heads = &self.head.lists;
        let got = heads
            .lock
            .lock(owner.stamp(), &heads.waits, |stamp| self.is_dead(stamp));
        let lists = Lists::held(self);
        if got == Acquired::FromDead {
            lists.relink();
        }
        lists
    }

    pub(crate) fn is_dead(&self, stamp: u32) -> bool {
        let (index, is_of_this_life) = self.life_of(stamp);
        !is_of_this_life || !self.may_run(index)
    }

    /// Whether process `index` may be in the middle of an operation.
    pub(crate) fn may_run(&self, index: usize) -> bool {
        (self.is_alive)(index)
    }

    #[inline]
    pub(crate) fn cluster(&self, index: u32) -> Option<Cluster<'m>> {
        let index = index as usize;
        Some(Cluster {
            summary: self.summaries.get(index)?,
            descriptor: self.descriptors.get(index)?,
        })
    }

    /// The users of a cluster.
    pub(crate) fn users(&self, cluster: Cluster<'m>, index: u32) -> Users<'m> {
        Users {
            groups: &cluster.descriptor.user_groups,
            words: self.users,
            nr_clusters: self.nr_clusters(),
            cluster: index as usize,
        }
    }

    /// The state of a cluster that became empty.
    pub(crate) fn empty(&self) -> State {
        if self.head.has(DISCARD) {
            State::Discard
        } else {
            State::Free
        }
    }

    #[inline]
    pub(crate) fn nr_clusters(&self) -> usize {
        self.summaries.len()
    }
}
