//! uzswap's own allocator, as one process uses it.

use uzswap_slots::{Owner, Run, Slots};

use super::Allocator;
use super::memory::Shared;

/// The allocator, and our process as its owner.
pub(super) struct Clusters<'m> {
    slots: Slots<'m>,
    owner: Owner,
}

impl<'m> Clusters<'m> {
    /// A device of `nr_slots` slots in `memory` of [`Slots::memory_len`] bytes, used for nothing
    /// else.
    pub(super) fn on(memory: &'m Shared, nr_slots: u32) -> Self {
        // SAFETY: the memory is zeroed, page-aligned, as long as the caller guarantees, and used
        // for nothing else.
        let slots = unsafe { Slots::attach(memory.start(), nr_slots, &|_| true) };
        let owner = slots.join(0);
        Self { slots, owner }
    }
}

impl Allocator for Clusters<'_> {
    fn alloc(&self, cpu: usize, order: u8) -> Option<Run> {
        const ONES: [u8; 512] = [1; 512];
        self.slots
            .alloc(self.owner, cpu, order, &ONES[..1 << order])
    }

    fn put(&self, run: Run) {
        self.slots.put(self.owner, run);
    }

    fn waited_ns(&self) -> u64 {
        let waits = self.slots.lock_waits();
        waits.cluster_ns + waits.device_ns
    }
}
