//! *What*: charged pages for a caller: from the operation's reserve, from room below the limit, or
//! by reclaim.
//!
//! *Invariants*: pages are charged before they are touched.
//! *Locking*: as reclaim. *Context*: signal, worker.

use super::{follow, high, reclaim, reclaimer};
use crate::op::OpGuard;
use crate::page::Page;
use crate::page::block::Entries;
use crate::parts::Parts;
use uzswap_group::counters::add;

/// Takes `nr` charged pages for the caller, reclaiming as it must. `false`: they cannot be had.
#[inline]
pub(crate) fn reserve_pages(parts: &Parts, op: &mut OpGuard<'_>, nr: u64) -> bool {
    if op.take_spare(nr) {
        return true;
    }
    if parts.account.charge().try_charge(nr) {
        high::slow_down(parts, op);
        reclaimer::wake_if_low(parts);
        return true;
    }
    reclaimer::wake_if_low(parts);
    follow::follow_knobs(parts, op);
    reclaim::make_room(parts, op, nr)
}

/// Charges the tables' pages that the entries around `page` need, if they are not yet. `false`:
/// there is no room for them.
pub(crate) fn ready_chunk(parts: &Parts, op: &mut OpGuard<'_>, page: Page) -> bool {
    if parts.pages.is_ready(page) {
        return true;
    }
    // One page of page table and up to two of folio table; what is not needed goes back.
    const MAX_PAGES: u64 = 3;
    if !reserve_pages(parts, op, MAX_PAGES) {
        add(&parts.account.counters().reject_kmemcache_fail, 1);
        return false;
    }
    let used = parts.pages.make_ready(page);
    parts.account.add_metadata(used);
    op.reserve.put(MAX_PAGES.saturating_sub(used));
    true
}

/// Charges what the region map has grown by.
pub(crate) fn charge_regions(parts: &Parts, op: &mut OpGuard<'_>) {
    let grown = parts.arena.grow_region_pages();
    if grown > 0 {
        // The map has grown already; room for it is made now.
        if !reserve_pages(parts, op, grown) {
            parts.account.charge().charge_unchecked(grown);
        }
        parts.account.add_metadata(grown);
    }
}
