//! *What*: publishes to the group the sizes that live in the engine's own cells.
//!
//! *Invariants*: none. *Locking*: none. *Context*: signal, worker.

use crate::page::{PAGE_SIZE, wide};
use crate::parts::Parts;
use uzswap_group::counters::{add, sub};
use uzswap_sync::primitive::Ordering;

/// Counts pages that became resident.
#[inline]
pub(crate) fn count_resident(parts: &Parts, nr: usize) {
    let nr = wide(nr);
    let now = parts.pages.add_resident(nr);
    let counters = parts.account.counters();
    add(&counters.resident, nr * wide(PAGE_SIZE));
    let out = counters.stored_pages.load(Ordering::Relaxed)
        + counters.swapped_pages.load(Ordering::Relaxed);
    parts.account.charge().share().set_need(now + out);
    let need = (now + out) * wide(PAGE_SIZE);
    if need > counters.need_peak.load(Ordering::Relaxed) {
        counters.need_peak.store(need, Ordering::Relaxed);
        // A program that never needs reclaim publishes nowhere else.
        publish_sizes(parts);
    }
}

/// Counts pages that were dropped.
#[inline]
pub(crate) fn count_dropped(parts: &Parts, nr: usize) {
    let nr = wide(nr);
    parts.pages.sub_resident(nr);
    sub(&parts.account.counters().resident, nr * wide(PAGE_SIZE));
}

/// Publishes the sizes that live in the engine's own cells.
pub(crate) fn publish_sizes(parts: &Parts) {
    let page = wide(PAGE_SIZE);
    let counters = parts.account.counters();
    let pool = parts.store.pool_pages();
    parts.account.charge().share().set_pool(pool);
    let pool = pool * page;
    counters.pool_total_size.store(pool, Ordering::Relaxed);
    counters.pool_peak.fetch_max(pool, Ordering::Relaxed);
    let stored = counters.stored_pages.load(Ordering::Relaxed) * page;
    counters.zswapped_peak.fetch_max(stored, Ordering::Relaxed);
    let metadata = parts.account.metadata() * page;
    counters.metadata.store(metadata, Ordering::Relaxed);
    counters
        .ram_peak
        .store(parts.account.charge().peak() * page, Ordering::Relaxed);
    if let Some(backing) = &parts.backing {
        backing
            .devices()
            .publish_use(&parts.account.group().config.swap);
    }
}
