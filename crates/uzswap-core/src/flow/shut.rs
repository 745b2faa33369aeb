//! *What*: a folio that no mapping was left for is opened by evicting others (segv mode).
//!
//! *Invariants*: as [`crate::arena`]. *Locking*: one folio at a time. *Context*: signal, worker.

use super::evict::reclaim_batch;
use super::follow::follow_knobs;
use crate::op::{OpGuard, RESERVE_PAGES};
use crate::page::folio::PROT_STALE;
use crate::parts::Parts;
use uzswap_group::group::FailureReason;
use uzswap_sys::Errno;

/// Pages evicted at once for two mappings or more.
const AIM_PAGES: usize = 64;

/// Batches evicted for a mapping before that is given up.
const MAX_BATCHES: u32 = 1000;

/// Opens a folio that is `PROT_STALE` by evicting others: each that goes gives back its mapping and the one behind it.
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
        reclaim_batch(parts, op, AIM_PAGES);
        op.reserve.shrink_to(RESERVE_PAGES);
    }
    parts
        .account
        .die(FailureReason::Mappings, Errno::ENOMEM.0.unsigned_abs(), 0);
}
