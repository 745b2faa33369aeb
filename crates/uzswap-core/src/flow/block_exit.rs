//! *What*: one page of a block comes in, alone, and leaves the block, which stays.
//!
//! To decode a block for one access takes less than to find room for all of its pages, each of which sends another out
//! (figures: docs/notes/engine.md). So where a fault has nothing of a stream about it, the object is decoded as far as that page
//! (further, if its codec cannot stop there), and only that page is copied in. Evicted again, it is a page like any other.
//!
//! The pieces of the object must stay, in order: the entry of a page that leaves gives its piece to the next entry,
//! which passes on its own, and so on to the first that has none. What is left of a block holds all of the
//! object, so this goes on only while it has more than half of its contents; then the rest comes in as one.
//!
//! *Invariants*: after each step but the last the block is one, of the same contents, so a page that could not be copied in is
//! still in it. *Locking*: the folio is held by the caller. *Context*: signal.

use super::decode::{LoadError, load_block};
use super::load::{Brought, Run, Source, copy_in};
use crate::op::OpGuard;
use crate::page::block::Entries;
use crate::page::folio::FolioGuard;
use crate::page::transition::exit_range;
use crate::page::{PAGE_SIZE, Page};
use crate::parts::Parts;

/// Brings in `page`, and no other of its block; nothing if it may not leave it.
pub(crate) fn bring_in_exiting(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    guard: &FolioGuard<'_>,
    page: Page,
    credit: &mut u64,
) -> Result<Brought, LoadError> {
    let mut brought = Brought::default();
    let block = parts.pages.block_of(page);
    let (Some(way), Some(left)) = (exit_range(&parts.pages, page), credit.checked_sub(1)) else {
        return Ok(brought);
    };
    let place = page.index() - block.start;
    load_block(parts, op, block, place + 1, 0)?;
    parts.transition().exit_block(way);
    *credit = left;
    let run = Run {
        start: page.index(),
        nr: 1,
        source: Source::Loaded,
        at: place * PAGE_SIZE,
    };
    copy_in(parts, op, guard, &run, &mut brought)?;
    Ok(brought)
}
