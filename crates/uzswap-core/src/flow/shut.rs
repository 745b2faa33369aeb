//! *What*: reopens a folio that could not be unprotected for want of mappings (segv mode) by
//! evicting others.
//!
//! *Invariants*: as [`crate::arena`]. *Locking*: one folio at a time. *Context*: signal, worker.

use super::evict::reclaim_batch;
use super::follow::follow_knobs;
use super::reclaim::EVICT_PAGES;
use crate::op::{OpGuard, RESERVE_PAGES};
use crate::page::folio::PROT_STALE;
use crate::page::lru::Wanted;
use crate::parts::Parts;
use uzswap_group::group::FailureReason;
use uzswap_sys::Errno;

/// Batches evicted to free a mapping before the process is ended.
const MAX_BATCHES: u32 = 1000;

/// Opens a folio that is `PROT_STALE` by evicting others: each that goes gives back its mapping and
/// the one behind it.
pub(crate) fn open_shut_folio(parts: &Parts, op: &mut OpGuard<'_>, index: u32) {
    follow_knobs(parts, op);
    for _ in 0..MAX_BATCHES {
        let guard = parts.pages.folio(index).lock();
        guard.cancel_reclaim();
        parts.arena.open_folio(&parts.pages, &guard, index);
        if !guard.has(PROT_STALE) {
            return;
        }
        drop(guard);
        reclaim_batch(parts, op, Wanted::about(EVICT_PAGES));
        op.reserve.shrink_to(RESERVE_PAGES);
    }
    parts
        .account
        .die(FailureReason::Mappings, Errno::ENOMEM.0.unsigned_abs(), 0);
}
