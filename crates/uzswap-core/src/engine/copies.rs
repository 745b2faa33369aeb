//! *What*: copies on the swap device of pages that are in RAM: kept when a page is read back, found to be right still
//! when the page would be written again, or let go of.
//!
//! As with the kernel's swap cache: while a device is less than half full, reading a page back leaves its
//! copy there. The page goes through RAM and pool like any other, so its age is its own; only when the pool's
//! object is to be written is it looked whether the copy is the same.
//!
//! *Invariants*: as [`crate::swap_cache`].
//! *Locking*: a page's copy is kept and taken with its folio held. *Context*: signal, worker.

use super::Parts;
use super::device::SwapDevice;
use super::swap::Swap;
use crate::arena::Page;
use crate::slot::{RESERVE_PAGES, SlotGuard};
use crate::swap_cache::Copy;
use crate::table::Entry;
use uzswap_group::counters::{add, sub};
use uzswap_io::{Fingerprint, Location};
use uzswap_sync::primitive::Ordering::Relaxed;

impl Parts {
    /// Keeps the copy of a page that was read back by `old`, with the count that `old` had, if it has a
    /// `fingerprint`. `false`: it is not kept.
    pub(crate) fn keep_copy(
        &self,
        slot: &mut SlotGuard<'_>,
        page: Page,
        old: Entry,
        fingerprint: Option<Fingerprint>,
    ) -> bool {
        let Some((swap, fingerprint)) = self.swap.as_ref().zip(fingerprint) else {
            return false;
        };
        let copy = Copy {
            page,
            entry: old,
            fingerprint,
        };
        let kept = swap.cache.keep(copy, || {
            let spare = slot.reserve.pages() > RESERVE_PAGES && slot.reserve.take(1);
            let charged = spare || self.charge.try_charge(1);
            self.metadata.fetch_add(u64::from(charged), Relaxed);
            charged
        });
        if kept {
            sub(&self.counters().swapped_pages, 1);
            add(&self.counters().swap_cached_pages, 1);
        }
        kept
    }

    /// The entry by which the copy of `page` is found, if it is the same as `body`, what the page is stored as. It
    /// counts the copy. What is not the same is let go of.
    pub(crate) fn unchanged_copy(&self, swap: &Swap, page: Page, body: &[u8]) -> Option<Entry> {
        if self.counters().swap_cached_pages.load(Relaxed) == 0 {
            return None;
        }
        let copy = swap.cache.take(page)?;
        let same = matches!(copy.entry, Entry::Swapped { size, .. } if usize::from(size) == body.len())
            && copy.fingerprint == swap.fingerprint(page, body);
        if !same {
            self.put_copy(swap, copy);
            return None;
        }
        sub(&self.counters().swap_cached_pages, 1);
        add(&self.counters().swap_writes_saved, 1);
        Some(copy.entry)
    }

    /// Lets go of the copy of a page whose contents are given up.
    pub(crate) fn forget_copy(&self, page: Page) {
        if self.counters().swap_cached_pages.load(Relaxed) > 0
            && let Some(swap) = &self.swap
            && let Some(copy) = swap.cache.take(page)
        {
            self.put_copy(swap, copy);
        }
    }

    /// Lets go of all copies: the devices are full. Returns whether there were any.
    pub(crate) fn forget_copies(&self, swap: &Swap) -> bool {
        let mut any = false;
        let all = |_| true;
        swap.cache.drain(all, |copy| {
            any = true;
            self.put_copy(swap, copy);
        });
        any
    }

    /// Lets go of all copies that are on `device`.
    pub(crate) fn forget_copies_on(&self, swap: &Swap, device: &SwapDevice) {
        let there = |entry| matches!(entry, Entry::Swapped { location, .. } if device.has(Location::from_raw(location).slot));
        swap.cache.drain(there, |copy| self.put_copy(swap, copy));
    }

    fn put_copy(&self, swap: &Swap, copy: Copy) {
        sub(&self.counters().swap_cached_pages, 1);
        if let Entry::Swapped { location, size, .. } = copy.entry {
            swap.put(location, size);
        }
    }
}
