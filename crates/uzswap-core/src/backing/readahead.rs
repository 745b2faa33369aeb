//! *What*: readahead: how many pages around one that is read from a swap device are read with it.
//!
//! Pages read ahead go into the pool, compressed as they are, and their entries say so
//! ([`Content::ReadAhead`](crate::page::Content::ReadAhead)): hits are counted, not guessed. The
//! window follows the kernel's rule: two more than the hits since the last read, rounded up to a
//! power of two, or half the last window if that is more. Without hits it shrinks to the page
//! alone, and opens again when a read is near the last one.
//!
//! Windows are kept per area of the address space, since a program may scan one table while it
//! looks things up in another. Strictly sequential accesses are left to [`crate::op::Streams`].
//!
//! *Invariants*: none; a lost or wrong number costs speed only.
//! *Locking*: none. *Context*: signal, worker.

use crate::page::{Page, PageRange};
use uzswap_sync::primitive::{AtomicU32, Ordering::Relaxed};

/// Maximum pages of a window, and the distance that counts as near: the kernel's default
/// (`page-cluster`).
pub const MAX_WINDOW: usize = 8;
/// Pages of an area: 4 MiB.
const AREA_PAGES: usize = 1024;
/// Windows; areas a multiple of this apart share one.
const NR_AREAS: usize = 512;

/// The windows of all areas.
#[derive(Debug)]
pub struct Readahead {
    areas: [Area; NR_AREAS],
}

#[derive(Debug)]
struct Area {
    /// The page read last.
    last: AtomicU32,
    /// The window of that read.
    window: AtomicU32,
    /// Hits on pages read ahead since then.
    hits: AtomicU32,
}

impl Default for Readahead {
    fn default() -> Self {
        Self::new()
    }
}

impl Readahead {
    /// Nothing read yet.
    #[must_use]
    pub fn new() -> Self {
        let area = || Area {
            last: AtomicU32::new(u32::MAX),
            window: AtomicU32::new(1),
            hits: AtomicU32::new(0),
        };
        Readahead {
            areas: core::array::from_fn(|_| area()),
        }
    }

    fn area(&self, page: Page) -> Option<&Area> {
        self.areas.get(page.index() / AREA_PAGES % NR_AREAS)
    }

    /// The pages of `folio` around `page` to read with it. Moves the window on.
    pub fn around(&self, page: Page, folio: PageRange) -> PageRange {
        let Some(area) = self.area(page) else {
            return PageRange::one(page);
        };
        let at = page.owner();
        let near = (1..=MAX_WINDOW).contains(&(area.last.swap(at, Relaxed).abs_diff(at) as usize));
        let hits = area.hits.swap(0, Relaxed) as usize;
        let window = next_window(hits, near, area.window.load(Relaxed) as usize);
        #[expect(clippy::cast_possible_truncation, reason = "at most MAX_WINDOW")]
        area.window.store(window as u32, Relaxed);
        let start = page.index() & !(window - 1);
        let end = start + window;
        PageRange { start, end }.and(folio)
    }

    /// Counts a hit on a page that was read ahead.
    pub fn hit(&self, page: Page) {
        if let Some(area) = self.area(page) {
            area.hits.fetch_add(1, Relaxed);
        }
    }
}

/// The window after one of `before` pages that had `hits`.
fn next_window(hits: usize, near: bool, before: usize) -> usize {
    let wanted = match hits {
        0 if near => 2,
        0 => 1,
        hits => (hits + 2).next_power_of_two(),
    };
    wanted.max(before / 2).min(MAX_WINDOW)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    const FOLIO: usize = 16;

    /// What the kernel's `__swapin_nr_pages` says, word for word.
    fn kernels(hits: usize, near: bool, before: usize) -> usize {
        let mut pages = hits + 2;
        if pages == 2 {
            if !near {
                pages = 1;
            }
        } else {
            let mut roundup = 4;
            while roundup < pages {
                roundup <<= 1;
            }
            pages = roundup;
        }
        pages = pages.min(MAX_WINDOW);
        pages.max(before / 2)
    }

    /// A program's pages, on the device, in the pool ahead of their use, or in.
    #[derive(Default)]
    struct Model {
        ahead: HashSet<usize>,
        resident: HashSet<usize>,
        /// By area: page read last, window, hits since.
        areas: HashMap<usize, (usize, usize, usize)>,
        reads: usize,
        along: usize,
        hits: usize,
    }

    impl Model {
        fn touch(&mut self, readahead: &Readahead, index: usize) {
            let page = Page::from_index(index);
            let area = index / AREA_PAGES;
            if !self.resident.insert(index) {
                return;
            }
            if self.ahead.remove(&index) {
                self.hits += 1;
                self.areas.get_mut(&area).unwrap().2 += 1;
                readahead.hit(page);
                return;
            }
            self.reads += 1;
            let start = index / FOLIO * FOLIO;
            let folio = PageRange {
                start,
                end: start + FOLIO,
            };
            let around = readahead.around(page, folio);
            let (last, before, hits) =
                self.areas
                    .get(&area)
                    .copied()
                    .unwrap_or((u32::MAX as usize, 1, 0));
            let near = last != index && last.abs_diff(index) <= MAX_WINDOW;
            let window = kernels(hits, near, before);
            self.areas.insert(area, (index, window, 0));
            assert_eq!(around.len(), window, "page {index}: {around:?}");
            assert!(around.pages().any(|one| one == page));
            assert!(around.start >= folio.start && around.end <= folio.end);
            for index in around.start..around.end {
                if !self.resident.contains(&index) && self.ahead.insert(index) {
                    self.along += 1;
                }
            }
        }
    }

    fn random(x: &mut u64) -> usize {
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        (*x >> 16) as usize
    }

    #[test]
    fn any_accesses_are_followed_as_the_kernel_would() {
        let mut x = 0x5eed_0a4e_ad00_0001;
        let readahead = Readahead::new();
        let mut model = Model::default();
        for _ in 0..400 {
            // A walk, of any stride either way, or a few pages anywhere.
            let (mut at, stride) = (8192 + random(&mut x) % 40_000, random(&mut x) % 7);
            for _ in 0..random(&mut x) % 60 {
                model.touch(&readahead, at);
                at = match stride {
                    0 => 8192 + random(&mut x) % 40_000,
                    6 => at - 1,
                    stride => at + stride,
                };
            }
        }
        assert!(model.hits > 1000 && model.reads > 1000, "{}", model.hits);
    }

    #[test]
    fn what_is_near_widens_it_and_chance_narrows_it() {
        let mut x = 0x5eed_0a4e_ad00_0002;
        let readahead = Readahead::new();
        let mut model = Model::default();
        // Every page of one folio after the other, in any order.
        for folio in 0..100 {
            let mut pages: Vec<usize> = (0..FOLIO).collect();
            while !pages.is_empty() {
                let page = pages.swap_remove(random(&mut x) % pages.len());
                model.touch(&readahead, folio * FOLIO + page);
            }
        }
        let Model {
            reads, along, hits, ..
        } = model;
        assert!(reads < 100 * FOLIO / 4, "{reads} reads");
        assert_eq!(hits, along, "everything was asked for");
        // Far from each other: the page alone.
        let readahead = Readahead::new();
        let mut model = Model::default();
        for turn in 0..1000 {
            model.touch(&readahead, turn % 8 * 100 + turn / 8 * 2000);
        }
        assert_eq!((model.reads, model.along), (1000, 0));
        // And what was wide is soon narrow.
        let readahead = Readahead::new();
        let mut model = Model::default();
        for page in 0..64 {
            model.touch(&readahead, page);
        }
        let before = model.along;
        for page in 1..9 {
            model.touch(&readahead, page * 100);
        }
        assert_eq!(model.along - before, 7 + 3 + 1, "eight, four, two, one");
    }
}
