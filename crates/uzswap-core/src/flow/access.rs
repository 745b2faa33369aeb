//! *What*: tells reclaim of an access: places the folio on the LRU lists.
//!
//! *Invariants*: a folio under reclaim is left to its reclaimer.
//! *Locking*: folio → LRU. *Context*: signal, worker.

use crate::page::clock::tick_shift;
use crate::page::folio::{
    ACTIVE, FolioGuard, INACTIVE, RECLAIM, REFERENCED, RUNS_OF_4, RUNS_OF_16,
};
use crate::page::{Entry, Page};
use crate::parts::Parts;
use uzswap_group::counters::add;

/// A page of the folio with this entry was asked for: where does the folio belong?
pub(crate) fn note_access(parts: &Parts, guard: &FolioGuard<'_>, index: u32, entry: Entry) {
    if entry.is_readahead()
        && let Some(backing) = &parts.backing
    {
        add(&parts.account.counters().swap_ra_hit, 1);
        let folio = parts.pages.range_of(index);
        backing.note_hit(Page::from_index(folio.start));
    }
    if let Some(distance) = refault_distance(parts, entry) {
        parts.account.process().refault_distance.record(distance);
    }
    if guard.has(RECLAIM) || guard.nr_resident() == 0 {
        // Its reclaimer puts it back.
        return;
    }
    if guard.has(ACTIVE) {
        guard.set(REFERENCED);
    } else if !entry.is_readahead() && is_workingset(parts, entry) {
        add(&parts.account.counters().activations, 1);
        parts.pages.activate(guard, index);
    } else if !guard.has(INACTIVE) {
        parts.pages.lru_add(guard, index);
    }
}

/// Whether a page evicted at `age` came back sooner than the resident set would have turned
/// over: had its folio been on the active list, it would still be in.
pub(crate) fn is_workingset(parts: &Parts, entry: Entry) -> bool {
    refault_distance(parts, entry).is_some_and(|distance| distance <= parts.pages.nr_resident())
}

/// Whether the page was evicted before the eviction clock stood at `then`.
pub(crate) fn was_stored_before(parts: &Parts, entry: Entry, then: u64) -> bool {
    let limit = parts.account.charge().limit();
    let since = parts.pages.clock().pages_since(then, limit);
    refault_distance(parts, entry).is_some_and(|distance| distance > since)
}

/// Pages evicted since `entry` was, to the tick.
fn refault_distance(parts: &Parts, entry: Entry) -> Option<u64> {
    let ticks = u64::from(entry.age()?.distance(parts.pages.clock().now()));
    Some(ticks << tick_shift(parts.account.charge().limit()))
}

/// Pages of the folio came back in a run of `nr` that the program asked for one after the other.
pub(crate) fn note_run(guard: &FolioGuard<'_>, nr: usize) {
    let runs = match nr {
        16.. => RUNS_OF_16,
        4.. => RUNS_OF_4,
        _ => 0,
    };
    let others = (RUNS_OF_4 | RUNS_OF_16) & !runs;
    if guard.has(others) {
        guard.clear(others);
    }
    if runs != 0 && !guard.has(runs) {
        guard.set(runs);
    }
}
