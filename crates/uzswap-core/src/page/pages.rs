//! *What*: [`Pages`], the owner of page table, folio table, LRU lists and eviction clock.
//!
//! *Invariants*: `nr_resident` is the number of resident entries, except for those changing right
//! now.
//! *Locking*: an entry changes only under its folio's lock. *Context*: signal, worker, init.

use core::ops::Range;

use super::address::{Page, PageRange};
use super::block::Entries;
use super::clock::Clock;
use super::entry::Entry;
use super::folio::{Folio, FolioGuard, FolioTable};
use super::lru::{Lru, Wanted};
use super::ranking::Ranking;
use super::table::{CHUNK_PAGES, PageTable};
use super::transition::EntriesMut;
use uzswap_sync::primitive::{AtomicU64, Ordering::Relaxed};
use uzswap_sync::strict_assert;

/// Page table, folio table, LRU lists and eviction clock of the arena.
#[derive(Debug)]
pub(crate) struct Pages {
    table: PageTable,
    folios: FolioTable,
    lru: Lru,
    clock: Clock,
    nr_resident: AtomicU64,
}

impl Pages {
    /// Pages of an untouched arena.
    pub(crate) const fn new(table: PageTable, folios: FolioTable) -> Self {
        Pages {
            table,
            folios,
            lru: Lru::new(),
            clock: Clock::new(),
            nr_resident: AtomicU64::new(0),
        }
    }

    /// Makes the entries and folios around `page` ready. Returns how many charged pages that used.
    pub(crate) fn make_ready(&self, page: Page) -> u64 {
        let start = page.index() & !(CHUNK_PAGES - 1);
        let chunk = PageRange {
            start,
            end: start + CHUNK_PAGES,
        };
        self.folios.charge_chunk(chunk) + u64::from(self.table.make_ready(page))
    }

    /// As [`PageTable::next_ready`].
    pub(crate) fn next_ready(&self, page: usize) -> Option<usize> {
        self.table.next_ready(page)
    }

    /// As [`PageTable::ready_chunks`].
    pub(crate) fn ready_chunks(&self, page: usize) -> impl Iterator<Item = Range<usize>> {
        self.table.ready_chunks(page)
    }

    /// Prefetches the entry of `page` and its folio into the CPU's cache.
    #[inline]
    pub(crate) fn prefetch(&self, page: Page) {
        self.table.prefetch(page);
        self.folios.prefetch(self.folios.index_of(page));
    }

    /// The folio that holds `page`.
    #[inline]
    pub(crate) fn folio_of(&self, page: Page) -> &Folio {
        self.folios.of(page)
    }

    /// The folio of that number.
    #[inline]
    pub(crate) fn folio(&self, index: u32) -> &Folio {
        self.folios.at(index)
    }

    /// Number of the folio that holds `page`.
    #[inline]
    pub(crate) const fn index_of(&self, page: Page) -> u32 {
        self.folios.index_of(page)
    }

    /// The pages of the folio of that number.
    #[inline]
    pub(crate) const fn range_of(&self, index: u32) -> PageRange {
        self.folios.range(index)
    }

    /// log2 of the pages of a folio.
    #[inline]
    pub(crate) const fn order(&self) -> u32 {
        self.folios.order()
    }

    /// Pages of a folio.
    #[inline]
    pub(crate) const fn folio_pages(&self) -> usize {
        self.folios.nr_pages()
    }

    /// The eviction clock.
    #[inline]
    pub(crate) const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Resident pages.
    #[inline]
    pub(crate) fn nr_resident(&self) -> u64 {
        self.nr_resident.load(Relaxed)
    }

    /// Counts `nr` pages as resident. Returns the new count.
    #[inline]
    pub(crate) fn add_resident(&self, nr: u64) -> u64 {
        self.nr_resident.fetch_add(nr, Relaxed) + nr
    }

    /// Uncounts `nr` dropped pages.
    #[inline]
    pub(crate) fn sub_resident(&self, nr: u64) {
        let before = self.nr_resident.fetch_sub(nr, Relaxed);
        strict_assert!(before >= nr, "more pages dropped than were resident");
    }

    /// As [`Lru::show_coldest`].
    pub(crate) fn show_coldest(&self, at: &'static AtomicU64) {
        self.lru.show_coldest(at);
    }

    /// As [`Lru::rank_by`].
    pub(crate) fn rank_by(&self, ranking: &'static &'static dyn Ranking) {
        self.lru.rank_by(ranking);
    }

    /// As [`Lru::add`].
    pub(crate) fn lru_add(&self, guard: &FolioGuard<'_>, index: u32) {
        self.lru.add(&self.folios, guard, index);
    }

    /// As [`Lru::remove`].
    pub(crate) fn lru_remove(&self, guard: &FolioGuard<'_>, index: u32) {
        self.lru.remove(&self.folios, guard, index);
    }

    /// As [`Lru::activate`].
    pub(crate) fn activate(&self, guard: &FolioGuard<'_>, index: u32) {
        self.lru.activate(&self.folios, guard, index);
    }

    /// As [`Lru::deactivate`].
    pub(crate) fn deactivate(&self, guard: &FolioGuard<'_>, index: u32) {
        self.lru.deactivate(&self.folios, guard, index);
    }

    /// As [`Lru::scan`].
    pub(crate) fn scan<'a>(
        &'a self,
        wanted: Wanted,
        isolate: impl FnMut(u32, &FolioGuard<'a>) -> Option<usize>,
    ) {
        self.lru.scan(&self.folios, wanted, isolate);
    }
}

impl Entries for Pages {
    #[inline]
    fn get(&self, page: Page) -> Entry {
        self.table.get(page)
    }

    #[inline]
    fn is_ready(&self, page: Page) -> bool {
        self.table.is_ready(page)
    }
}

impl EntriesMut for Pages {
    #[inline]
    fn set(&self, page: Page, entry: Entry) {
        self.table.set(page, entry);
    }
}
