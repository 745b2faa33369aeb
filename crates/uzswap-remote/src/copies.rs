//! *What*: which copies of clusters of slots are lost, and who writes to them, so that a copy is
//! made anew from the other only while nobody writes to either.
//!
//! A copy is lost when its server has forgotten it: it died, and has come back empty. Of two copies
//! the other then has all that is worth having: what was written before was written to both, and so
//! is what is written since.
//!
//! *Invariants*
//! - A cluster is written to, or remade, or neither.
//! - Of a cluster whose copies are both lost none is remade: each may have what the other has not.
//!
//! *Locking*: one lock, a leaf, shared by the connections of a broker. *Context*: the broker.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Writes under way to one cluster.
#[derive(Debug, Default)]
struct Writes {
    nr: usize,
    /// The first write to it is among them, or was when the others began.
    fresh: bool,
}

#[derive(Debug, Default)]
struct Marks {
    writes: HashMap<u64, Writes>,
    remaking: Option<u64>,
    lost: HashSet<(u64, usize)>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Copies(Mutex<Marks>);

impl Copies {
    fn lock(&self) -> MutexGuard<'_, Marks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to write to `cluster`, for the first time or not. `false`: not now, it is remade.
    #[must_use]
    pub fn begin_write(&self, cluster: u64, is_first: bool) -> bool {
        let mut marks = self.lock();
        if marks.remaking == Some(cluster) {
            return false;
        }
        let writes = marks.writes.entry(cluster).or_default();
        writes.nr += 1;
        writes.fresh |= is_first;
        true
    }

    /// Ends what [`Copies::begin_write`] began.
    pub fn end_write(&self, cluster: u64) {
        let mut marks = self.lock();
        if let Some(writes) = marks.writes.get_mut(&cluster) {
            writes.nr -= 1;
            if writes.nr == 0 {
                marks.writes.remove(&cluster);
            }
        }
    }

    /// Notes that a write under way has found that a copy was not there.
    pub fn note_made(&self, cluster: u64, copy: usize) {
        let mut marks = self.lock();
        // Of several writes under way the first need not arrive first.
        if !marks.writes.get(&cluster).is_some_and(|it| it.fresh) {
            marks.lost.insert((cluster, copy));
        }
    }

    /// Notes that a copy is lost.
    pub fn note_lost(&self, cluster: u64, copy: usize) {
        self.lock().lost.insert((cluster, copy));
    }

    /// Notes that `cluster` is not needed any more.
    pub fn forget(&self, cluster: u64) {
        self.lock().lost.retain(|(lost, _)| *lost != cluster);
    }

    /// Begins to remake one of the lost copies: its cluster, and which. `None`: there is none, or
    /// not now.
    #[must_use]
    pub fn begin_remake(&self) -> Option<(u64, usize)> {
        let mut marks = self.lock();
        if marks.remaking.is_some() {
            return None;
        }
        let is_free = |(cluster, copy): &&(u64, usize)| {
            !marks.lost.contains(&(*cluster, 1 - copy)) && !marks.writes.contains_key(cluster)
        };
        let found = marks.lost.iter().find(is_free).copied();
        marks.remaking = found.map(|(cluster, _)| cluster);
        found
    }

    /// Ends what [`Copies::begin_remake`] began; the copy is there again if it is `done`.
    pub fn end_remake(&self, lost: (u64, usize), done: bool) {
        let mut marks = self.lock();
        marks.remaking = None;
        if done {
            marks.lost.remove(&lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_remade_while_nobody_writes_and_the_other_is_whole() {
        let copies = Copies::default();
        assert_eq!(copies.begin_remake(), None);
        // Writes that overtake the first one find no key, which is no loss.
        assert!(copies.begin_write(7, true) && copies.begin_write(7, false));
        copies.note_made(7, 0);
        copies.end_write(7);
        copies.note_made(7, 1);
        copies.end_write(7);
        assert_eq!(copies.begin_remake(), None);
        // One that finds none later has found a loss.
        assert!(copies.begin_write(7, false));
        copies.note_made(7, 0);
        assert_eq!(copies.begin_remake(), None, "it is written to");
        copies.end_write(7);
        assert_eq!(copies.begin_remake(), Some((7, 0)));
        assert!(!copies.begin_write(7, false) && copies.begin_write(8, false));
        copies.end_write(8);
        copies.end_remake((7, 0), false);
        assert!(copies.begin_write(7, false), "it could not be read");
        copies.end_write(7);
        copies.note_lost(7, 1);
        assert_eq!(copies.begin_remake(), None, "both are lost");
        copies.forget(7);
        copies.note_lost(9, 1);
        assert_eq!(copies.begin_remake(), Some((9, 1)));
        copies.end_remake((9, 1), true);
        assert_eq!(copies.begin_remake(), None);
    }
}
