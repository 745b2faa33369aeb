//! *What*: the pages and folios that one reclaim evicts together.
//!
//! *Invariants*: the pages of a folio are neighbours in `pages`, in rising order. The lengths never
//! exceed the arrays: the caller checks [`Batch::has_room`] before [`Batch::add_folio`].
//! *Locking*: belongs to an operation. *Context*: signal, worker.

use super::address::{Page, PageRange};
use super::entry::Entry;
use uzswap_sync::strict_assert;
use uzswap_sys::mem::IoVec;

/// Maximum pages in a batch: one folio of the largest order.
pub const BATCH_PAGES: usize = 512;
/// Maximum folios in a batch.
pub const BATCH_FOLIOS: usize = 64;

/// A page under reclaim.
#[derive(Clone, Copy, Debug)]
pub struct BatchPage {
    /// The page.
    pub page: Page,
    /// Its entry once stored; [`Entry::None`] until then.
    pub entry: Entry,
}

/// A folio under reclaim: `nr` pages of the batch from `first` on.
#[derive(Clone, Copy, Debug)]
pub struct BatchFolio {
    /// Number of the folio.
    pub index: u32,
    /// Its first page in [`Batch::pages`].
    pub first: usize,
    /// Its pages in [`Batch::pages`].
    pub nr: usize,
    /// Compress it with the operation's denser compressor.
    pub denser: bool,
    /// Its lock is held, because its pages are being dropped.
    pub dropping: bool,
}

/// The pages and folios of one reclaim.
#[derive(Debug)]
pub struct Batch {
    /// Its pages.
    pub pages: [BatchPage; BATCH_PAGES],
    /// How many of `pages` are in use.
    pub nr_pages: usize,
    /// Its folios.
    pub folios: [BatchFolio; BATCH_FOLIOS],
    /// How many of `folios` are in use.
    pub nr_folios: usize,
    /// Address ranges to drop.
    pub ranges: [IoVec; BATCH_PAGES],
    /// How many of `ranges` are in use.
    pub nr_ranges: usize,
    /// Whether it may take pages that other processes still have since a fork.
    pub takes_shared: bool,
    /// How many of the pages to drop are such.
    pub nr_shared: u64,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub const fn new() -> Self {
        Batch {
            pages: [BatchPage {
                page: Page::from_index(0),
                entry: Entry::None,
            }; BATCH_PAGES],
            nr_pages: 0,
            folios: [BatchFolio {
                index: 0,
                first: 0,
                nr: 0,
                denser: false,
                dropping: false,
            }; BATCH_FOLIOS],
            nr_folios: 0,
            ranges: [IoVec { base: 0, len: 0 }; BATCH_PAGES],
            nr_ranges: 0,
            takes_shared: false,
            nr_shared: 0,
        }
    }

    /// Empties the batch.
    pub const fn clear(&mut self) {
        self.nr_pages = 0;
        self.nr_folios = 0;
        self.nr_ranges = 0;
        self.nr_shared = 0;
    }

    /// Whether a folio with `nr_pages` resident pages fits.
    #[must_use]
    pub const fn has_room(&self, nr_pages: usize) -> bool {
        self.nr_folios < BATCH_FOLIOS && nr_pages <= BATCH_PAGES - self.nr_pages
    }

    /// Adds a folio with the pages that `pages` yields, unless there are none. Returns their
    /// number. The caller has found that there is room for all resident pages of the folio.
    pub fn add_folio(&mut self, index: u32, pages: impl Iterator<Item = Page>) -> usize {
        let first = self.nr_pages;
        for page in pages {
            let place = self.pages.get_mut(self.nr_pages);
            strict_assert!(place.is_some(), "a batch without room for a page");
            if let Some(place) = place {
                *place = BatchPage {
                    page,
                    entry: Entry::None,
                };
                self.nr_pages += 1;
            }
        }
        let nr = self.nr_pages - first;
        if nr == 0 {
            return 0;
        }
        let place = self.folios.get_mut(self.nr_folios);
        strict_assert!(place.is_some(), "a batch without room for a folio");
        if let Some(place) = place {
            *place = BatchFolio {
                index,
                first,
                nr,
                denser: false,
                dropping: false,
            };
            self.nr_folios += 1;
        }
        nr
    }

    /// Adds a page to the ranges to drop; neighbours share a range.
    pub fn add_to_drop(&mut self, page: Page) {
        let end = |range: &IoVec| range.base + range.len;
        let last = self.ranges.get_mut(self.nr_ranges.wrapping_sub(1));
        if let Some(last) = last.filter(|last| end(last) == page.addr()) {
            last.len += super::PAGE_SIZE;
            return;
        }
        let place = self.ranges.get_mut(self.nr_ranges);
        strict_assert!(place.is_some(), "more ranges than pages in a batch");
        if let Some(place) = place {
            *place = IoVec {
                base: page.addr(),
                len: super::PAGE_SIZE,
            };
            self.nr_ranges += 1;
        }
    }

    /// The ranges to drop.
    #[must_use]
    pub fn to_drop(&self) -> &[IoVec] {
        self.ranges.get(..self.nr_ranges).unwrap_or_default()
    }

    /// The `nr` pages of the batch from place `first` on, if they are a whole aligned block and lie
    /// before place `end`.
    #[must_use]
    pub fn block_at(&self, first: usize, end: usize, nr: usize) -> Option<PageRange> {
        let last = first + nr - 1;
        if last >= end {
            return None;
        }
        let start = self.pages.get(first)?.page.index();
        let last = self.pages.get(last)?.page.index();
        // Pages rise, so the first and the last tell of all between.
        (start.is_multiple_of(nr) && last == start + nr - 1).then_some(PageRange {
            start,
            end: last + 1,
        })
    }

    /// The number of places from `at` on, before `end`, whose pages lie in the same aligned
    /// `block`.
    #[must_use]
    pub fn nr_within_block(&self, at: usize, end: usize, block: usize) -> usize {
        if block == 1 {
            return end - at;
        }
        let places = self.pages.get(at..end).unwrap_or_default();
        let of = |place: &BatchPage| place.page.index() / block;
        let first = places.first().map(of);
        places
            .iter()
            .take_while(|&place| Some(of(place)) == first)
            .count()
            .max(1)
    }

    /// Whether the page at place `at` is stored.
    #[must_use]
    pub fn is_stored(&self, at: usize) -> bool {
        self.pages
            .get(at)
            .is_some_and(|place| place.entry != Entry::None)
    }

    /// The number of folio `at` of the batch.
    #[must_use]
    pub fn index_of(&self, at: usize) -> Option<u32> {
        self.folios
            .get(..self.nr_folios)?
            .get(at)
            .map(|folio| folio.index)
    }

    /// From the first to the last page in the batch of folio `at` of it.
    #[must_use]
    pub fn pages_of(&self, at: usize) -> Option<PageRange> {
        if at >= self.nr_folios {
            return None;
        }
        let folio = self.folios.get(at)?;
        let first = self.pages.get(folio.first)?.page.index();
        let last = self.pages.get(folio.first + folio.nr - 1)?.page.index();
        Some(PageRange {
            start: first,
            end: last + 1,
        })
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}
