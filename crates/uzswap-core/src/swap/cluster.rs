//! # What
//! A cluster: [`CLUSTER_SLOTS`] slots of one device, the states it goes through, and which of
//! its slots are taken.
//!
//! ```text
//!            ┌────────────────────── put: empty ──────────────────────┐
//!     Free ─pick─► Current ─exhausted─► Full | Frag ─put─► Nonfull ─pick─► Current
//!      ▲                                                     │ put: empty
//!      └──── discarded ──── Discarding ◄── take_discard ── Discard
//! ```
//!
//! # Invariants
//! - Bit `i` of `taken` is set exactly while somebody counts slot `i`, and `nr_taken` is the number
//!   of set bits.
//! - Whoever counts a slot of it is one of its `users`. There may be more.
//! - `Nonfull(o)` has an aligned run of 2^o free slots, `Frag(o)` has free slots but no such run,
//!   `Full(o)` has none, `Free`, `Discard` and `Discarding` have nothing else. `Current(o)` may be any.
//! - A `Current(o)` cluster is named by at least one seat of order `o`, unless its holder died.
//! - All of this is derived from the owners' counts, so a cluster whose holder died is rebuilt from them.
//!
//! # Locking
//! `taken`, `nr_taken`, `users` and the counts of the slots belong to `lock`. `state` changes under `lock` and
//! the device lock together (so the holder of either may read it); `next` and `prev` belong to the
//! device lock.
//!
//! # Context
//! Signal, worker, init; in every process of the group.

use super::lock::SharedLock;
use super::memory::NR_ROWS;
use crate::primitive::{AtomicU32, AtomicU64, Ordering};
use core::hint::black_box;

/// Slots of a cluster.
pub const CLUSTER_SLOTS: u32 = if cfg!(loom) { 4 } else { 512 };
/// Orders of runs: a run of order `o` is 2^o slots; the largest is a whole cluster.
pub const NR_ORDERS: usize = if cfg!(loom) { 3 } else { 10 };

const WORDS: usize = (CLUSTER_SLOTS as usize).div_ceil(64);
const USER_WORDS: usize = NR_ROWS.div_ceil(64);
/// The bits of a word that stand for slots.
const VALID: u64 = if CLUSTER_SLOTS < 64 {
    (1 << CLUSTER_SLOTS) - 1
} else {
    u64::MAX
};

/// Every 2^order-th bit of a word, for the orders that fit one.
const STARTS: [u64; 7] = {
    let mut starts = [0; 7];
    let mut order = 0;
    while order < 7 {
        starts[order] = u64::MAX / (u64::MAX >> (64 - (1_u32 << order)));
        order += 1;
    }
    starts
};

/// Where a cluster is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing in it.
    Free,
    /// Some CPU allocates runs of this order from it; on no list.
    Current(u8),
    /// Has a free run of its order.
    Nonfull(u8),
    /// Has free slots, but no run of its order.
    Frag(u8),
    /// No slot is free; on no list.
    Full(u8),
    /// Nothing in it; the device has not been told yet.
    Discard,
    /// The process with this index is telling the device; on no list.
    Discarding(u16),
}

impl State {
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

    /// Whether no slot of such a cluster is taken.
    pub(super) fn is_empty(self) -> bool {
        matches!(self, State::Free | State::Discard | State::Discarding(_))
    }
}

/// A process's bit in its word of [`Cluster::users`].
fn user_bit(index: usize) -> u64 {
    1 << (index % 64)
}

/// A cluster's descriptor: a quarter of a byte a slot, in two lines of the cache that come together.
/// Zero is [`State::Free`].
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Cluster {
    pub(super) lock: SharedLock,
    state: AtomicU32,
    /// Neighbours on the list of its state, as 1 + index.
    pub(super) next: AtomicU32,
    pub(super) prev: AtomicU32,
    nr_taken: AtomicU32,
    users: [AtomicU64; USER_WORDS],
    taken: [AtomicU64; WORDS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Cluster>() == 128);

impl Cluster {
    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self {
            lock: SharedLock::new(),
            state: AtomicU32::new(0),
            next: AtomicU32::new(0),
            prev: AtomicU32::new(0),
            nr_taken: AtomicU32::new(0),
            users: core::array::from_fn(|_| AtomicU64::new(0)),
            taken: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    #[inline]
    pub(super) fn state(&self) -> State {
        State::decode(self.state.load(Ordering::Relaxed))
    }

    /// For [`super::lists::Lists`] alone, which moves the cluster between lists with it.
    pub(super) fn set_state(&self, state: State) {
        self.state.store(state.encode(), Ordering::Relaxed);
    }

    /// Slots taken; exact for the holder of the lock.
    #[inline]
    pub(super) fn nr_taken(&self) -> u32 {
        self.nr_taken.load(Ordering::Relaxed)
    }

    /// Whether process `index` may count slots here. Never wrongly `false` for a process that does not run.
    #[inline]
    pub(super) fn has_user(&self, index: usize) -> bool {
        let word = self.users.get(index / 64);
        word.is_some_and(|word| word.load(Ordering::Relaxed) & user_bit(index) != 0)
    }

    /// To be called before its first count here.
    pub(super) fn add_user(&self, index: usize) {
        if let Some(word) = self.users.get(index / 64) {
            let users = word.load(Ordering::Relaxed) | user_bit(index);
            word.store(users, Ordering::Relaxed);
        }
    }

    /// It counts nothing here any more.
    pub(super) fn remove_user(&self, index: usize) {
        if let Some(word) = self.users.get(index / 64) {
            let users = word.load(Ordering::Relaxed) & !user_bit(index);
            // Release: not before its counts are gone.
            word.store(users, Ordering::Release);
        }
    }

    pub(super) fn users(&self) -> impl Iterator<Item = usize> {
        (0..)
            .step_by(64)
            .zip(&self.users)
            .flat_map(|(first, word)| {
                let mut bits = word.load(Ordering::Relaxed);
                core::iter::from_fn(move || {
                    let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                    bits &= bits - 1;
                    Some(first + bit)
                })
            })
    }

    /// Whether nobody but process `index` may count slots here.
    #[inline]
    pub(super) fn has_no_user_but(&self, index: usize) -> bool {
        let of_others = |(number, word): (usize, &AtomicU64)| {
            let its = if number == index / 64 {
                user_bit(index)
            } else {
                0
            };
            word.load(Ordering::Relaxed) & !its
        };
        let words = self.users.iter().enumerate().map(of_others);
        words.fold(0, |all, word| all | word) == 0
    }

    fn word(&self, slot: u32) -> &AtomicU64 {
        #[allow(clippy::indexing_slicing, reason = "reduced modulo the length")]
        &self.taken[slot as usize / 64 % WORDS]
    }

    // Under the lock alone, so that a load and a store will do. `mask` is of the word that `slot` is in.
    #[inline]
    pub(super) fn mark_taken(&self, slot: u32, mask: u64) {
        let word = self.word(slot);
        let before = word.load(Ordering::Relaxed);
        word.store(before | mask, Ordering::Relaxed);
        let nr = self.nr_taken() + (mask & !before).count_ones();
        self.nr_taken.store(nr, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn mark_free(&self, slot: u32, mask: u64) {
        let word = self.word(slot);
        let before = word.load(Ordering::Relaxed);
        word.store(before & !mask, Ordering::Relaxed);
        let nr = self.nr_taken().saturating_sub((mask & before).count_ones());
        self.nr_taken.store(nr, Ordering::Relaxed);
    }

    /// Forgets what is taken, before it is counted anew.
    pub(super) fn mark_all_free(&self) {
        for word in &self.taken {
            word.store(0, Ordering::Relaxed);
        }
        self.nr_taken.store(0, Ordering::Relaxed);
    }

    /// Reads the lines of the cache that change with `slot`.
    #[inline]
    pub(super) fn look_at(&self, slot: u32) {
        black_box(self.word(slot).load(Ordering::Relaxed));
        black_box(self.lock.holder());
    }

    /// The first slot of the first free aligned run of `order`.
    #[inline]
    pub(super) fn find_run(&self, order: u8) -> Option<u32> {
        if CLUSTER_SLOTS - self.nr_taken() < 1 << order {
            return None;
        }
        if order > 6 {
            return self.find_words(1 << (order - 6));
        }
        let starts = STARTS.get(usize::from(order)).copied()?;
        (0_u32..).zip(&self.taken).find_map(|(number, word)| {
            let mut free = !word.load(Ordering::Relaxed) & VALID;
            // After round k a bit says that 2^(k+1) slots from it on are free.
            for k in 0..order {
                free &= free >> (1_u32 << k);
            }
            free &= starts;
            (free != 0).then(|| number * 64 + free.trailing_zeros())
        })
    }

    fn find_words(&self, nr: usize) -> Option<u32> {
        (0_u32..)
            .step_by(nr)
            .zip(self.taken.chunks(nr))
            .find(|(_, words)| words.iter().all(|word| word.load(Ordering::Relaxed) == 0))
            .map(|(number, _)| number * 64)
    }

    /// Where this cluster belongs by what is taken in it, when nobody allocates from it.
    pub(super) fn resting(&self, order: u8, empty: State) -> State {
        match self.nr_taken() {
            0 => empty,
            CLUSTER_SLOTS => State::Full(order),
            _ if self.find_run(order).is_some() => State::Nonfull(order),
            _ => State::Frag(order),
        }
    }
}
