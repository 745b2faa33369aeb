//! *What*: compacts the pool; freed pages go to the operation that asked.
//!
//! *Invariants*: an object moves only while the folio of its page is locked.
//! *Locking*: pool class → folio, against the order, so the folio is only tried.
//! *Context*: signal, worker.

use super::share::is_last_of_family;
use crate::op::OpGuard;
use crate::page::block::Entries;
use crate::page::folio::FolioGuard;
use crate::page::{Entry, Page};
use crate::parts::Parts;
use uzswap_group::counters::add;
use uzswap_pool::{Loc, Relocate};

/// The pool is compacted when that could free more than 1/64 of its pages.
const COMPACT_PART: u64 = 64;
/// Least number of pages that one compaction tries to free.
const MIN_PAGES: u64 = 64;

/// Compacts the pool by about `target` pages (at least 64) once it could give back a good part of
/// itself.
pub(crate) fn compact_if_fragmented(parts: &Parts, op: &mut OpGuard<'_>, target: u64) {
    if parts.store.fragmentation() * COMPACT_PART > parts.store.pool_pages() + target {
        compact(parts, op, target.max(MIN_PAGES));
    }
}

/// Compacts the pool by about `nr` pages; they go into the operation's reserve.
pub(crate) fn compact(parts: &Parts, op: &mut OpGuard<'_>, nr: u64) {
    let mut mover = Mover { parts };
    if parts.store.shared_pages() > 0 && is_last_of_family(parts) {
        parts.store.own_shared(&mut mover);
    }
    let freed = parts.store.compact(nr, &mut mover, &mut op.reserve);
    add(&parts.account.counters().compacted_pages, freed);
}

/// The page table's side of pool compaction.
struct Mover<'a> {
    parts: &'a Parts,
}

impl<'a> Relocate for Mover<'a> {
    type Held = (FolioGuard<'a>, Page);

    fn try_hold(&mut self, owner: u32, old: Loc) -> Option<Self::Held> {
        let page = Page::from_index(owner as usize);
        let guard = self.parts.pages.folio_of(page).try_lock()?;
        match self.parts.pages.get(page) {
            Entry::Stored { loc, .. } if loc == old => Some((guard, page)),
            _ => None,
        }
    }

    fn publish(&mut self, (_guard, page): Self::Held, new: Loc) {
        self.parts.transition().relocate(page, new);
    }
}
