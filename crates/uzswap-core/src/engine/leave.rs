//! *What*: one page of a block comes in, alone, and is out of the block, which stays.
//!
//! To decode a block for one access takes less than to find room for all of its pages, each of which sends another out
//! (figures: docs/notes/engine.md). So where a fault has nothing of a stream about it, the object is decoded as far as that page
//! (further, if its codec cannot stop there), and only that page is copied in. Evicted again, it is a page like any other.
//!
//! The pieces of the object must stay, in order: the entry of a page that leaves gives its piece to the next entry,
//! which passes on its own, and so on to the first that has none. What is left of a block holds all of the
//! object, so this goes on only while it has more than half of its contents; then the rest comes in as one.
//!
//! *Invariants*: the last page in a block has no piece, before and after; after each step but the last the block is one, of the
//! same contents, so a page that could not be copied in is still in it. *Locking*: the folio, held by the caller; without it what
//! [`Parts::may_leave`] says is a hint. *Context*: signal.

use super::Parts;
use super::load::{Brought, LoadError, Run, Source};
use crate::arena::{PAGE_SIZE, Page, PageRange, narrow};
use crate::folio::FolioGuard;
use crate::slot::SlotGuard;
use crate::table::{Entry, Holds};

impl Parts {
    /// Whether `page` is in a block that it may leave alone.
    pub(super) fn may_leave(&self, page: Page) -> bool {
        self.way_out(page).is_some()
    }

    /// Brings in `page`, and no other of its block; nothing if it may not leave it.
    pub(super) fn bring_in_alone(
        &self,
        slot: &mut SlotGuard<'_>,
        guard: &FolioGuard<'_>,
        page: Page,
        credit: &mut u64,
    ) -> Result<Brought, LoadError> {
        let mut brought = Brought::default();
        let block = self.block_of(page);
        let (Some(way), Some(left)) = (self.way_out(page), credit.checked_sub(1)) else {
            return Ok(brought);
        };
        let place = page.index() - block.start;
        self.load_block(slot, block, place + 1, 0)?;
        self.pass_pieces_on(way);
        *credit = left;
        let run = Run {
            start: page.index(),
            nr: 1,
            source: Source::Loaded,
            at: place * PAGE_SIZE,
        };
        self.copy_in(slot, guard, &run, &mut brought)?;
        Ok(brought)
    }

    /// From `page` to the entry that its piece, or that of one between, can go to. `None` if it may not leave its block alone:
    /// little is left of that, a piece is not in the pool, or no other entry without a piece would be the last.
    fn way_out(&self, page: Page) -> Option<PageRange> {
        // Most pages that are asked for are in none: they are not looked at any further.
        let entry = self.table.get(page);
        if !(entry.in_block() && entry.is_evicted()) {
            return None;
        }
        let block = self.block_of(page);
        if narrow(self.contents_of(block)) <= block.len() / 2 {
            return None;
        }
        let mut end = None;
        // The last entry, and whether the one before it has a piece.
        let (mut last, mut has_piece, mut had_piece) = (page, true, true);
        for at in self.pages_in(block) {
            (last, had_piece) = (at, has_piece);
            has_piece = match self.table.get(at) {
                Entry::Stored { .. } => true,
                Entry::Block { .. } => false,
                _ => return None,
            };
            if !has_piece && at.index() >= page.index() {
                end = end.or(Some(at));
            }
        }
        let end = end?;
        (end != last || (end == page && !had_piece)).then_some(PageRange {
            start: page.index(),
            end: end.index() + 1,
        })
    }

    /// Each entry of `way` that is in the block gives its piece to the next: then the first has none. The last had none.
    fn pass_pieces_on(&self, way: PageRange) {
        let block = self.block_of(Page::from_index(way.start));
        #[expect(clippy::cast_possible_truncation, reason = "at most MOST_BLOCK_ORDER")]
        let order = block.len().ilog2() as u8;
        let mut piece = None;
        for page in self.pages_in(way) {
            let entry = self.table.get(page);
            let Some(age) = entry.age() else { continue };
            let dropped = entry.is_dropped();
            let passed = match entry {
                Entry::Stored { loc, size, .. } => Some((loc, size)),
                _ => None,
            };
            self.table.set(
                page,
                match piece {
                    None => Entry::Block {
                        order,
                        age,
                        dropped,
                    },
                    Some((loc, size)) => {
                        // SAFETY: the object lives, and the one entry that said so was just changed.
                        unsafe { self.pool.set_owner(loc, page.owner()) };
                        let holds = if dropped {
                            Holds::Remains
                        } else {
                            Holds::Piece
                        };
                        Entry::Stored {
                            loc,
                            size,
                            age,
                            // The copy under way is another page's.
                            writing: false,
                            holds,
                        }
                    }
                },
            );
            piece = passed;
        }
    }
}
