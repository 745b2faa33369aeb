//! *What*: empty clusters on their way back to the device, slots that went bad, and full clusters
//! to look through.
//!
//! *Invariants*
//! - A cluster is `Discarding` from [`Slots::take_discard`] until [`Slots::discarded`] by the same
//!   process, or until that process is released; nothing is handed out from it meanwhile.
//! - A bad slot is counted for the supervisor, which never puts it.
//!
//! *Locking*: as in `device`.
//! *Context*: worker.

use crate::cluster::{CLUSTER_SLOTS, State};
use crate::device::Slots;
use crate::{Owner, Run};

impl Slots<'_> {
    /// An empty cluster to be discarded on the device; the caller does so and calls
    /// [`Slots::discarded`].
    #[must_use]
    pub fn take_discard(&self, owner: Owner) -> Option<Run> {
        let by = State::Discarding(u16::try_from(owner.index()).unwrap_or(u16::MAX));
        let lists = self.table.lists(owner);
        let mut discard = lists.iter(State::Discard);
        discard.find_map(|index| {
            let held = self.table.try_hold(owner, index)?;
            lists.move_to(&held, by);
            Some(run_of(index))
        })
    }

    /// `run`, from [`Slots::take_discard`], is discarded (or could not be): it is free from now on.
    pub fn discarded(&self, owner: Owner, run: Run) {
        if let Some(held) = self.table.hold(owner, run.first / CLUSTER_SLOTS)
            && let State::Discarding(by) = held.cluster.state()
            && usize::from(by) == owner.index()
        {
            self.table.lists(owner).move_to(&held, State::Free);
        }
    }

    /// The next full cluster in turn. The caller puts the slots of it that it holds only to save a
    /// write.
    #[must_use]
    pub fn next_full(&self, owner: Owner) -> Option<Run> {
        let full = self.table.lists(owner).next_full(owner)?;
        Some(run_of(full.index))
    }

    /// The device failed to write to the slots of `run`, which lies in one cluster and is held by
    /// `owner`: they are never handed out again, and the owner's counts of them are gone.
    pub fn retire(&self, owner: Owner, run: Run) {
        if owner.owns()
            && let Some(held) = self.table.hold(owner, run.first / CLUSTER_SLOTS)
        {
            held.retire(run);
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "512")]
fn run_of(cluster: u32) -> Run {
    Run {
        first: cluster * CLUSTER_SLOTS,
        nr: CLUSTER_SLOTS as u16,
    }
}
