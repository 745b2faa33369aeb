//! *What*: store: one page of the arena compressed into the pool, in place, while the program may
//! go on reading (and, to its reclaimer's loss, writing) it.
//!
//! A page that compresses becomes an [`object`](super::object). A page that does not is kept as it is, 4096 bytes, by
//! which it is known.
//!
//! *Invariants*: the entry that is returned is published by the caller or given back with
//! `Parts::forget_unpublished`. The page is mapped and readable while this runs: its folio is isolated.
//! *Locking*: pool class only. *Context*: signal, worker.

use super::Parts;
use super::object::{self, Source};
use crate::arena::{PAGE_SIZE, Page, PageRange, wide};
use crate::charge::Reserve;
use crate::counters::add;
use crate::knobs::is_on;
use crate::pool::Loc;
use crate::slot::SlotInner;
use crate::table::{Age, Entry, Holds};
use uzswap_compress::{CompressError, same_filled};

/// An object larger than this is kept raw: it would save less than decoding it costs.
const MOST_COMPRESSED: usize = PAGE_SIZE - 64;

impl Parts {
    /// Stores `page`, if there is room. `alone`: nobody can write to it meanwhile.
    pub(crate) fn store_page(
        &self,
        slot: &mut SlotInner,
        page: Page,
        age: Age,
        alone: bool,
    ) -> Option<Entry> {
        let source = page.addr() as *const u8;
        if is_on(&self.group.knobs.same_filled_pages_enabled) {
            // SAFETY: the page is mapped and readable: its folio is isolated by this thread.
            if let Some(word) = unsafe { same_filled::same_filled(source, PAGE_SIZE) }
                && Entry::can_fill(word)
            {
                return Some(Entry::Filled { word, age });
            }
        }
        // SAFETY: as above.
        let made = unsafe { self.make_object(slot, PageRange::one(page), MOST_COMPRESSED, alone) };
        let (size, data) = match made {
            Ok(size) => (size, slot.store.as_ptr()),
            Err(CompressError::Poor) => {
                add(&self.counters().reject_compress_poor, 1);
                (PAGE_SIZE, source)
            }
            Err(CompressError::Failed) => {
                add(&self.counters().reject_compress_fail, 1);
                (PAGE_SIZE, source)
            }
        };
        // SAFETY: the data are the store buffer or the mapped page.
        let loc = unsafe { self.put_object(&mut slot.reserve, page, data, size) }?;
        if size == PAGE_SIZE && is_on(&self.group.knobs.checksum) {
            // SAFETY: mapped and readable, as above. If it is written to, nobody will see what was noted.
            let note = object::note_of(unsafe { core::slice::from_raw_parts(source, PAGE_SIZE) });
            // SAFETY: an object of a page, not published yet.
            unsafe { self.pool.set_note(loc, note) };
        }
        let size = u16::try_from(size).ok()?;
        Some(Entry::Stored {
            loc,
            size,
            age,
            writing: false,
            holds: Holds::Page,
        })
    }

    /// Compresses `pages` into one object in the store buffer. Returns its bytes, `most` or less. `alone`: nobody can
    /// write to them meanwhile.
    ///
    /// # Safety
    /// The pages are mapped and readable, and stay so: their folio is isolated by this thread.
    pub(super) unsafe fn make_object(
        &self,
        slot: &mut SlotInner,
        pages: PageRange,
        most: usize,
        alone: bool,
    ) -> Result<usize, CompressError> {
        // SAFETY: the caller's promise.
        let source = unsafe { Source::new(pages.addr(), pages.bytes(), alone) };
        let checked = is_on(&self.group.knobs.checksum);
        let out = slot.store.get_mut(..most).ok_or(CompressError::Failed)?;
        object::pack(&mut slot.compressor, source, checked, out)
    }

    /// Makes an object of the page's, of `size` bytes at `data`, if there is room.
    ///
    /// # Safety
    /// `data` is readable for `size` bytes.
    pub(super) unsafe fn put_object(
        &self,
        reserve: &mut Reserve<'static>,
        page: Page,
        data: *const u8,
        size: usize,
    ) -> Option<Loc> {
        let Ok(loc) = self.pool.alloc(size, page.owner(), reserve) else {
            add(&self.counters().reject_alloc_fail, 1);
            return None;
        };
        // SAFETY: the new object has `size` bytes and is not published; the source by the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(data, self.pool.data_ptr(loc), size) };
        #[cfg(feature = "fault-injection")]
        self.spoil_stored(loc, size);
        Some(loc)
    }

    /// An object that was put into the pool is damaged, if the plan says so.
    #[cfg(feature = "fault-injection")]
    fn spoil_stored(&self, loc: Loc, size: usize) {
        // SAFETY: an object of that size, which nobody knows of yet.
        let data = unsafe { core::slice::from_raw_parts_mut(self.pool.data_ptr(loc), size) };
        self.pool_faults.spoil_stored(data);
    }

    /// Frees what `store_page` made and nobody saw.
    pub(crate) fn forget_unpublished(&self, entry: Entry) {
        if let Entry::Stored { loc, .. } = entry {
            // SAFETY: never published, so this thread is its only holder.
            unsafe { self.pool.free(loc, self.charge) };
        }
    }

    /// Counts what was published of a folio.
    pub(crate) fn count_stored(&self, stored: &Stored) {
        let counters = self.counters();
        add(&counters.stored_pages, wide(stored.pages));
        if stored.filled > 0 {
            add(&counters.same_filled_pages, wide(stored.filled));
        }
        if stored.in_blocks > 0 {
            add(&counters.block_pages, wide(stored.in_blocks));
        }
        if stored.raw > 0 {
            add(&counters.stored_incompressible_pages, wide(stored.raw));
        }
    }
}

/// What was stored of a folio, in pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stored {
    pub pages: usize,
    filled: usize,
    raw: usize,
    in_blocks: usize,
}

impl Stored {
    /// One more page has this entry.
    pub(crate) fn add(&mut self, entry: Entry) {
        self.pages += 1;
        self.in_blocks += usize::from(entry.in_block());
        match entry {
            Entry::Filled { .. } => self.filled += 1,
            Entry::Stored { size, holds, .. }
                if holds == Holds::Page && usize::from(size) == PAGE_SIZE =>
            {
                self.raw += 1;
            }
            _ => {}
        }
    }
}
