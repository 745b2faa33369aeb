//! *What*: pins: memory that is brought in and kept in while a system call uses it.
//!
//! *Invariants*: a pinned folio is not isolated, and an isolation under way is cancelled, so that from
//! the return of `pin` until `unpin` its pages are present and writable as the program mapped them.
//! Pins do not survive fork: the threads that hold them stay in the parent. `hold` does.
//! *Locking*: slot → folio. *Context*: signal, worker.

use super::fault::Fault;
use super::load::LoadError;
use super::{Engine, Parts};
use crate::arena::{PAGE_SIZE, Page, PageRange, narrow, wide};
use crate::folio::{FolioGuard, HELD, RECLAIM, SHUT};
use crate::hazard::Hazard;
use crate::masked::Masked;
use crate::slot::SlotGuard;
use crate::table::Entry;
use uzswap_group::counters::add;

/// Pinned memory; give it back to [`Engine::unpin`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Pin {
    range: PageRange,
}

impl Pin {
    /// First byte of the first pinned page.
    #[must_use]
    pub const fn addr(&self) -> usize {
        self.range.addr()
    }

    /// Bytes, whole pages.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.range.bytes()
    }

    /// Whether nothing is pinned: the range was outside the arena.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// Only bring in.
    No,
    Pin,
    Hold,
}

impl Engine {
    /// Brings `[addr, addr + len)` in and keeps it in until [`Engine::unpin`]. Parts that are not
    /// managed are passed over.
    ///
    /// # Errors
    /// As [`Engine::fault`] of the page that failed; nothing is pinned then.
    pub fn pin(&self, masked: &Masked, addr: usize, len: usize) -> Result<Pin, Fault> {
        let range = PageRange::covering(addr, len);
        let Some(parts) = self.parts() else {
            return Ok(Pin {
                range: PageRange { start: 0, end: 0 },
            });
        };
        parts.keep_in(&mut parts.slot(masked), range, Keep::Pin)?;
        Ok(Pin { range })
    }

    /// Whether every page of `[addr, addr + len)` is in the arena just now. Nothing keeps it there:
    /// for callers that notice when it is not. Needs no lock: an entry says resident only while the
    /// page is there.
    #[must_use]
    pub fn is_resident(&self, addr: usize, len: usize) -> bool {
        let range = PageRange::covering(addr, len);
        self.parts()
            .is_some_and(|parts| is_whole(range, addr, len) && parts.is_in(range))
    }

    /// Announces that a system call of thread `nr` uses `[addr, addr + len)`, if all of it is in the
    /// arena and nobody is about to evict it. Until that is withdrawn its pages are present and
    /// writable as the program mapped them, unless the program itself does away with them.
    #[inline]
    pub fn announce(&self, nr: usize, addr: usize, len: usize) -> Option<Hazard<'static>> {
        let parts = self.parts()?;
        let range = PageRange::covering(addr, len);
        if !is_whole(range, addr, len) {
            return None;
        }
        let hazard = parts.hazards.announce(nr, range)?;
        if parts.is_kept(range) {
            return Some(hazard);
        }
        hazard.withdraw();
        None
    }

    /// Withdraws what thread `nr` has announced.
    pub fn withdraw(&self, nr: usize) {
        self.hazards.withdraw(nr);
    }

    /// Takes a pin off.
    pub fn unpin(&self, masked: &Masked, pin: Pin) {
        if let Some(parts) = self.parts() {
            let _slot = parts.slot(masked);
            parts.unpin_range(pin.range);
        }
    }

    /// Brings `[addr, addr + len)` in and keeps it in for good, in fork children too: a stack that
    /// signals may be delivered on.
    ///
    /// # Errors
    /// As [`Engine::pin`].
    pub fn hold(&self, masked: &Masked, addr: usize, len: usize) -> Result<(), Fault> {
        self.keep(masked, addr, len, Keep::Hold)
    }

    /// Brings `[addr, addr + len)` in, as far as the limit allows to keep it there at once.
    ///
    /// # Errors
    /// As [`Engine::pin`].
    pub fn populate(&self, masked: &Masked, addr: usize, len: usize) -> Result<(), Fault> {
        self.keep(masked, addr, len, Keep::No)
    }

    fn keep(&self, masked: &Masked, addr: usize, len: usize, keep: Keep) -> Result<(), Fault> {
        let Some(parts) = self.parts() else {
            return Ok(());
        };
        parts.keep_in(
            &mut parts.slot(masked),
            PageRange::covering(addr, len),
            keep,
        )
    }

    /// Bytes that one system call may pin at once; larger I/O is done in pieces.
    #[must_use]
    pub fn pin_budget(&self) -> usize {
        let limit = self.parts().map_or(0, Parts::limit_bytes);
        narrow(limit / 16).clamp(64 << 10, 8 << 20) & !(PAGE_SIZE - 1)
    }
}

/// Whether `range` covers all of `[addr, addr + len)`: nothing of it lies outside the arena.
const fn is_whole(range: PageRange, addr: usize, len: usize) -> bool {
    range.len() == (addr % PAGE_SIZE).saturating_add(len).div_ceil(PAGE_SIZE)
}

impl Parts {
    fn is_in(&self, range: PageRange) -> bool {
        range
            .pages()
            .all(|page| self.table.get(page) == Entry::Resident)
    }

    /// Whether all of `range`, announced by this thread, is in and stays in.
    fn is_kept(&self, range: PageRange) -> bool {
        let last = range.end.saturating_sub(1);
        let folio = |index| self.folios.index_of(Page::from_index(index));
        // The folios first: whoever sees `RECLAIM` cleared sees the entries that were written under it.
        (folio(range.start)..=folio(last)).all(|index| !self.folios.at(index).has(RECLAIM | SHUT))
            && self.is_in(range)
    }

    /// Takes one pin off every folio of `range`. The caller holds a slot.
    fn unpin_range(&self, range: PageRange) {
        let mut at = range.start;
        while at < range.end {
            let page = Page::from_index(at);
            let index = self.folios.index_of(page);
            if self.table.is_ready(page) {
                self.folios.at(index).lock().unpin();
            }
            at = self.folios.range(index).end;
        }
    }

    /// Brings in and keeps, folio by folio; on failure lets go of what it kept.
    fn keep_in(&self, slot: &mut SlotGuard<'_>, range: PageRange, keep: Keep) -> Result<(), Fault> {
        let mut at = range.start;
        while at < range.end {
            let index = self.folios.index_of(Page::from_index(at));
            let folio = self.folios.range(index);
            if let Err(fault) = self.keep_folio(slot, index, folio.and(range), keep) {
                if keep == Keep::Pin {
                    self.unpin_range(PageRange {
                        start: range.start,
                        end: at,
                    });
                }
                return Err(fault);
            }
            at = folio.end;
        }
        Ok(())
    }

    /// Brings `part` of a folio in and keeps the folio.
    fn keep_folio(
        &self,
        slot: &mut SlotGuard<'_>,
        index: u32,
        part: PageRange,
        keep: Keep,
    ) -> Result<(), Fault> {
        let first = Page::from_index(part.start);
        if keep == Keep::No && self.mapped(first).is_none() && part.len() == 1 {
            return Ok(());
        }
        if !self.ready_chunk(slot, first) {
            return Err(self.over_limit(1));
        }
        let guard = self.folios.at(index).lock();
        // Pinned first: reclaim, which bringing in may need, passes it over.
        match keep {
            Keep::Pin => guard.pin(),
            Keep::Hold => guard.set(HELD),
            Keep::No => {}
        }
        // A reclaimer that has isolated the folio may protect it after anything that is done about it
        // now, and the kernel's write would fail: it is waited for until it has rolled back.
        let mut guard = if guard.cancel_reclaim() {
            drop(guard);
            self.folios.at(index).wait_reclaim();
            None
        } else {
            Some(guard)
        };
        let done = self.fill(slot, index, part, &mut guard);
        if done.is_err() && keep == Keep::Pin {
            drop(guard);
            self.folios.at(index).lock().unpin();
        }
        done
    }

    /// Brings in every page of `part` that is mapped. `guard` is let go of while memory is made.
    fn fill<'a>(
        &'a self,
        slot: &mut SlotGuard<'_>,
        index: u32,
        part: PageRange,
        guard: &mut Option<FolioGuard<'a>>,
    ) -> Result<(), Fault> {
        loop {
            // A block comes in whole or not at all.
            let part = self.whole_blocks(part);
            let missing = self.missing(part);
            if missing == 0 && !self.folios.at(index).has(SHUT) {
                return Ok(());
            }
            drop(guard.take());
            if missing == 0 {
                self.open_shut(slot, index);
                return Ok(());
            }
            if !self.reserve_pages(slot, wide(missing)) {
                return Err(self.over_limit(wide(missing)));
            }
            let mut credit = wide(missing);
            let held = guard.insert(self.folios.at(index).lock());
            let entry = self.table.get(Page::from_index(part.start));
            let result = self
                .fill_once(slot, held, part, &mut credit)
                .inspect(|()| self.used(held, index, entry));
            self.unreserve_pages(slot, credit);
            match result {
                Ok(()) => {}
                Err(error) => return Err(self.lost(error)),
            }
        }
    }

    /// Brings in what was evicted of `part`, then what of it is mapped and was never touched.
    fn fill_once(
        &self,
        slot: &mut SlotGuard<'_>,
        guard: &FolioGuard<'_>,
        part: PageRange,
        credit: &mut u64,
    ) -> Result<(), LoadError> {
        let mut brought = self.bring_in(slot, guard, part, false, credit)?;
        self.count_loaded(brought);
        let mut at = part.start;
        while at < part.end {
            let Some(region) = self.mapped(Page::from_index(at)) else {
                at += 1;
                continue;
            };
            let range = region.and(part);
            let zeroed = self.bring_in(slot, guard, range, true, credit)?;
            brought.zeroed += zeroed.zeroed;
            at = range.end;
        }
        add(&self.counters().first_touch_pages, wide(brought.zeroed));
        add(
            &self.counters().guarded_pages,
            wide(brought.loaded + brought.zeroed),
        );
        Ok(())
    }

    /// Pages of `part` that are mapped and not in.
    fn missing(&self, part: PageRange) -> usize {
        let mut nr = 0;
        let mut mapped = PageRange { start: 0, end: 0 };
        for page in part.pages() {
            nr += usize::from(match self.table.get(page) {
                Entry::Resident => false,
                entry if entry.is_evicted() => true,
                _ => {
                    let at = page.index();
                    if !(mapped.start..mapped.end).contains(&at) {
                        mapped = self
                            .mapped(page)
                            .unwrap_or(PageRange { start: at, end: at });
                    }
                    (mapped.start..mapped.end).contains(&at)
                }
            });
        }
        nr
    }
}
