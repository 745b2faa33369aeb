//! *What*: the processes that may count slots of a cluster: its *users*. A bit for each, in words
//! of 64 processes, a *group*. The cluster's descriptor says which groups have users, so that few
//! are looked at where there are few processes. A group's words of all clusters lie side by side:
//! those of processes that never were are no memory.
//!
//! *Invariants*: a group whose word is not zero is named in the descriptor. One that is named may
//! have no user: whoever is killed between the two leaves that.
//! *Locking*: changes belong to the cluster's lock. Reading without it is a hint, but never wrongly
//! `false` for a process that does not run.
//! *Context*: signal, worker, fork; in every process of the device's group.

use crate::memory::NR_ROWS;
use uzswap_sync::primitive::{AtomicU64, Ordering};

/// Processes of a group.
const GROUP: usize = 64;
/// Groups of processes, the supervisor's included.
pub(crate) const NR_GROUPS: usize = NR_ROWS.div_ceil(GROUP);

const _: () = assert!(
    NR_GROUPS <= GROUP,
    "a descriptor names the groups in one word"
);

/// The users of one cluster.
#[derive(Clone, Copy)]
pub(crate) struct Users<'m> {
    /// Which groups have users.
    pub(crate) groups: &'m AtomicU64,
    /// A row for each group: a word for each cluster.
    pub(crate) words: &'m [AtomicU64],
    pub(crate) nr_clusters: usize,
    /// The cluster's number.
    pub(crate) cluster: usize,
}

fn bit(number: usize) -> u64 {
    1 << (number % GROUP)
}

/// The numbers of the bits that are set.
fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let number = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(number)
    })
}

impl<'m> Users<'m> {
    fn word(self, group: usize) -> Option<&'m AtomicU64> {
        self.words.get(group * self.nr_clusters + self.cluster)
    }

    /// Whether process `index` may count slots here.
    #[inline]
    pub(crate) fn has(self, index: usize) -> bool {
        let word = self.word(index / GROUP);
        word.is_some_and(|word| word.load(Ordering::Relaxed) & bit(index) != 0)
    }

    /// Called before its first count here.
    pub(crate) fn add(self, index: usize) {
        if let Some(word) = self.word(index / GROUP) {
            // The group first: a user whom nobody finds would be one that counts in secret.
            let groups = self.groups.load(Ordering::Relaxed) | bit(index / GROUP);
            self.groups.store(groups, Ordering::Relaxed);
            crate::crash_point();
            let users = word.load(Ordering::Relaxed) | bit(index);
            word.store(users, Ordering::Relaxed);
        }
    }

    /// It counts nothing here any more.
    pub(crate) fn remove(self, index: usize) {
        if let Some(word) = self.word(index / GROUP) {
            let users = word.load(Ordering::Relaxed) & !bit(index);
            // Release: its counts are gone before.
            word.store(users, Ordering::Release);
            if users == 0 {
                crate::crash_point();
                let groups = self.groups.load(Ordering::Relaxed) & !bit(index / GROUP);
                self.groups.store(groups, Ordering::Relaxed);
            }
        }
    }

    /// All of them.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> + 'm {
        ones(self.groups.load(Ordering::Relaxed)).flat_map(move |group| {
            let users = self
                .word(group)
                .map_or(0, |word| word.load(Ordering::Relaxed));
            ones(users).map(move |user| group * GROUP + user)
        })
    }
}
