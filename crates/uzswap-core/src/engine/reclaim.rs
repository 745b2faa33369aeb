//! *What*: reclaim: makes room by evicting the coldest folios, in batches: isolate → protect →
//! store → drop.
//!
//! A batch isolates folios from the LRU's cold end, write-protects them, compresses their pages from
//! where they are, and then, folio by folio under its lock, publishes the entries and drops all pages
//! of the batch with one vectored call. A write to a protected page faults and cancels its folio.
//! While the process has one thread, which is here, nobody can write and nothing is protected.
//!
//! *Invariants*: a page is dropped only if its folio was not cancelled between isolation and the
//! taking of its lock, so what was compressed is what is dropped. Freed pages stay charged, in the
//! slot's reserve, until the caller has taken its own: nobody can snatch them.
//! *Locking*: slot, then folios. Publishing holds many folios at once: all isolated by this thread.
//! *Context*: signal, worker.

use super::store::Stored;
use super::{FaultMode, Parts};
use crate::arena::{PAGE_SHIFT, PAGE_SIZE, Page, PageRange, narrow, wide};
use crate::folio::{CANCELLED, FolioGuard, RECLAIM, SHUT, TRIED};
use crate::lru::Lru;
use crate::region::Flags;
use crate::slot::{
    BATCH_FOLIOS, BATCH_PAGES, BatchFolio, BatchPage, RESERVE_PAGES, SLACK_PAGES, SlotGuard,
};
use crate::table::{Entry, PageTable};
use uzswap_group::counters::add;
use uzswap_group::group::FailureReason;
use uzswap_pool::{Loc, Relocate};
use uzswap_sync::primitive::Ordering::{Relaxed, SeqCst};
use uzswap_sys::mem::{IoVec, MADV_DONTNEED, madvise_vectored_self};
use uzswap_sys::{arch, thread};

/// Pages that a batch aims for: enough to spread one TLB flush and one system call over.
const AIM_PAGES: usize = 64;
/// Batches in a row that free nothing before reclaim gives up (the kernel's MAX_RECLAIM_RETRIES).
pub(super) const MAX_RECLAIM_RETRIES: u32 = 16;
/// Pool pages that compaction could free before it is tried, as a fraction of the pool.
const COMPACT_FRACTION: u64 = 64;

impl Parts {
    /// Takes `nr` charged pages for the caller, reclaiming as it must. `false`: they cannot be had.
    #[inline]
    pub(crate) fn reserve_pages(&self, slot: &mut SlotGuard<'_>, nr: u64) -> bool {
        if slot.reserve.pages() >= RESERVE_PAGES + nr {
            return slot.reserve.take(nr);
        }
        if self.charge.try_charge(nr) {
            if self.background && self.charge.room() < self.low_water() {
                self.kick_background();
            }
            return true;
        }
        self.follow_compressor(slot);
        self.make_room(slot, nr)
    }

    /// Gives pages back that `reserve_pages` took and that were not used.
    #[inline]
    pub(crate) fn unreserve_pages(&self, slot: &mut SlotGuard<'_>, nr: u64) {
        slot.reserve.put(nr);
        if slot.reserve.pages() > RESERVE_PAGES + 2 * SLACK_PAGES {
            slot.reserve.shrink_to(RESERVE_PAGES + SLACK_PAGES);
        }
    }

    /// Reclaims until the slot has `nr` pages above its reserve, and takes them.
    #[cold]
    pub(super) fn make_room(&self, slot: &mut SlotGuard<'_>, nr: u64) -> bool {
        add(&self.counters().pool_limit_hit, 1);
        slot.swap_in.in_vain = false;
        let mut failures = 0;
        loop {
            // The limit was lowered: nothing that is freed is ours until we are below it. (A process that
            // may go over its limit comes down when it is asked, not by faults that each evict all they can.)
            if !self.over_limit_allow && self.charge.over() > 0 {
                slot.reserve.shrink_to(RESERVE_PAGES);
            }
            // Others may have freed meanwhile.
            let missing = (RESERVE_PAGES + nr).saturating_sub(slot.reserve.pages());
            if missing == 0 || slot.reserve.grow(missing) {
                return slot.reserve.take(nr);
            }
            if self.free_some(slot, AIM_PAGES.max(narrow(nr)), failures > 0) {
                failures = 0;
                continue;
            }
            failures += 1;
            if failures < MAX_RECLAIM_RETRIES {
                self.try_harder(slot);
                continue;
            }
            if self.over_limit_allow {
                self.charge.charge_unchecked(nr);
                return true;
            }
            // A limit that is being lowered ends nobody.
            let ceiling = &self.group.config.ram_ceiling;
            let ceiling = || ceiling.load(SeqCst) >> PAGE_SHIFT;
            if self.charge.try_charge_below(nr, ceiling) {
                return true;
            }
            // The reserve is there for reclaim; the last of it goes to whoever would fail else.
            return slot.reserve.pages() >= nr && slot.reserve.take(nr);
        }
    }

    /// Evicts a batch, and writes some back if that frees nothing. Whether anything was freed; that nothing
    /// was is counted.
    pub(super) fn free_some(&self, slot: &mut SlotGuard<'_>, aim: usize, again: bool) -> bool {
        let before = slot.reserve.pages();
        let dropped = self.reclaim_batch(slot, aim);
        // A batch that freed nothing though it was no small one held data that do not compress; a
        // small one met other threads', and is worth another try before anything is written.
        let to_swap = again || dropped >= AIM_PAGES / 4;
        let freed = slot.reserve.pages() > before || (to_swap && self.write_back(slot).is_ok());
        if !freed {
            add(&self.counters().reject_reclaim_fail, 1);
        }
        freed
    }

    /// Nothing was freed: before it is tried again.
    pub(super) fn try_harder(&self, slot: &mut SlotGuard<'_>) {
        self.make_pool_smaller(slot, u64::MAX);
        thread::sched_yield();
    }

    /// Evicts up to about `aim` pages; what is freed goes into the slot's reserve.
    pub(crate) fn reclaim_batch(&self, slot: &mut SlotGuard<'_>, aim: usize) -> usize {
        let started = arch::rdtsc();
        self.compact_if_worth(slot, wide(aim));
        self.isolate(slot, aim);
        let dropped = self.evict_batch(slot);
        self.shrink(slot);
        let counters = self.counters();
        add(&counters.reclaim_batches, 1);
        add(&counters.reclaim_ticks, arch::rdtsc().wrapping_sub(started));
        dropped
    }

    /// Protects, stores and drops what the slot's batch holds. Returns the pages dropped.
    fn evict_batch(&self, slot: &mut SlotGuard<'_>) -> usize {
        if slot.batch.nr_folios == 0 {
            return 0;
        }
        let alone = self.is_alone();
        if !alone {
            self.protect_batch(slot.batch);
        }
        self.store_batch(slot, alone);
        let dropped = self.drop_batch(slot, alone);
        self.publish_sizes();
        dropped
    }

    /// Compacts the pool by about `aim` pages (at least 64) once it could give back a good part of itself.
    pub(crate) fn compact_if_worth(&self, slot: &mut SlotGuard<'_>, aim: u64) {
        if self.pool.fragmentation() * COMPACT_FRACTION > self.pool.total_pages() + aim {
            self.make_pool_smaller(slot, aim.max(wide(AIM_PAGES)));
        }
    }

    /// Compacts the pool by about `nr` pages; they go into the slot's reserve.
    pub(super) fn make_pool_smaller(&self, slot: &mut SlotGuard<'_>, nr: u64) {
        let freed = self
            .pool
            .compact(self.charge, nr, &mut Mover { parts: self });
        add(&self.counters().compacted_pages, freed);
        self.pool.trim_into(&mut slot.reserve);
    }

    /// Whether this thread is the only one that can reach the process's memory. The densifier does not,
    /// and engines only read what a batch of ours names.
    pub(super) fn is_alone(&self) -> bool {
        // Before the threads are counted: then they are among them.
        let ours = self.densifier.nr_threads() + self.engines.nr_threads();
        self.mode != FaultMode::Thread
            && !self.background
            && thread::getpid() == self.pid.load(Relaxed)
            && thread::nr_threads() == Some(1 + ours)
    }

    /// Fills the slot's batch with the coldest folios.
    fn isolate(&self, slot: &mut SlotGuard<'_>, aim: usize) {
        slot.batch.nr_folios = 0;
        slot.batch.nr_pages = 0;
        let lru: &Lru = &self.lru;
        lru.scan(&self.folios, aim, |index, guard| {
            self.isolate_folio(slot, index, guard, self.folios.range(index))
        });
    }

    /// Adds a folio, off its list and locked, to the batch: its resident readable pages in `within`.
    /// Returns how many they are, `None` if the batch is full; with none the folio is left as it was.
    fn isolate_folio(
        &self,
        slot: &mut SlotGuard<'_>,
        index: u32,
        guard: &FolioGuard<'_>,
        within: PageRange,
    ) -> Option<usize> {
        let batch = &mut *slot.batch;
        let room = BATCH_PAGES - batch.nr_pages;
        if batch.nr_folios == BATCH_FOLIOS || usize::from(guard.nr_resident()) > room {
            return None;
        }
        if guard.has(SHUT) {
            return Some(0);
        }
        guard.set(RECLAIM);
        if self.hazards.covers(within) {
            guard.clear(RECLAIM);
            return Some(0);
        }
        let first = batch.nr_pages;
        let readable = self.readable(within);
        for page in within.pages() {
            if self.table.get(page) != Entry::Resident {
                continue;
            }
            if !readable && !self.is_readable(page) {
                continue;
            }
            if let Some(place) = batch.pages.get_mut(batch.nr_pages) {
                *place = BatchPage {
                    page,
                    entry: Entry::None,
                };
                batch.nr_pages += 1;
            }
        }
        let nr = batch.nr_pages - first;
        if nr == 0 {
            guard.clear(RECLAIM);
            return Some(0);
        }
        if let Some(place) = batch.folios.get_mut(batch.nr_folios) {
            *place = BatchFolio {
                index,
                first,
                nr,
                denser: false,
                dropping: false,
            };
            batch.nr_folios += 1;
        }
        Some(nr)
    }

    /// Whether all of `range` is one readable region.
    fn readable(&self, range: PageRange) -> bool {
        self.regions.lookup(range.addr()).is_some_and(|region| {
            region.flags.contains(Flags::READ) && region.end >= range.addr() + range.bytes()
        })
    }

    pub(super) fn is_readable(&self, page: Page) -> bool {
        self.regions
            .lookup(page.addr())
            .is_some_and(|region| region.flags.contains(Flags::READ))
    }

    /// Compresses the batch's pages.
    fn store_batch(&self, slot: &mut SlotGuard<'_>, alone: bool) {
        let age = self.clock.now();
        for at in 0..slot.batch.nr_folios {
            let Some(mut folio) = slot.batch.folios.get(at).copied() else {
                break;
            };
            folio.denser = self.is_for_denser(slot);
            if let Some(place) = slot.batch.folios.get_mut(at) {
                *place = folio;
            }
            self.store_folio(slot, folio, age, alone);
        }
    }

    /// Publishes what was stored and drops the pages. Returns how many.
    fn drop_batch(&self, slot: &mut SlotGuard<'_>, alone: bool) -> usize {
        let mut nr_ranges = 0;
        let mut dropped = 0;
        for at in 0..slot.batch.nr_folios {
            let Some(mut batch) = slot.batch.folios.get(at).copied() else {
                break;
            };
            let guard = self.folios.at(batch.index).lock();
            if guard.has(CANCELLED) || !self.close_stored(&guard, slot.batch, &batch) {
                self.roll_back(slot, &guard, &batch);
                continue;
            }
            let stored = self.publish(slot, &guard, &batch, &mut nr_ranges);
            dropped += stored;
            if stored == 0 {
                self.give_back(&guard, batch.index, alone);
                continue;
            }
            batch.dropping = true;
            if let Some(place) = slot.batch.folios.get_mut(at) {
                *place = batch;
            }
            // Kept locked until the pages are gone: see below.
            core::mem::forget(guard);
        }
        self.drop_ranges(slot, nr_ranges);
        for folio in slot.batch.folios.iter().take(slot.batch.nr_folios) {
            if folio.dropping {
                // SAFETY: locked above by this thread, its guard forgotten.
                let guard = unsafe { self.folios.at(folio.index).held() };
                self.give_back(&guard, folio.index, alone);
            }
        }
        self.count_dropped(dropped);
        self.clock.advance(wide(dropped), self.charge.limit());
        self.densifier.wake();
        self.watch_evictions();
        slot.reserve.put(wide(dropped));
        dropped
    }

    /// Writes a folio's new entries and lists its pages for dropping. Returns how many.
    fn publish(
        &self,
        slot: &mut SlotGuard<'_>,
        guard: &FolioGuard<'_>,
        folio: &BatchFolio,
        nr_ranges: &mut usize,
    ) -> usize {
        let batch = &mut *slot.batch;
        let mut stored = Stored::default();
        let mut last_end = usize::MAX;
        for at in folio.first..folio.first + folio.nr {
            let Some(&BatchPage { page, entry }) = batch.pages.get(at) else {
                break;
            };
            if entry == Entry::None {
                // No room was left for it: it stays.
                continue;
            }
            self.table.set(page, entry);
            stored.add(entry);
            let extended = last_end == page.addr();
            last_end = page.addr() + PAGE_SIZE;
            if extended && let Some(range) = batch.ranges.get_mut(nr_ranges.wrapping_sub(1)) {
                range.len += PAGE_SIZE;
            } else if let Some(range) = batch.ranges.get_mut(*nr_ranges) {
                *range = IoVec {
                    base: page.addr(),
                    len: PAGE_SIZE,
                };
                *nr_ranges += 1;
            }
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a folio has 512 pages at most"
        )]
        guard.sub_resident(stored.pages as u16);
        if guard.has(TRIED) {
            guard.clear(TRIED);
        }
        self.count_stored(&stored);
        if folio.denser {
            add(&self.counters().zswpout_denser, wide(stored.compressed()));
        }
        self.count_folio(stored.pages);
        stored.pages
    }

    /// Counts a folio's store by its order.
    fn count_folio(&self, stored: usize) {
        let process = self.process();
        add(&process.counters.zswpout, wide(stored));
        let Some(order) = process.orders.get(self.folios.order() as usize) else {
            return;
        };
        if stored == self.folios.nr_pages() {
            add(&order.zswpout, 1);
        } else {
            let [pages, ..] = &process.orders;
            add(&pages.zswpout, wide(stored));
            add(&order.zswpout_fallback, 1);
        }
    }

    /// A cancelled folio: what was stored of it goes, its pages are writable again, and if it
    /// is in use it joins the active list.
    fn roll_back(&self, slot: &mut SlotGuard<'_>, guard: &FolioGuard<'_>, folio: &BatchFolio) {
        for at in folio.first..folio.first + folio.nr {
            if let Some(place) = slot.batch.pages.get_mut(at) {
                self.forget_unpublished(place.entry);
                place.entry = Entry::None;
            }
        }
        let in_use = !guard.has(SHUT);
        self.unprotect(guard, self.folios.range(folio.index));
        add(&self.counters().reclaim_cancelled, 1);
        if guard.nr_resident() > 0 && in_use {
            self.lru.activate(&self.folios, guard, folio.index);
        } else if guard.nr_resident() > 0 {
            self.put_back(guard, folio.index);
        }
        guard.clear(RECLAIM | CANCELLED);
    }

    /// Ends the isolation of a folio. What is still resident of it, or was brought in meanwhile, is writable again.
    fn give_back(&self, guard: &FolioGuard<'_>, index: u32, alone: bool) {
        if guard.nr_resident() > 0 {
            if !alone {
                self.unprotect(guard, self.folios.range(index));
            }
            self.put_back(guard, index);
        }
        guard.clear(RECLAIM);
    }

    /// Puts a folio that was isolated back where the next scan finds it late.
    fn put_back(&self, guard: &FolioGuard<'_>, index: u32) {
        self.lru.add(&self.folios, guard, index);
    }

    /// Drops the first `nr` ranges of the batch.
    fn drop_ranges(&self, slot: &mut SlotGuard<'_>, nr: usize) {
        let Some(ranges) = slot.batch.ranges.get(..nr) else {
            return;
        };
        if ranges.is_empty() {
            return;
        }
        // SAFETY: arena pages whose contents are in the pool and published; their folios are held.
        let done = unsafe { madvise_vectored_self(self.how_to_drop, ranges, MADV_DONTNEED) };
        if let Err(errno) = done {
            // The entries say that the pages are gone. A page that stayed would be read stale.
            self.die(FailureReason::Internal, errno.0.unsigned_abs(), 0);
        }
    }

    /// Ends the process: `uzswap run` tells why.
    pub(crate) fn die(&self, reason: FailureReason, errno: u32, needed: u64) -> ! {
        let pid = thread::getpid().unsigned_abs();
        self.group
            .failure
            .record(reason, pid, errno, 0, needed, self.limit_bytes());
        thread::exit_group(125)
    }

    /// Evicts what `range` holds, as far as it can be had.
    pub(crate) fn pageout(&self, slot: &mut SlotGuard<'_>, range: PageRange) {
        self.follow_compressor(slot);
        let mut at = range.start;
        loop {
            slot.batch.nr_folios = 0;
            slot.batch.nr_pages = 0;
            while slot.batch.nr_folios < BATCH_FOLIOS
                && let Some(page) = self.table.next_ready(at).filter(|&page| page < range.end)
            {
                let index = self.folios.index_of(Page::from_index(page));
                let whole = self.folios.range(index);
                let guard = self.folios.at(index).lock();
                if !guard.is_pinned() && !guard.has(RECLAIM) {
                    match self.isolate_folio(slot, index, &guard, whole.and(range)) {
                        None => break,
                        Some(0) => {}
                        Some(_) => self.lru.remove(&self.folios, &guard, index),
                    }
                }
                at = whole.end;
            }
            if slot.batch.nr_folios == 0 {
                break;
            }
            self.evict_batch(slot);
            slot.reserve.shrink_to(RESERVE_PAGES);
        }
    }
}

impl crate::slot::Batch {
    /// The `nr` pages of the batch from `first` on, all before `end`, if they are one whole block.
    pub(super) fn block_at(&self, first: usize, end: usize, nr: usize) -> Option<PageRange> {
        let last = first + nr - 1;
        if last >= end {
            return None;
        }
        let start = self.pages.get(first)?.page.index();
        let last = self.pages.get(last)?.page.index();
        // They rise.
        (start.is_multiple_of(nr) && last == start + nr - 1).then_some(PageRange {
            start,
            end: last + 1,
        })
    }

    /// How many places from `at` on, all before `end`, hold pages of the same `block` pages.
    pub(super) fn nr_within_block(&self, at: usize, end: usize, block: usize) -> usize {
        if block == 1 {
            return end - at;
        }
        let places = self.pages.get(at..end).unwrap_or_default();
        let of = |place: &BatchPage| place.page.index() / block;
        let first = places.first().map(of);
        places
            .iter()
            .take_while(|&place| Some(of(place)) == first)
            .count()
            .max(1)
    }

    /// Whether the page at place `at` has its entry.
    pub(super) fn is_stored(&self, at: usize) -> bool {
        self.pages
            .get(at)
            .is_some_and(|place| place.entry != Entry::None)
    }

    /// From the first to the last page of folio `at` of the batch.
    pub(super) fn pages_of(&self, at: usize) -> Option<PageRange> {
        if at >= self.nr_folios {
            return None;
        }
        let folio = self.folios.get(at)?;
        let first = self.pages.get(folio.first)?.page.index();
        let last = self.pages.get(folio.first + folio.nr - 1)?.page.index();
        Some(PageRange {
            start: first,
            end: last + 1,
        })
    }
}

/// The page table's side of pool compaction.
struct Mover<'a> {
    parts: &'a Parts,
}

impl<'a> Relocate for Mover<'a> {
    type Held = (FolioGuard<'a>, Page);

    fn try_hold(&mut self, owner: u32, old: Loc) -> Option<Self::Held> {
        let page = Page::from_index(owner as usize);
        let guard = self.parts.folios.of(page).try_lock()?;
        match self.parts.table.get(page) {
            Entry::Stored { loc, .. } if loc == old => Some((guard, page)),
            _ => None,
        }
    }

    fn publish(&mut self, (_guard, page): Self::Held, new: Loc) {
        let table: &PageTable = &self.parts.table;
        let mut entry = table.get(page);
        if let Entry::Stored { loc, .. } = &mut entry {
            *loc = new;
            table.set(page, entry);
        }
    }
}
