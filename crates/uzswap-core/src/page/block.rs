//! *What*: blocks: pages next to each other that are compressed as one, because together they take less.
//!
//! A block is up to 16 pages of one folio, aligned. It is compressed to one object, which is cut into pieces of a page
//! at most; they are in the entries of its first pages, in order, objects of pool or
//! device like any other: each is moved by compaction, written back and freed alone. The pages behind the
//! last piece have an entry that says how large the block is, and the last page always is such, so a block is
//! found from any page in it. Pages may leave it ([`Transition::exit_block`](super::transition::Transition::exit_block)): their entries are as if it were not there.
//!
//! | what happens | to the block |
//! |---|---|
//! | its pages are evicted together | becomes one, if that takes no more than three quarters of them |
//! | its pages stay cold in the pool, alone or in smaller blocks | becomes one, if that takes less |
//! | fault on a page that nobody seems to go on from | stays, while half of it is left; the page comes in and has left it |
//! | any other fault, pin, mremap of a page | brought in whole: every page that has contents is resident, the others are nowhere |
//! | part of it dropped (unmapped, discarded) | stays; those pages' entries say that their contents are gone |
//! | the last of it dropped | its pieces are freed |
//! | a dropped page is touched | brought in; what was dropped is then a fresh page |
//! | writeback, compaction | piece by piece: some may be in the pool and some on the device |
//! | fork | the child has a copy |
//!
//! Nothing of a block is written back into it: a write is a fault.
//!
//! *Invariants*: the entries of a block change from evicted pages to a block, and from a block to no block, under
//! one hold of their folio. No page in a block is resident; pages of its range that left it may be anything but in
//! a block: none is made where a larger one has pages left. A range that takes part of a block brings nothing
//! of it in, so whoever brings pages in asks for [`Entries::whole_blocks`].
//! *Locking*: the folio, held by the caller; without it what is found is a hint. *Context*: signal, worker.

use super::address::{Page, PageRange, wide};
use super::entry::Entry;

/// log2 of the pages of the largest block.
pub const MAX_BLOCK_ORDER: u64 = 4;
/// Pages of the largest block.
pub const MAX_BLOCK: usize = 1 << MAX_BLOCK_ORDER;

/// The entries of pages: the page table, or a model's.
pub trait Entries {
    /// The entry of `page`. Without its folio's lock, a hint.
    fn get(&self, page: Page) -> Entry;

    /// Whether the entries around `page` are charged and may be looked at.
    fn is_ready(&self, page: Page) -> bool;

    /// The block that `page` is in, or the page alone.
    fn block_of(&self, page: Page) -> PageRange {
        let at = page.index();
        if self.is_ready(page) && self.get(page).in_block() {
            for index in at..(at | (MAX_BLOCK - 1)) + 1 {
                if let Entry::Block { order, .. } = self.get(Page::from_index(index)) {
                    let nr = 1 << u64::from(order).min(MAX_BLOCK_ORDER);
                    let start = at & !(nr - 1);
                    return PageRange {
                        start,
                        end: start + nr,
                    };
                }
            }
        }
        PageRange::one(page)
    }

    /// The pages that are still in `block`.
    fn pages_in(&self, block: PageRange) -> impl DoubleEndedIterator<Item = Page> {
        let is_in = |page: &Page| self.get(*page).in_block();
        block.pages().filter(is_in)
    }

    /// Pages of a block that have contents: so many become resident with it.
    fn contents_of(&self, block: PageRange) -> u64 {
        let evicted = |page: &Page| self.get(*page).is_evicted();
        wide(self.pages_in(block).filter(evicted).count())
    }

    /// `range` and the rest of the blocks at its ends.
    fn whole_blocks(&self, range: PageRange) -> PageRange {
        if range.is_empty() || !self.is_ready(Page::from_index(range.start)) {
            return range;
        }
        // The page at an end may have left the block that it lies in: others are still in that.
        let reach = |index: usize| PageRange {
            start: index & !(MAX_BLOCK - 1),
            end: (index | (MAX_BLOCK - 1)) + 1,
        };
        let first = self.pages_in(range.and(reach(range.start))).next();
        let last = self.pages_in(range.and(reach(range.end - 1))).next_back();
        PageRange {
            start: first.map_or(range.start, |page| {
                self.block_of(page).start.min(range.start)
            }),
            end: last.map_or(range.end, |page| self.block_of(page).end.max(range.end)),
        }
    }

    /// Whether `range` lies in a larger block that has pages left: no block may be made there.
    fn is_in_larger(&self, range: PageRange) -> bool {
        let start = range.start & !(MAX_BLOCK - 1);
        let around = PageRange {
            start,
            end: start + MAX_BLOCK,
        };
        range.len() < MAX_BLOCK
            && self.pages_in(around).any(|page| {
                let block = self.block_of(page);
                block.len() > range.len() && block.and(range) == range
            })
    }
}
