//! *What*: charges pages that others have too since a fork, before the program writes to them and
//! the kernel copies them.
//!
//! *Invariants*: pages are charged before they leave `shared`: see [`super::share`]. A page that
//! reclaim has copied is not opened to writes before that copy is given up.
//! *Locking*: op → folio. *Context*: signal, worker.

use super::reserve::reserve_pages;
use crate::op::OpGuard;
use crate::page::folio::SHARED;
use crate::page::{Page, PageRange, wide};
use crate::parts::Parts;

/// Charges the shared pages of the part around `page`, and lets the program write to them. `false`:
/// they do not fit.
pub(crate) fn unshare(parts: &Parts, op: &mut OpGuard<'_>, page: Page) -> bool {
    let part = parts.pages.part_of(page);
    let most = wide(part.len());
    if !reserve_pages(parts, op, most) {
        return false;
    }
    let guard = parts.pages.folio_of(page).lock();
    let mut nr = 0;
    if parts.pages.is_shared(page) {
        // Reclaim may have copied the page: what is written from now on is not in that copy.
        guard.cancel_reclaim();
        nr = wide(parts.pages.nr_shared(&guard, part));
        parts.pages.clear_shared(&guard, page);
        parts.account.charge().share().unshare(nr);
        parts.arena.unprotect(&parts.pages, &guard, part);
    }
    drop(guard);
    op.unreserve(most - nr);
    true
}

/// As [`unshare`], for all of `range`, within one folio.
pub(crate) fn unshare_range(parts: &Parts, op: &mut OpGuard<'_>, range: PageRange) -> bool {
    let folio = parts.pages.folio_of(Page::from_index(range.start));
    if !folio.has(SHARED) {
        return true;
    }
    let mut at = range.start;
    while at < range.end {
        let page = Page::from_index(at);
        if parts.pages.is_shared(page) && !unshare(parts, op, page) {
            return false;
        }
        at = parts.pages.part_of(page).end;
    }
    true
}
