//! *What*: brings in a single page of a block, which leaves the block; the block stays.
//!
//! Decoding a block for one access costs less than making room for all of its pages, each of which
//! evicts another (figures: docs/notes/engine.md). So a fault that belongs to no stream decodes the
//! object up to its page (further, if the codec cannot stop there) and copies in that page alone.
//! Evicted again, it is stored as a single page.
//!
//! The object's pieces must stay, in order: the entry of the leaving page passes its piece to the
//! next entry, which passes on its own, and so on to the first entry without one. The rest of the
//! block keeps the whole object, so pages may leave only while more than half of the contents
//! remain; after that the rest comes in as a whole.
//!
//! *Invariants*: after each step but the last the block is whole, with the same contents, so a page
//! that could not be copied in is still in it.
//! *Locking*: the caller holds the folio. *Context*: signal.

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
    let (Some(range), Some(left)) = (exit_range(&parts.pages, page), credit.checked_sub(1)) else {
        return Ok(brought);
    };
    let place = page.index() - block.start;
    load_block(parts, op, block, place + 1, 0)?;
    parts.transition().exit_block(range);
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
