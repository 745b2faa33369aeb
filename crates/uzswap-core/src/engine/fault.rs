//! *What*: fault: one page fault served, from the address to the page in place.
//!
//! Memory is taken before a folio is locked, so that reclaim never waits for a folio that its own
//! fault holds; what the entry said before the lock is a hint, looked at again under it.
//!
//! *Invariants*: returns with every charged page either resident or given back.
//! *Locking*: slot → folio. *Context*: signal handler or handler thread.

use super::load::{Brought, LoadError};
use super::{Engine, Parts};
use crate::arena::{PAGE_SIZE, Page, PageRange, wide};
use crate::folio::{ACTIVE, FolioGuard, INACTIVE, RECLAIM, REFERENCED, SHUT};
use crate::masked::Masked;
use crate::region::Flags;
use crate::slot::SlotGuard;
use crate::table::Entry;
use uzswap_group::counters::add;
use uzswap_group::group::FailureReason;
use uzswap_pool::CHAIN_MAX;
use uzswap_sys::arch;

/// Faults on one resident page in a row that are put down to races; one more is a broken invariant.
const MOST_SPURIOUS: u32 = 10_000;

/// What became of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The access can be repeated.
    Resolved,
    /// Nothing is mapped there: the program's own mistake, SIGSEGV to it.
    NotMapped,
    /// A mapping of the program's own is there: what happened is for the program.
    Foreign,
    /// The limit leaves no room for it, compressed or not.
    OverLimit {
        /// Bytes that would have been enough for now.
        needed_bytes: u64,
    },
    /// What was stored of the page cannot be read or decoded: SIGBUS to the program, as the kernel does.
    Corrupt,
}

impl Engine {
    /// Serves a fault at `addr`.
    pub fn fault(&self, masked: &Masked, addr: usize) -> Fault {
        let Some((parts, page)) = self.parts().zip(Page::containing(addr)) else {
            return Fault::NotMapped;
        };
        let started = arch::rdtsc();
        // Each of them is a miss, and the slot can be had meanwhile.
        parts.table.prefetch(page);
        parts.folios.prefetch(parts.folios.index_of(page));
        let mut slot = parts.slot(masked);
        let out = parts.serve(&mut slot, page);
        drop(slot);
        let ticks = arch::rdtsc().wrapping_sub(started);
        let process = parts.process();
        process.fault_ticks.record(ticks);
        add(&process.counters.faults, 1);
        add(&process.counters.fault_ticks, ticks);
        out
    }
}

impl Parts {
    fn serve(&self, slot: &mut SlotGuard<'_>, page: Page) -> Fault {
        let mut alone = false;
        loop {
            let window = self.window(slot, page);
            // The page with what cannot come in without it.
            let one = self.block_of(page);
            let (range, zero_fill) = match window {
                Window::Resident => return self.resident_fault(slot, page),
                Window::NotMapped => return self.unmanaged(page),
                Window::Untouched(_) if alone => (PageRange::one(page), true),
                Window::Untouched(range) => (range, true),
                Window::Evicted { .. } if alone => (one, false),
                Window::Evicted { range, .. } => (range, false),
            };
            let around = match window {
                Window::Evicted { around, .. } if !alone => around,
                _ => None,
            };
            let early = match window {
                Window::Evicted { .. } if range.len() == 1 => self.read_early(slot, page, around),
                _ => None,
            };
            if early.is_some() {
                self.evict_meanwhile(slot);
            }
            // For what comes into the pool along with the page: the slot keeps it until then.
            let ahead = around.map_or(0, |around| wide(around.len() + CHAIN_MAX));
            let wanted = wide(range.len());
            // A window that does not fit is no reason to fail: the page alone may.
            let (range, mut credit) = if self.reserve_pages(slot, wanted + ahead) {
                slot.reserve.put(ahead);
                (range, wanted)
            } else if wanted + ahead > wide(one.len()) && self.reserve_pages(slot, wide(one.len()))
            {
                (one, wide(one.len()))
            } else {
                return self.over_limit(wide(range.len()));
            };
            if !self.ready_chunk(slot, page) {
                self.unreserve_pages(slot, credit);
                return self.over_limit(1);
            }
            let index = self.folios.index_of(page);
            let guard = self.hold_when_read(slot, index, early);
            let entry = self.table.get(page);
            // The region may have shrunk or gone before the lock was had; under it, whoever unmaps
            // drops what is brought in now.
            let range = if zero_fill {
                match self.mapped(page) {
                    Some(region) => range.and(region),
                    None => {
                        drop(guard);
                        self.unreserve_pages(slot, credit);
                        return self.unmanaged(page);
                    }
                }
            } else {
                range
            };
            slot.swap_in.around = around;
            let brought = if range.len() == 1 && entry.in_block() {
                self.bring_in_alone(slot, &guard, page, &mut credit)
            } else {
                self.bring_in(slot, &guard, range, zero_fill, &mut credit)
            };
            slot.swap_in.around = None;
            let out = match brought {
                Ok(brought) => {
                    if let Some(around) = around {
                        self.keep_ahead(slot, around);
                    }
                    if let Window::Evicted { run, .. } = window
                        && brought.loaded > 0
                    {
                        self.note_run(&guard, run);
                    }
                    self.after_fault(&guard, index, entry, brought, range.len());
                    if zero_fill {
                        slot.streams.note(range);
                    }
                    // Another thread may have evicted or dropped the page since it was looked at.
                    (self.table.get(page) == Entry::Resident).then_some(Fault::Resolved)
                }
                // Nobody asked for that page: without it then.
                Err(LoadError::Unreadable(neighbour) | LoadError::Damaged(neighbour))
                    if !one.pages().any(|one| one == neighbour) =>
                {
                    alone = true;
                    None
                }
                Err(error) => Some(self.lost(error)),
            };
            drop(guard);
            self.unreserve_pages(slot, credit);
            if let Some(out) = out {
                return out;
            }
        }
    }

    /// Decides which pages a fault on `page` brings in.
    fn window(&self, slot: &mut SlotGuard<'_>, page: Page) -> Window {
        let entry = if self.table.is_ready(page) {
            self.table.get(page)
        } else {
            Entry::None
        };
        let folio = self.folios.range(self.folios.index_of(page));
        let folio = self.clamp(folio, page);
        match entry {
            Entry::Resident => Window::Resident,
            entry if entry.is_empty() => match self.mapped(page) {
                None => Window::NotMapped,
                // The rest of its block comes in first.
                Some(_) if entry.in_block() => Window::Evicted {
                    range: self.block_of(page),
                    run: 1,
                    around: None,
                },
                Some(region) => Window::Untouched(folio.and(region)),
            },
            _ => {
                if let Entry::Stored { loc, size, .. } = entry {
                    self.pool.prefetch(loc, usize::from(size));
                }
                let run = slot.streams.window(page, folio);
                let granule = self.mapping.granule();
                let wanted = PageRange {
                    start: run.start & !(granule - 1),
                    end: run.end.next_multiple_of(granule),
                };
                let range = if wanted.len() == 1 && self.may_leave(page) {
                    wanted
                } else {
                    self.whole_blocks(wanted.and(folio))
                };
                if range.len() > run.len() {
                    slot.streams.widen(run, range);
                }
                let alone = range.len() == 1;
                let around = alone.then(|| self.around(page, folio)).flatten();
                Window::Evicted {
                    range,
                    run: run.len(),
                    around,
                }
            }
        }
    }

    /// A part of `folio` around `page` that a small limit can bear.
    fn clamp(&self, folio: PageRange, page: Page) -> PageRange {
        let most = self.window_limit().next_power_of_two();
        if folio.len() <= most {
            return folio;
        }
        let start = page.index() & !(most - 1);
        PageRange {
            start,
            end: start + most,
        }
    }

    /// The mapped range around `page` that is ours to fill.
    pub(crate) fn mapped(&self, page: Page) -> Option<PageRange> {
        let region = self.regions.lookup(page.addr())?;
        (!region.flags.contains(Flags::FOREIGN))
            .then(|| PageRange::covering(region.start, region.end - region.start))
    }

    /// A fault where there is nothing of ours.
    fn unmanaged(&self, page: Page) -> Fault {
        match self.regions.lookup(page.addr()) {
            Some(region) if region.flags.contains(Flags::FOREIGN) => Fault::Foreign,
            _ => Fault::NotMapped,
        }
    }

    /// Counts, and lets the LRU know.
    fn after_fault(
        &self,
        guard: &FolioGuard<'_>,
        index: u32,
        entry: Entry,
        brought: Brought,
        wanted: usize,
    ) {
        let counters = self.counters();
        if brought.zeroed > 0 {
            add(&counters.first_touch_pages, wide(brought.zeroed));
        }
        if brought.loaded > 0 {
            self.count_loaded(brought);
            add(&counters.refaults, 1);
            if wanted > 1 {
                add(&counters.readahead_pages, wide(brought.loaded - 1));
            }
        }
        self.used(guard, index, entry);
    }

    /// A page of the folio with this entry was asked for: where does the folio belong?
    pub(crate) fn used(&self, guard: &FolioGuard<'_>, index: u32, entry: Entry) {
        if entry.is_ahead()
            && let Some(swap) = &self.swap
        {
            add(&self.counters().swap_ra_hit, 1);
            let folio = self.folios.range(index);
            swap.readahead.hit(Page::from_index(folio.start));
        }
        if guard.has(RECLAIM) || guard.nr_resident() == 0 {
            // Its reclaimer puts it back.
            return;
        }
        if guard.has(ACTIVE) {
            guard.set(REFERENCED);
        } else if !entry.is_ahead() && self.is_workingset(entry) {
            add(&self.counters().activations, 1);
            self.lru.activate(&self.folios, guard, index);
        } else if !guard.has(INACTIVE) {
            self.lru.add(&self.folios, guard, index);
        }
    }

    /// The page is in the arena already: it was protected, or another thread brought it in.
    fn resident_fault(&self, slot: &mut SlotGuard<'_>, page: Page) -> Fault {
        let index = self.folios.index_of(page);
        let guard = self.folios.at(index).lock();
        if self.table.get(page) != Entry::Resident {
            return Fault::Resolved;
        }
        guard.cancel_reclaim();
        self.unprotect(&guard, PageRange::one(page));
        if guard.has(SHUT) {
            drop(guard);
            self.open_shut(slot, index);
            return Fault::Resolved;
        }
        let (last, nr) = slot.spurious;
        slot.spurious = if last == page.index() {
            (last, nr + 1)
        } else {
            (page.index(), 0)
        };
        if nr > MOST_SPURIOUS {
            self.die(FailureReason::Internal, 0, 0);
        }
        Fault::Resolved
    }

    pub(crate) fn over_limit(&self, pages: u64) -> Fault {
        Fault::OverLimit {
            needed_bytes: (self.charge.used() + pages) * wide(PAGE_SIZE),
        }
    }
}

enum Window {
    /// It is in.
    Resident,
    /// Nothing is mapped there.
    NotMapped,
    /// Never touched: these pages are filled with zeroes.
    Untouched(PageRange),
    /// Evicted: of these pages, those that are come back.
    Evicted {
        range: PageRange,
        /// As many in a row as the program seems to ask for.
        run: usize,
        /// Those around it that may be read along with a page alone.
        around: Option<PageRange>,
    },
}
