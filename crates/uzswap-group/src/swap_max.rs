//! *What*: `swap.max`: how much of what the groups of a process have may be on swap devices.
//!
//! Counted are pages as they were before they were compressed, for each process that has them: what
//! fork leaves in common counts twice. A copy that the swap cache keeps of a page read back does
//! not.
//!
//! *Invariants*: what is on the devices, or on its way there, stays within `swap.max`, unless that
//! is lowered, or a process forks. Whoever writes says so before it adds up what all have, so of
//! two that begin at the same time at least one sees the other.
//! *Locking*: none. *Context*: signal, worker.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::group::{Group, Process};
use uzswap_sync::node::{Most, Path};
use uzswap_sys::PAGE_SHIFT;

impl Group {
    /// Lets process `own`, of `path`, bring up to `nr` more pages to swap devices, as far as each
    /// node may have as many there. Returns how many: they are on their way until
    /// [`Process::end_swapping`].
    pub fn begin_swapping(&self, own: &Process, path: Path, nr: u64) -> u64 {
        own.swapping.fetch_add(nr, SeqCst);
        let excess = path
            .nodes()
            .filter_map(|node| match self.ledger.node(node).swap_max.load() {
                Most::NONE => None,
                most => Some(self.swapped_in(node).saturating_sub(most >> PAGE_SHIFT)),
            });
        let refused = excess.max().unwrap_or(0).min(nr);
        own.end_swapping(refused);
        nr - refused
    }

    /// Pages of a node that are on swap devices, or on their way there.
    fn swapped_in(&self, node: usize) -> u64 {
        let records = self.used().iter().zip(self.ledger.shares());
        let in_node =
            records.filter(|(process, share)| process.is_live() && share.path().has(node));
        // What is not on its way any more, is seen to have arrived.
        in_node
            .map(|(process, _)| {
                let swapping = process.swapping.load(SeqCst);
                swapping + process.counters.swapped_pages.load(Relaxed)
            })
            .sum()
    }
}

impl Process {
    /// `nr` pages are not on their way to a swap device any more: they have arrived, and count as
    /// swapped, or do not go.
    pub fn end_swapping(&self, nr: u64) {
        self.swapping.fetch_sub(nr, SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::group::Identity;

    fn group() -> Box<Group> {
        let layout = std::alloc::Layout::new::<Group>();
        // SAFETY: a group file begins as zeroes, as it consists of atomics; the box frees it as it
        // was allocated.
        unsafe { Box::from_raw(std::alloc::alloc_zeroed(layout).cast()) }
    }

    /// A node of its own, and process `pid` in it.
    fn member(group: &Group, pid: u32) -> (&Process, Path) {
        let path = group.add_node(Path::ROOT, "x").unwrap();
        let has_ended = |run: &crate::run::Run| run.supervisor.load(Relaxed) == 0;
        let run = group.begin_run(path, pid, 0, has_ended).unwrap();
        let who = Identity {
            pid,
            ..Identity::default()
        };
        (group.claim(run, who, |_| true), path)
    }

    #[test]
    fn what_goes_to_swap_stays_within_every_node() {
        let group = group();
        let [(a, in_a), (b, in_b)] = [100, 200].map(|pid| member(&group, pid));
        let arrive = |process: &Process, nr| {
            process.counters.swapped_pages.fetch_add(nr, Relaxed);
            process.end_swapping(nr);
        };
        assert_eq!(group.begin_swapping(a, in_a, 7), 7, "without a limit");
        arrive(a, 7);
        let limit = |node: usize, pages: u64| {
            let most = &group.ledger.node(node).swap_max;
            most.store(pages << PAGE_SHIFT);
        };
        limit(Path::ROOT_NODE, 12);
        limit(in_a.last(), 9);
        assert_eq!(group.begin_swapping(a, in_a, 7), 2, "its own");
        assert_eq!(group.begin_swapping(b, in_b, 7), 3, "the root's");
        assert_eq!(group.begin_swapping(b, in_b, 7), 0);
        arrive(b, 3);
        arrive(a, 2);
        assert_eq!(group.begin_swapping(b, in_b, 1), 0, "all have arrived");
        a.counters.swapped_pages.fetch_sub(4, Relaxed);
        assert_eq!(group.begin_swapping(b, in_b, 7), 4, "what came in again");
        limit(Path::ROOT_NODE, 2);
        assert_eq!(
            group.begin_swapping(b, in_b, 1),
            0,
            "a lower one takes nothing"
        );
        assert_eq!(group.begin_swapping(a, in_a, 1), 0);
    }
}
