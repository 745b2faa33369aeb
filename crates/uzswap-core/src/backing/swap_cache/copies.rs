//! *What*: copies on the swap devices of pages that are in RAM: kept when a page is read back,
//! reused when the unchanged page would be written again, or dropped.
//!
//! As in the kernel's swap cache, reading a page back leaves its copy on a device that is less than
//! half full. The page then ages in RAM and pool like any other; only when the pool's object is to
//! be written is it compared with the copy.
//!
//! *Invariants*: as [`super`].
//! *Locking*: a page's copy is kept and taken with its folio held. *Context*: signal, worker.

use super::CachedCopy;
use crate::backing::Backing;
use crate::backing::device::SwapDevice;
use crate::op::Op;
use crate::page::{Entry, Page};
use uzswap_group::counters::{add, sub};
use uzswap_io::{Fingerprint, Location};
use uzswap_sync::primitive::Ordering::Relaxed;
use uzswap_sync::strict_assert;

impl Backing {
    /// Keeps the copy of a page that was read back; the count of its former entry `old` passes to
    /// the copy. `false`: it is not kept.
    pub(crate) fn keep_copy(
        &self,
        op: &mut Op,
        page: Page,
        old: Entry,
        fingerprint: Fingerprint,
    ) -> bool {
        let copy = CachedCopy {
            page,
            entry: old,
            fingerprint,
        };
        let kept = self.cache.keep(copy, || {
            let charged = op.take_spare(1) || self.account.charge().try_charge(1);
            self.account.add_metadata(u64::from(charged));
            charged
        });
        if kept {
            add(&self.account.counters().swap_cached_pages, 1);
        }
        kept
    }

    /// The entry that names the copy of `page`, if the copy equals `body`, the page's stored form.
    /// The entry takes over the copy's count. A copy that differs is dropped.
    pub(crate) fn unchanged_copy(&self, page: Page, body: &[u8]) -> Option<Entry> {
        let counters = self.account.counters();
        if counters.swap_cached_pages.load(Relaxed) == 0 {
            return None;
        }
        let copy = self.cache.take(page)?;
        let fits = |size: u16| usize::from(size) == body.len();
        let same = matches!(copy.entry, Entry::Swapped { size, .. } if fits(size))
            && copy.fingerprint == self.keys.fingerprint(page, body);
        if !same {
            self.put_copy(copy);
            return None;
        }
        sub(&counters.swap_cached_pages, 1);
        add(&counters.swap_writes_saved, 1);
        Some(copy.entry)
    }

    /// Drops the copy of a page whose contents are given up.
    pub(crate) fn drop_copy(&self, page: Page) {
        if self.account.counters().swap_cached_pages.load(Relaxed) > 0
            && let Some(copy) = self.cache.take(page)
        {
            self.put_copy(copy);
        }
    }

    /// Drops all copies, because the devices are full. Returns whether there were any.
    pub(crate) fn drop_copies(&self) -> bool {
        let mut any = false;
        self.cache.drain(
            |_| true,
            |copy| {
                any = true;
                self.put_copy(copy);
            },
        );
        any
    }

    /// Drops all copies on `device`.
    pub(crate) fn drop_copies_on(&self, device: &SwapDevice) {
        let has = |location| device.has(Location::from_raw(location).slot);
        let there = |entry| matches!(entry, Entry::Swapped { location, .. } if has(location));
        self.cache.drain(there, |copy| self.put_copy(copy));
    }

    fn put_copy(&self, copy: CachedCopy) {
        sub(&self.account.counters().swap_cached_pages, 1);
        if let Entry::Swapped { location, size, .. } = copy.entry {
            self.put(location, size);
        } else {
            strict_assert!(false, "a copy on no device");
        }
    }
}
