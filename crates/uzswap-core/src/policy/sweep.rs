//! *What*: what is written back next: a sweep over the page table that takes the oldest eighth of
//! the stored pages, in address order.
//!
//! *Invariants*: same-filled pages are never chosen: they take no memory.
//! *Locking*: the writeback lock, held by the caller. *Context*: signal, worker.

use crate::page::entry::AGE_BITS;
use crate::page::{Age, Entries, Entry, Page, Pages};

/// Number of ages, in clock ticks.
const NR_AGES: usize = 1 << AGE_BITS;
/// One sweep takes 1/8 of the stored pages.
const SWEEP_PART: u64 = 8;
/// The hand of a sweep that has ended.
const AT_END: usize = usize::MAX;

/// How many stored pages there are of each age, when they were counted last.
#[derive(Debug)]
pub(crate) struct Ages([u32; NR_AGES]);

impl Ages {
    pub(crate) const fn new() -> Self {
        Ages([0; NR_AGES])
    }

    /// Counts the ages of what is stored. Returns how many pages that is.
    pub(crate) fn count(&mut self, pages: &Pages) -> u64 {
        let now = pages.clock().now();
        self.0.fill(0);
        let mut total = 0_u64;
        for chunk in pages.ready_chunks(0) {
            for index in chunk {
                if let Entry::Stored { age, .. } = pages.get(Page::from_index(index)) {
                    let age = usize::from(age.distance(now));
                    if let Some(nr) = self.0.get_mut(age) {
                        *nr += 1;
                        total += 1;
                    }
                }
            }
        }
        total
    }

    /// Pages that were `age` ticks old or older.
    pub(crate) fn nr_older(&self, age: u16) -> u64 {
        let older = self.0.iter().skip(usize::from(age));
        older.map(|&nr| u64::from(nr)).sum()
    }

    /// The age that at least `wanted` pages have reached, in ticks.
    fn reached_by(&self, wanted: u64) -> u16 {
        let mut older = 0;
        for (age, nr) in self.0.iter().enumerate().rev() {
            older += u64::from(*nr);
            if older >= wanted {
                #[expect(clippy::cast_possible_truncation, reason = "below 2^AGE_BITS")]
                return age as u16;
            }
        }
        0
    }
}

/// A page that is chosen, as its entry was then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen {
    pub page: Page,
    pub size: u16,
    pub age: Age,
}

/// Where the sweep stands.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// Index of the next page to examine.
    hand: usize,
    /// It takes pages whose age was at least this, in ticks, when it began.
    cold: u16,
    /// When it began: pages evicted since then age too, and are not taken.
    begun: Age,
}

impl Sweep {
    /// At rest.
    pub(crate) const fn new() -> Self {
        Sweep {
            hand: AT_END,
            cold: 0,
            begun: Age(0),
        }
    }

    /// Gives `take` the pages that go next, of that age at least, until it refuses one, from which
    /// the next call goes on. Returns how many were taken: none if there are none.
    pub(crate) fn choose(
        &mut self,
        pages: &Pages,
        ages: &mut Ages,
        min_age: u16,
        mut take: impl FnMut(Chosen) -> bool,
    ) -> usize {
        // The rest of one sweep, else the next one.
        for _ in 0..2 {
            if self.hand == AT_END && !self.begin(pages, ages) {
                break;
            }
            let nr = self.advance(pages, min_age, &mut take);
            if nr > 0 {
                return nr;
            }
        }
        0
    }

    fn advance(
        &mut self,
        pages: &Pages,
        min_age: u16,
        take: &mut impl FnMut(Chosen) -> bool,
    ) -> usize {
        let now = pages.clock().now();
        let cold = self.begun.distance(now).saturating_add(self.cold);
        let mut nr = 0;
        for chunk in pages.ready_chunks(self.hand) {
            for index in chunk {
                let page = Page::from_index(index);
                if let Entry::Stored { size, age, .. } = pages.get(page)
                    && age.distance(now) >= cold.max(min_age)
                {
                    if !take(Chosen { page, size, age }) {
                        self.hand = index;
                        return nr;
                    }
                    nr += 1;
                }
            }
        }
        self.hand = AT_END;
        nr
    }

    /// The page that was chosen last, and those behind it, are still to go.
    pub(crate) const fn return_to(&mut self, page: Page) {
        self.hand = page.index();
    }

    /// Decides what the next sweep takes. `false`: there is nothing.
    fn begin(&mut self, pages: &Pages, ages: &mut Ages) -> bool {
        let total = ages.count(pages);
        self.cold = ages.reached_by(total.div_ceil(SWEEP_PART));
        self.begun = pages.clock().now();
        self.hand = 0;
        total > 0
    }
}
