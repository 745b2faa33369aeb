//! *What*: eviction of the coldest folios, in batches: isolate → protect → store → drop.
//!
//! A batch isolates folios from the LRU's cold end, write-protects them, and compresses their pages
//! in place. Then, folio by folio under its lock, it publishes the entries; one vectored call drops
//! all pages of the batch. A write to a protected page faults and cancels its folio. While the
//! calling thread is the process's only one, nothing can write and nothing is protected.
//!
//! *Invariants*: a page is dropped only if its folio was not cancelled between isolation and the
//! locking of the folio, so what was compressed is what is dropped. Freed pages stay charged, in
//! the operation's reserve, until the caller has taken its own.
//! *Locking*: op → folios. Publishing holds many folios at once, all isolated by this thread.
//! *Context*: signal, worker.

use super::share::{clear_empty, own_if_last, unprotect_own};
use super::{compact, sample, shrink, sizes};
use crate::arena::FaultMode;
use crate::op::{OpGuard, RESERVE_PAGES};
use crate::page::batch::{BATCH_PAGES, BatchFolio, BatchPage};
use crate::page::folio::{CANCELLED, FolioGuard, PROT_STALE, RECLAIM, SHARED, TRIED};
use crate::page::lru::Wanted;
use crate::page::tally::Tally;
use crate::page::{Entry, Page, PageRange, wide};
use crate::parts::Parts;
use crate::store::page::StoreMode;
use uzswap_group::counters::add;
use uzswap_group::group::FailureReason;
use uzswap_sync::strict_assert;
use uzswap_sys::{arch, thread};

/// Folios that the reclaimer compresses before it lets others run.
const GIVES_WAY_AFTER: usize = 8;

/// Evicts about as many pages as are wanted; what is freed goes into the operation's reserve.
pub(crate) fn reclaim_batch(parts: &Parts, op: &mut OpGuard<'_>, wanted: Wanted) -> usize {
    let Some(least) = shrink::make_pool_room(parts, op, wanted.least) else {
        return 0;
    };
    let wanted = Wanted { least, ..wanted };
    let started = arch::ticks();
    let wrote = op.stalls.write;
    compact::compact_if_fragmented(parts, op, wide(least));
    isolate(parts, op, wanted);
    let dropped = evict_batch(parts, op);
    shrink::shrink(parts, op);
    let counters = parts.account.counters();
    add(&counters.reclaim_batches, 1);
    let ticks = arch::ticks().wrapping_sub(started);
    add(&counters.reclaim_ticks, ticks);
    op.stalls.reclaim += ticks.saturating_sub(op.stalls.write - wrote);
    dropped
}

/// Protects, stores and drops what the operation's batch holds. Returns the pages dropped.
fn evict_batch(parts: &Parts, op: &mut OpGuard<'_>) -> usize {
    if op.batch.nr_folios == 0 {
        return 0;
    }
    // With one thread, which is here, nobody can write to the pages meanwhile.
    let stable = is_single_threaded(parts);
    if !stable {
        parts.arena.protect_batch(&parts.pages, op.batch);
    }
    store_batch(parts, op, stable);
    let dropped = drop_batch(parts, op, stable);
    sizes::publish_sizes(parts);
    dropped
}

/// Whether this thread is the only one that can write to the process's memory. The reclaimer does
/// not, and is another process; the accelerator's workers only read what a batch of ours names.
pub(super) fn is_single_threaded(parts: &Parts) -> bool {
    // Read before all threads are counted: a thread that starts in between is then in the total.
    let ours = parts.store.workers().nr_threads();
    parts.arena.mode() != FaultMode::Thread
        && parts.account.is_own_process()
        && thread::nr_threads() == Some(1 + ours)
}

/// Fills the operation's batch with the coldest folios.
fn isolate(parts: &Parts, op: &mut OpGuard<'_>, wanted: Wanted) {
    op.batch.clear();
    parts.pages.scan(wanted, |index, guard| {
        isolate_folio(parts, op, index, guard, parts.pages.range_of(index))
    });
}

/// Adds a folio, off its list and locked, to the batch: its resident readable pages in `within`.
/// Returns how many they are, `None` if the batch is full; with none the folio is left as it was.
fn isolate_folio(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    index: u32,
    guard: &FolioGuard<'_>,
    within: PageRange,
) -> Option<usize> {
    if !op.batch.has_room(guard.nr_resident().into()) {
        return None;
    }
    if guard.has(PROT_STALE) {
        return Some(0);
    }
    if guard.has(SHARED) {
        own_if_last(parts, guard, parts.pages.range_of(index));
    }
    guard.set(RECLAIM);
    if parts.arena.hazards().covers(within) {
        guard.clear(RECLAIM);
        return Some(0);
    }
    let arena = &parts.arena;
    let readable = arena.readable(within);
    let resident = parts.pages.resident(within);
    // What others still have stays: its eviction would free nothing yet.
    let takes_shared = op.batch.takes_shared;
    let resident = resident.filter(|&page| takes_shared || !parts.pages.is_shared(page));
    let nr = op.batch.add_folio(
        index,
        resident.filter(|&page| readable || arena.is_readable(page)),
    );
    if nr == 0 {
        guard.clear(RECLAIM);
    }
    Some(nr)
}

/// Compresses the batch's pages.
fn store_batch(parts: &Parts, op: &mut OpGuard<'_>, stable: bool) {
    let age = parts.pages.clock().now();
    for at in 0..op.batch.nr_folios {
        let Some(&folio) = op.batch.folios.get(at) else {
            strict_assert!(false, "a batch counts more folios than it holds");
            break;
        };
        sample::sample(parts, op, folio, stable);
        let denser = stores_denser(parts, op);
        if let Some(folio) = op.batch.folios.get_mut(at) {
            folio.denser = denser;
        }
        let folio = BatchFolio { denser, ..folio };
        let mode = StoreMode {
            age,
            stable,
            denser,
        };
        parts.store.store_folio(&parts.pages, op, folio, mode);
        if op.gives_way && at % GIVES_WAY_AFTER == GIVES_WAY_AFTER - 1 {
            thread::sched_yield();
        }
    }
}

/// Whether pages are to be stored by the operation's denser compressor, which then has the codec
/// that `--compressor auto` chose.
#[inline]
fn stores_denser(parts: &Parts, op: &mut OpGuard<'_>) -> bool {
    let Some(denser) = &mut op.denser else {
        return false;
    };
    let codec = parts.auto.denser_codec(parts.account.knobs());
    codec.is_some_and(|codec| denser.set_codec(codec))
}

/// Publishes what was stored and drops the pages. Returns how many.
fn drop_batch(parts: &Parts, op: &mut OpGuard<'_>, stable: bool) -> usize {
    let mut dropped = 0;
    for at in 0..op.batch.nr_folios {
        let Some(folio) = op.batch.folios.get(at).copied() else {
            strict_assert!(false, "a batch counts more folios than it holds");
            break;
        };
        let guard = parts.pages.folio(folio.index).lock();
        if guard.has(CANCELLED) || !parts.arena.close_stored(&guard, op.batch, &folio) {
            roll_back(parts, op, &guard, &folio);
            continue;
        }
        let stored = publish(parts, op, &guard, &folio);
        dropped += stored;
        if stored == 0 {
            end_isolation(parts, &guard, folio.index, stable);
            continue;
        }
        if let Some(folio) = op.batch.folios.get_mut(at) {
            folio.dropping = true;
        }
        // Stays locked until `drop_ranges` is done: a load before that would be dropped with the
        // old page.
        core::mem::forget(guard);
    }
    drop_ranges(parts, op);
    for folio in op.batch.folios.iter().take(op.batch.nr_folios) {
        if folio.dropping {
            // SAFETY: locked above by this thread, its guard forgotten.
            let guard = unsafe { parts.pages.folio(folio.index).held() };
            end_isolation(parts, &guard, folio.index, stable);
        }
    }
    sizes::count_dropped(parts, dropped);
    parts
        .pages
        .clock()
        .advance(wide(dropped), parts.account.charge().limit());
    parts.auto.watch_evictions(
        parts.account,
        &parts.pages,
        parts.store.pool_pages(),
        parts.backing.is_some(),
    );
    let shared = op.batch.nr_shared;
    if shared > 0 {
        parts.account.charge().share().unshare(shared);
    }
    op.reserve.put(wide(dropped) - shared);
    dropped
}

/// Publishes the entries of a folio's stored pages and lists the pages for dropping. Returns how
/// many.
fn publish(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    guard: &FolioGuard<'_>,
    folio: &BatchFolio,
) -> usize {
    let transition = parts.transition();
    let batch = &mut *op.batch;
    let mut stored = Tally::default();
    for at in folio.first..folio.first + folio.nr {
        let Some(&BatchPage { page, entry }) = batch.pages.get(at) else {
            strict_assert!(false, "a folio's pages lie outside its batch");
            break;
        };
        if entry == Entry::None {
            // The pool had no room for it: it stays resident.
            continue;
        }
        transition.store(page, entry);
        batch.nr_shared += u64::from(parts.pages.is_shared(page));
        stored.add(entry);
        batch.add_to_drop(page);
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a folio has 512 pages at most"
    )]
    guard.sub_resident(stored.pages as u16);
    if guard.has(TRIED) {
        guard.clear(TRIED);
    }
    stored.count(parts.account.counters());
    if folio.denser {
        add(
            &parts.account.counters().zswpout_denser,
            wide(stored.compressed()),
        );
    }
    count_folio(parts, stored.pages);
    stored.pages
}

/// Counts a folio's store by its order.
fn count_folio(parts: &Parts, stored: usize) {
    let process = parts.account.process();
    add(&process.counters.zswpout, wide(stored));
    let Some(order) = process.orders.get(parts.pages.order() as usize) else {
        return;
    };
    if stored == parts.pages.folio_pages() {
        add(&order.zswpout, 1);
    } else {
        let [pages, ..] = &process.orders;
        add(&pages.zswpout, wide(stored));
        add(&order.zswpout_fallback, 1);
    }
}

/// A cancelled folio: what was stored of it goes, its pages are writable again, and if it
/// is in use it joins the active list.
fn roll_back(parts: &Parts, op: &mut OpGuard<'_>, guard: &FolioGuard<'_>, folio: &BatchFolio) {
    for place in op.batch.pages.iter_mut().skip(folio.first).take(folio.nr) {
        parts.store.forget_unpublished(place.entry);
        place.entry = Entry::None;
    }
    let in_use = !guard.has(PROT_STALE);
    unprotect_own(parts, guard, parts.pages.range_of(folio.index));
    add(&parts.account.counters().reclaim_cancelled, 1);
    if guard.nr_resident() > 0 && in_use {
        parts.pages.activate(guard, folio.index);
    } else if guard.nr_resident() > 0 {
        parts.pages.lru_add(guard, folio.index);
    }
    guard.clear(RECLAIM | CANCELLED);
}

/// Ends the isolation of a folio. What is still resident of it, or was brought in meanwhile, is
/// writable again.
fn end_isolation(parts: &Parts, guard: &FolioGuard<'_>, index: u32, stable: bool) {
    if guard.has(SHARED) {
        clear_empty(parts, guard, parts.pages.range_of(index));
    }
    if guard.nr_resident() > 0 {
        if !stable {
            unprotect_own(parts, guard, parts.pages.range_of(index));
        }
        // Where the next scan finds it late.
        parts.pages.lru_add(guard, index);
    }
    guard.clear(RECLAIM);
}

/// Drops the memory of what was published.
fn drop_ranges(parts: &Parts, op: &OpGuard<'_>) {
    let ranges = op.batch.to_drop();
    if ranges.is_empty() {
        return;
    }
    // SAFETY: arena pages whose contents are in the pool and published; their folios are held.
    let done = unsafe { parts.arena.drop_ranges(ranges) };
    if let Err(errno) = done {
        // The entries say that the pages are gone. A page that stayed would be read stale.
        parts
            .account
            .die(FailureReason::Internal, errno.0.unsigned_abs(), 0);
    }
}

/// Evicts what `range` holds, except folios that are pinned or already under reclaim.
pub(crate) fn pageout(parts: &Parts, op: &mut OpGuard<'_>, range: PageRange) {
    let mut at = range.start;
    while let Some(room) = shrink::make_pool_room(parts, op, BATCH_PAGES) {
        op.batch.clear();
        while op.batch.has_room(0)
            && op.batch.nr_pages < room
            && let Some(page) = parts.pages.next_ready(at).filter(|&page| page < range.end)
        {
            let index = parts.pages.index_of(Page::from_index(page));
            let whole = parts.pages.range_of(index);
            let guard = parts.pages.folio(index).lock();
            if !guard.is_pinned() && !guard.has(RECLAIM) {
                match isolate_folio(parts, op, index, &guard, whole.and(range)) {
                    None => break,
                    Some(0) => {}
                    Some(_) => parts.pages.lru_remove(&guard, index),
                }
            }
            at = whole.end;
        }
        if op.batch.nr_folios == 0 {
            break;
        }
        evict_batch(parts, op);
        op.reserve.shrink_to(RESERVE_PAGES);
    }
}
