//! *What*: blocks: neighbouring pages that are compressed as one object, because together they take
//! less.
//!
//! A block is up to 16 pages of one folio, aligned. Its compressed object is cut into pieces of a
//! page at most. The entries of the block's first pages hold the pieces, in order. A piece is an
//! object of pool or device like any other: compaction, writeback and free handle each alone. The
//! pages behind the last piece have an entry that gives the size of the block; the last page always
//! is one of them, so the block is found from any page in it. Pages may leave it
//! ([`Transition::exit_block`](super::transition::Transition::exit_block)).
//!
//! | event | effect on the block |
//! |---|---|
//! | its pages are evicted together | made, if that takes at most three quarters of their size |
//! | its pages stay cold in the pool, alone or in smaller blocks | made, if that takes less |
//! | fault outside a sequential stream | stays while half of it is left; the page leaves it |
//! | any other fault, pin, mremap of a page | loaded whole: pages with contents become resident, the others empty |
//! | part of it dropped (unmapped, discarded) | stays; those pages' entries are marked dropped |
//! | the last of it dropped | its pieces are freed |
//! | a dropped page is touched | loaded whole; the dropped page becomes a fresh one |
//! | writeback, compaction | piece by piece: some may be in the pool and some on the device |
//! | fork | the child has a copy |
//!
//! A block is never written to: a write is a fault.
//!
//! *Invariants*
//! - The entries of a block change from evicted pages to a block, and from a block to no block,
//!   under one hold of their folio.
//! - No page in a block is resident. A page that left it may be in any state but in a block: no
//!   block is made where a larger one has pages left.
//! - A range that covers part of a block brings in none of it, so whoever brings pages in extends
//!   the range by [`Entries::whole_blocks`].
//!
//! *Locking*: the folio, held by the caller; without it results are hints. *Context*: signal,
//! worker.

use super::address::{Page, PageRange, wide};
use super::entry::Entry;

/// log2 of the pages of the largest block.
pub const MAX_BLOCK_ORDER: u64 = 4;
/// Pages of the largest block.
pub const MAX_BLOCK: usize = 1 << MAX_BLOCK_ORDER;

/// Read access to entries: the page table, or a model's.
pub trait Entries {
    /// The entry of `page`. Without its folio's lock, a hint.
    fn get(&self, page: Page) -> Entry;

    /// Whether the entries around `page` are charged and may be read.
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

    /// The number of pages of `block` with contents: a load makes as many resident.
    fn contents_of(&self, block: PageRange) -> u64 {
        let evicted = |page: &Page| self.get(*page).is_evicted();
        wide(self.pages_in(block).filter(evicted).count())
    }

    /// `range`, extended by the rest of the blocks at its ends.
    fn whole_blocks(&self, range: PageRange) -> PageRange {
        if range.is_empty() || !self.is_ready(Page::from_index(range.start)) {
            return range;
        }
        // The page at an end may have left its block, with others of the range still in it.
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

    /// Whether `range` lies in a larger block that has pages left, so that no block may be made
    /// there.
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
