//! *What*: the page table: eight bytes per page of the arena, indexed by page, in reserved memory
//! that is touched, and charged, per 2 MiB of arena.
//!
//! *Invariants*: no entry of a chunk is read or written before [`PageTable::is_ready`] reports the
//! chunk charged. Entries not ready are [`Entry::None`].
//! *Locking*: an entry changes only under its folio's lock; a read without it is a hint.
//! *Context*: signal, worker, init.

use super::address::{NR_PAGES, PAGE_SIZE, Page};
use super::bitmap::Bitmap;
use super::entry::Entry;
use core::ops::Range;
use uzswap_sync::primitive::{AtomicU64, Ordering};
use uzswap_sys::arch;

/// Pages whose entries share one page of the table: 2 MiB of arena.
pub const CHUNK_PAGES: usize = PAGE_SIZE / size_of::<u64>();
/// Bytes of address space for the table.
pub const TABLE_LEN: usize = NR_PAGES * size_of::<u64>();

/// The page table.
#[derive(Debug)]
pub struct PageTable {
    entries: *const AtomicU64,
    ready: Bitmap,
}

impl PageTable {
    /// Bytes of address space for its bitmap.
    pub const BITMAP_LEN: usize = Bitmap::len_for(NR_PAGES / CHUNK_PAGES);

    /// A table on zero-filled memory.
    ///
    /// # Safety
    /// `entries` is [`TABLE_LEN`] bytes and `bitmap` [`Self::BITMAP_LEN`] bytes of zero-filled
    /// memory, page aligned, used by nothing else for as long as the table lives.
    #[must_use]
    pub const unsafe fn new(entries: *mut u8, bitmap: *mut u8) -> Self {
        Self {
            entries: entries.cast(),
            // SAFETY: the caller's promise.
            ready: unsafe { Bitmap::new(bitmap) },
        }
    }

    /// Whether the entries around `page` may be touched.
    #[inline]
    #[must_use]
    pub fn is_ready(&self, page: Page) -> bool {
        self.ready.get(page.index() / CHUNK_PAGES)
    }

    /// Allows access to the entries around `page`. `true`: they were not allowed before, and the
    /// caller's charge of one page is used.
    pub fn make_ready(&self, page: Page) -> bool {
        self.ready.set(page.index() / CHUNK_PAGES)
    }

    /// The first page at or after `page` whose entries may be touched.
    #[must_use]
    pub fn next_ready(&self, page: usize) -> Option<usize> {
        if page >= NR_PAGES {
            return None;
        }
        let chunk = page / CHUNK_PAGES;
        let found = self.ready.next_set(chunk, NR_PAGES / CHUNK_PAGES)?;
        Some(page.max(found * CHUNK_PAGES))
    }

    /// The pages at or after `page` whose entries may be touched, chunk by chunk, found lazily.
    pub fn ready_chunks(&self, page: usize) -> impl Iterator<Item = Range<usize>> {
        let mut at = page;
        core::iter::from_fn(move || {
            let first = self.next_ready(at)?;
            at = (first / CHUNK_PAGES + 1) * CHUNK_PAGES;
            Some(first..at)
        })
    }

    /// The entry of `page`.
    #[inline]
    #[must_use]
    pub fn get(&self, page: Page) -> Entry {
        Entry::decode(self.cell(page).load(Ordering::Relaxed))
    }

    /// Prefetches the entry of `page` into the CPU's cache.
    #[inline]
    pub fn prefetch(&self, page: Page) {
        let cell = core::ptr::from_ref(self.cell(page));
        arch::prefetch(cell.addr(), size_of::<AtomicU64>());
    }

    /// Replaces the entry of `page`. The caller holds the folio's lock; its release publishes the
    /// entry.
    #[inline]
    pub fn set(&self, page: Page, entry: Entry) {
        self.cell(page).store(entry.encode(), Ordering::Relaxed);
    }

    #[inline]
    fn cell(&self, page: Page) -> &AtomicU64 {
        // SAFETY: `page` is below NR_PAGES by its constructors, and `new` was given that many.
        unsafe { &*self.entries.add(page.index()) }
    }
}

// SAFETY: the pointer is to memory of atomics that lives as long as the process.
unsafe impl Send for PageTable {}
// SAFETY: all access is through atomics.
unsafe impl Sync for PageTable {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Age, Content};
    use super::*;
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::collections::HashMap;
    use uzswap_pool::Loc;

    /// Zeroed memory that is touched as it is used.
    struct Memory(*mut u8, Layout);

    impl Memory {
        fn new(len: usize) -> Memory {
            let layout = Layout::from_size_align(len, PAGE_SIZE).unwrap();
            // SAFETY: `len` is not zero.
            Memory(unsafe { alloc_zeroed(layout) }, layout)
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: allocated in `new` with this layout.
            unsafe { dealloc(self.0, self.1) };
        }
    }

    /// Random histories against a plain map; runs under Miri as well.
    #[test]
    fn the_table_holds_what_a_map_would() {
        let (entries, bits) = (Memory::new(TABLE_LEN), Memory::new(PageTable::BITMAP_LEN));
        // SAFETY: zeroed memory of those lengths that outlives the table.
        let table = unsafe { PageTable::new(entries.0, bits.0) };
        let mut model: HashMap<Page, Entry> = HashMap::new();
        let mut x = 0x2545_f491_4f6c_dd1d_u64;
        for _ in 0..if cfg!(miri) { 200 } else { 2000 } {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            // Two ends of the arena and the chunk borders between.
            let page = Page::from_index(match x % 3 {
                0 => (x >> 8) as usize % 1500,
                1 => NR_PAGES - 1 - (x >> 8) as usize % 1500,
                _ => (x >> 8) as usize % (NR_PAGES / CHUNK_PAGES) * CHUNK_PAGES,
            });
            let fresh = !table.is_ready(page);
            assert_eq!(table.make_ready(page), fresh);
            let entry = match x >> 61 {
                0 => Entry::None,
                1 | 2 => Entry::Resident,
                3 => Entry::Filled {
                    word: x & 0xff,
                    age: Age((x >> 20) as u16 & 0xfff),
                },
                _ => Entry::Stored {
                    loc: Loc::from_raw(x >> 30 | 1).unwrap(),
                    size: (x >> 5) as u16 % 4096 + 1,
                    age: Age((x >> 20) as u16 & 0xfff),
                    writing: x & 1 == 0,
                    content: Content::Page,
                },
            };
            table.set(page, entry);
            model.insert(page, entry);
        }
        for (&page, &entry) in &model {
            assert_eq!(table.get(page), entry, "page {page:?}");
        }
        let mut at = 0;
        while let Some(next) = table.next_ready(at) {
            assert!(table.is_ready(Page::from_index(next)));
            at = (next / CHUNK_PAGES + 1) * CHUNK_PAGES;
        }
        let last = model.keys().max().unwrap().index();
        assert!(at > last, "the walk over ready chunks ended before {last}");
    }
}
