//! *What*: [`Reservation`]: the record that a process reserves for the child it is about to make,
//! so that the child's memory is counted before there is a child.
//!
//! *Invariants*: the record is the child's from [`Reservation::begin`] on. Before that, whoever
//! finds the child dead frees it. *Locking*: none. *Context*: fork.

use core::sync::atomic::Ordering;

use crate::group::Group;
use crate::process::{Identity, Process};
use crate::state::ProcessState;

/// A record for a fork child that is to be.
#[derive(Clone, Copy)]
pub struct Reservation<'a> {
    pub(crate) group: &'a Group,
    /// The record.
    pub record: &'a Process,
    /// The process id of who forks.
    pub(crate) parent: u32,
    /// The child's number among all that have had the record.
    pub(crate) owner: u32,
}

impl core::fmt::Debug for Reservation<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Reservation({})", self.parent)
    }
}

impl<'a> Reservation<'a> {
    /// The child has been made, as process `child`: if it is killed before it begins, the record is
    /// found by that number.
    pub fn born(&self, child: u32) {
        let parent = self.parent;
        // It may have begun, and even have ended, in which case the record may be anybody's: but
        // not one that this parent reserved, who makes one child after the other.
        let (from, to) = (
            ProcessState::Reserved { parent },
            ProcessState::Born { child },
        );
        let _ = self.record.state.turn(from, to);
    }

    /// In the child: the record is its own from now on. `None`: it has been given to another, as
    /// the parent was killed and for long nothing was heard of the child.
    pub fn begin(&self, who: Identity) -> Option<&'a Process> {
        let (record, state) = (self.record, &self.record.state);
        let is_ours = |state: &ProcessState| match *state {
            ProcessState::Reserved { parent } => parent == self.parent,
            ProcessState::Born { .. } => true,
            _ => false,
        };
        loop {
            let seen = Some(state.load(Ordering::Acquire)).filter(is_ours)?;
            if !state.turn(seen, self.group.busy(who)) {
                // The parent said which process it is.
                continue;
            }
            // Whoever has a record counts itself before the record leaves `Busy`.
            if record.owners.load(Ordering::Relaxed) != self.owner {
                state.store(seen, Ordering::Release);
                return None;
            }
            record.begin(who);
            return Some(record);
        }
    }

    /// Gives the record back: there is no child.
    pub fn give_back(&self) {
        let run = self.group.run_of(self.record);
        run.nr_started.fetch_sub(1, Ordering::Relaxed);
        self.group.free(self.record);
    }
}
