//! *What*: a cluster: [`CLUSTER_SLOTS`] slots of one device, the states it goes through, and which
//! of its slots are taken.
//!
//! ```text
//!            ┌────────────────────── put: empty ──────────────────────┐
//!     Free ─pick─► Current ─exhausted─► Full | Frag ─put─► Nonfull ─pick─► Current
//!      ▲                                                     │ put: empty
//!      └──── discarded ──── Discarding ◄── take_discard ── Discard
//! ```
//!
//! *Invariants*
//! - A cluster has a *home*: one process, whose row of counts here is the cluster's *map*. A slot
//!   is free exactly while its byte there is 0. The home's own counts are in the map as in any row;
//!   what others count and the home does not is marked as *foreign* there. So one word says whether
//!   a slot is taken and, in a cluster that nobody else uses, who counts it how often: a process
//!   killed between any two instructions leaves a consistent state.
//! - The home changes only while the cluster is empty and the old home is dead, so none of its
//!   operations is under way.
//! - The home allocates and puts without a lock. Only in a shared cluster, where a fork made others
//!   count what the home counts, the home puts under the lock. A cluster becomes shared in the fork
//!   of its home, with no operation of it under way.
//! - Whoever counts a slot of it is one of its `users`, and so is the home. A user may count none.
//! - `Full(o)` has fewer than [`MIN_FREE_LISTED`] free slots, `Nonfull(o)` has more and an aligned
//!   run of 2^o of them, `Frag(o)` has more but no such run, `Free`, `Discard` and `Discarding`
//!   have free slots alone. This holds while no operation is under way: whoever frees slots reads
//!   the state afterwards, and whoever changes the state reads the map afterwards, so one of them
//!   sees the other. `Current(o)` may be any. The number of free slots of a full cluster is an
//!   estimate until it reaches the threshold.
//! - A `Current(o)` cluster is the current one of at least one CPU for order `o`, unless the
//!   process that made it so died.
//!
//! *Locking*: `home`, `users`, the rows of all but the home, and the change of a map's byte to or
//! from foreign belong to `lock`; words of the map change by read-modify-write even then, since the
//! home needs no lock. `state` changes under `lock`, and to or from a state that has a list under
//! the device lock too; `next` and `prev` belong to the device lock. `cursor` and `nr_free` are
//! hints.
//!
//! *Layout*: each alloc and put reads the [`Summary`], which lies apart from the [`Descriptor`]: at
//! eight bytes a cluster, those of a large device stay in the CPU's cache.
//! *Context*: signal, worker, init; in every process of the group.

use crate::lock::SharedLock;
use uzswap_sync::primitive::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use uzswap_sync::strict_assert;

/// Slots of a cluster.
pub const CLUSTER_SLOTS: u32 = if cfg!(loom) { 4 } else { 512 };
/// Orders of runs: a run of order `o` is 2^o slots; the largest is a whole cluster.
pub const NR_ORDERS: usize = if cfg!(loom) { 3 } else { 10 };

/// A cluster with fewer free slots is full: on no list, found by scanning all clusters.
pub(crate) const MIN_FREE_LISTED: u32 = if cfg!(loom) { 1 } else { 64 };

/// In [`Cluster::home`], beside 1 + the home's index.
const SHARED: u16 = 1 << 15;

/// Where a cluster is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing in it.
    Free,
    /// Some CPU allocates runs of this order from it; on no list.
    Current(u8),
    /// Has a free run of its order.
    Nonfull(u8),
    /// Has free slots, but no run of its order.
    Frag(u8),
    /// Hardly a slot is free; on no list.
    Full(u8),
    /// Nothing in it; not discarded on the device yet.
    Discard,
    /// The process with this index discards it on the device; on no list.
    Discarding(u16),
}

impl State {
    #[inline]
    fn encode(self) -> u32 {
        let (kind, argument) = match self {
            State::Free => (0, 0),
            State::Current(order) => (1, order.into()),
            State::Nonfull(order) => (2, order.into()),
            State::Frag(order) => (3, order.into()),
            State::Full(order) => (4, order.into()),
            State::Discard => (5, 0),
            State::Discarding(index) => (6, index),
        };
        kind | u32::from(argument) << 8
    }

    #[inline]
    fn decode(word: u32) -> Self {
        let [kind, low, high, _] = word.to_le_bytes();
        match kind {
            1 => State::Current(low),
            2 => State::Nonfull(low),
            3 => State::Frag(low),
            4 => State::Full(low),
            5 => State::Discard,
            6 => State::Discarding(u16::from_le_bytes([low, high])),
            _ => State::Free,
        }
    }

    /// Whether clusters of this state are in use and on no list.
    pub(crate) fn is_unlisted(self) -> bool {
        matches!(self, State::Current(_) | State::Full(_))
    }

    /// Whether no slot of such a cluster is taken.
    pub(crate) fn is_empty(self) -> bool {
        matches!(self, State::Free | State::Discard | State::Discarding(_))
    }
}

/// What every alloc and put reads. Zero is [`State::Free`], without a home.
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub(crate) struct Summary {
    state: AtomicU32,
    home: AtomicU16,
    /// Estimated free slots of a full cluster; 0 only if there are none.
    nr_free: AtomicU16,
}

/// What is read when a cluster changes its state, or by the holder of its lock.
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C, align(64))]
pub(crate) struct Descriptor {
    pub(crate) lock: SharedLock,
    /// Neighbours on the list of its state, as 1 + index.
    pub(crate) next: AtomicU32,
    pub(crate) prev: AtomicU32,
    /// Where the next search for free slots begins.
    cursor: AtomicU16,
    /// Which groups of 64 processes have users here: see [`crate::users`].
    pub(crate) user_groups: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Summary>() == 8 && size_of::<Descriptor>() == 64);

/// A cluster: 72 bytes for 512 slots, beside the counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cluster<'m> {
    pub(crate) summary: &'m Summary,
    pub(crate) descriptor: &'m Descriptor,
}

impl<'m> Cluster<'m> {
    #[inline]
    pub(crate) fn state(self) -> State {
        State::decode(self.summary.state.load(Ordering::Relaxed))
    }

    /// Whether some CPU allocates runs of `order` from it.
    #[inline]
    pub(crate) fn is_current(self, order: u8) -> bool {
        self.summary.state.load(Ordering::Relaxed) == State::Current(order).encode()
    }

    /// As [`Cluster::is_current`], after a change of the map; see [`Cluster::state_after_change`].
    #[inline]
    pub(crate) fn is_current_after_change(self, order: u8) -> bool {
        self.word_after_change() == State::Current(order).encode()
    }

    /// The state after a change of the map by a SeqCst read-modify-write.
    ///
    /// A concurrent [`Cluster::set_state`] whose caller does not see the map's change afterwards is
    /// seen here.
    #[inline]
    pub(crate) fn state_after_change(self) -> State {
        State::decode(self.word_after_change())
    }

    #[inline]
    fn word_after_change(self) -> u32 {
        // Loom takes SeqCst accesses for less than they are.
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        self.summary.state.load(Ordering::SeqCst)
    }

    /// [`crate::lists::Lists::move_to`] calls this for states with a list. Later reads of the map
    /// are ordered after it.
    pub(crate) fn set_state(self, state: State) {
        self.summary.state.store(state.encode(), Ordering::Release);
        // Pairs with the SeqCst accesses around `state_after_change`.
        fence(Ordering::SeqCst);
    }

    /// Whose row is the map.
    #[inline]
    pub(crate) fn home(self) -> Option<usize> {
        let home = self.summary.home.load(Ordering::Relaxed) & (SHARED - 1);
        usize::from(home).checked_sub(1)
    }

    /// Whether process `index` is the home.
    #[inline]
    pub(crate) fn is_home_of(self, index: usize) -> bool {
        self.home() == Some(index)
    }

    /// Whether process `index` is the home, and slots that it counts are counted by nobody else.
    #[inline]
    pub(crate) fn is_private_to(self, index: usize) -> bool {
        usize::from(self.summary.home.load(Ordering::Relaxed)) == index + 1
    }

    /// Makes process `index` the home. The cluster is empty, and no other home is alive.
    pub(crate) fn set_home(self, index: usize) {
        strict_assert!(
            self.state().is_empty(),
            "the home changes while the cluster is empty"
        );
        let home = u16::try_from(index + 1).unwrap_or(0);
        self.summary.home.store(home, Ordering::Relaxed);
    }

    /// From now on, others may count what the home counts.
    pub(crate) fn set_shared(self) {
        let home = self.summary.home.load(Ordering::Relaxed);
        self.summary.home.store(home | SHARED, Ordering::Relaxed);
    }

    /// The estimated number of free slots of this full cluster.
    #[inline]
    pub(crate) fn nr_free(self) -> u32 {
        self.summary.nr_free.load(Ordering::Relaxed).into()
    }

    /// A plain store: of two threads that count at the same time one may be lost, but the estimate
    /// does not become 0 by that.
    #[inline]
    pub(crate) fn set_nr_free(self, nr: u32) {
        let nr = u16::try_from(nr).unwrap_or(u16::MAX);
        self.summary.nr_free.store(nr, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn cursor(self) -> u32 {
        self.descriptor.cursor.load(Ordering::Relaxed).into()
    }

    #[inline]
    pub(crate) fn set_cursor(self, slot: u32) {
        let slot = u16::try_from(slot).unwrap_or(0);
        self.descriptor.cursor.store(slot, Ordering::Relaxed);
    }
}
