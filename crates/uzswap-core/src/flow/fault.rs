//! *What*: serves one page fault, from the address to the page in place.
//!
//! A [`Plan`] says what to bring in. It is made from the entry without a lock, so it is a hint.
//! Memory for it is reserved before the folio is locked, so that reclaim never waits for a folio
//! that its own fault holds; the entry is read again under the lock.
//!
//! *Invariants*: on return every page charged for the fault is resident or returned.
//! *Locking*: op → folio. *Context*: signal handler or handler thread.

use super::access::{note_access, note_run};
use super::block_exit::bring_in_exiting;
use super::decode::{LoadError, report_lost};
use super::load::{Brought, bring_in, count_loaded};
use super::overlapped_read::{begin_read, evict_during_read, lock_after_read};
use super::readahead::keep_ahead;
use super::reserve::{ready_chunk, reserve_pages};
use super::shut::open_shut_folio;
use super::stall::count_wait;
use super::unshare::unshare;
use crate::arena::region::Flags;
use crate::masked::Masked;
use crate::op::OpGuard;
use crate::page::block::Entries;
use crate::page::folio::{FolioGuard, PROT_STALE};
use crate::page::transition::exit_range;
use crate::page::{Entry, PAGE_SIZE, Page, PageRange, wide};
use crate::parts::Parts;
use uzswap_group::counters::add;
use uzswap_group::group::FailureReason;
use uzswap_pool::MAX_CHAIN;
use uzswap_sys::arch;

/// Faults on one resident page in a row that are put down to races; one more is a broken invariant.
const MAX_SPURIOUS: u32 = 10_000;

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
    /// What was stored of the page cannot be read or decoded: SIGBUS to the program, as the kernel
    /// does.
    Corrupt,
}

/// What a fault finds.
enum Found {
    /// The page is in.
    Resident,
    /// Nothing is mapped there.
    NotMapped,
    /// Pages are to be brought in.
    Absent(Plan),
}

/// What a fault brings in.
#[derive(Clone, Copy)]
struct Plan {
    /// These pages, as far as they are out.
    range: PageRange,
    /// The page, with what cannot come in without it.
    minimum: PageRange,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// The page was never touched: such pages are filled with zeroes.
    Untouched,
    Evicted {
        /// As many pages in a row as the program seems to ask for.
        run: usize,
        /// Pages around a single one that may be read along with it.
        around: Option<PageRange>,
    },
}

impl Plan {
    const fn is_zero_fill(&self) -> bool {
        matches!(self.kind, Kind::Untouched)
    }

    const fn around(&self) -> Option<PageRange> {
        match self.kind {
            Kind::Untouched => None,
            Kind::Evicted { around, .. } => around,
        }
    }

    /// The same for the page alone.
    fn without_neighbours(mut self, page: Page) -> Plan {
        match &mut self.kind {
            Kind::Untouched => self.range = PageRange::one(page),
            Kind::Evicted { around, .. } => {
                self.range = self.minimum;
                *around = None;
            }
        }
        self
    }
}

/// How an attempt to carry out a plan ended.
enum Attempt {
    Served(Fault),
    /// Another thread evicted or dropped the page meanwhile.
    Again,
    /// A neighbour that nobody asked for cannot be read.
    AgainWithoutNeighbours,
}

/// Serves a fault on `page`, and counts it.
pub(crate) fn serve_timed(parts: &Parts, masked: &Masked, page: Page) -> Fault {
    let started = arch::ticks();
    // Each is a cache miss; they overlap with acquiring the operation.
    parts.pages.prefetch(page);
    let mut op = parts.op(masked);
    op.begin_wait();
    let out = serve(parts, &mut op, page);
    let ticks = arch::ticks().wrapping_sub(started);
    count_wait(parts, &op, ticks);
    drop(op);
    let process = parts.account.process();
    process.fault_ticks.record(ticks);
    add(&process.counters.faults, 1);
    add(&process.counters.fault_ticks, ticks);
    out
}

fn serve(parts: &Parts, op: &mut OpGuard<'_>, page: Page) -> Fault {
    let mut neighbours = true;
    loop {
        let mut plan = match plan_fault(parts, op, page) {
            Found::Resident => return serve_resident(parts, op, page),
            Found::NotMapped => return unmanaged(parts, page),
            Found::Absent(plan) => plan,
        };
        if !neighbours {
            plan = plan.without_neighbours(page);
        }
        match carry_out(parts, op, page, plan) {
            Attempt::Served(fault) => return fault,
            Attempt::Again => {}
            Attempt::AgainWithoutNeighbours => neighbours = false,
        }
    }
}

/// Decides which pages a fault on `page` brings in.
fn plan_fault(parts: &Parts, op: &mut OpGuard<'_>, page: Page) -> Found {
    let pages = &parts.pages;
    let entry = if pages.is_ready(page) {
        pages.get(page)
    } else {
        Entry::None
    };
    if entry == Entry::Resident {
        return Found::Resident;
    }
    let folio = pages.range_of(pages.index_of(page));
    let folio = clamp(parts, folio, page);
    let minimum = pages.block_of(page);
    if entry.is_empty() {
        return match parts.arena.mapped(page) {
            None => Found::NotMapped,
            // The rest of its block comes in first.
            Some(_) if entry.in_block() => Found::Absent(Plan {
                range: minimum,
                minimum,
                kind: Kind::Evicted {
                    run: 1,
                    around: None,
                },
            }),
            Some(region) => Found::Absent(Plan {
                range: folio.and(region),
                minimum,
                kind: Kind::Untouched,
            }),
        };
    }
    if let Entry::Stored { loc, size, .. } = entry {
        parts.store.prefetch(loc, size);
    }
    let run = op.streams.window(page, folio);
    let granule = parts.arena.granule();
    let wanted = PageRange {
        start: run.start & !(granule - 1),
        end: run.end.next_multiple_of(granule),
    };
    let range = if wanted.len() == 1 && exit_range(pages, page).is_some() {
        wanted
    } else {
        pages.whole_blocks(wanted.and(folio))
    };
    if range.len() > run.len() {
        op.streams.widen(run, range);
    }
    let around = match &parts.backing {
        Some(backing) if range.len() == 1 => backing.around(pages, page, folio),
        _ => None,
    };
    Found::Absent(Plan {
        range,
        minimum,
        kind: Kind::Evicted {
            run: run.len(),
            around,
        },
    })
}

/// A part of `folio` around `page` that a small limit can bear.
fn clamp(parts: &Parts, folio: PageRange, page: Page) -> PageRange {
    let max = parts.account.max_window().next_power_of_two();
    if folio.len() <= max {
        return folio;
    }
    let start = page.index() & !(max - 1);
    PageRange {
        start,
        end: start + max,
    }
}

/// Takes memory for the plan, locks the folio, and brings the pages in.
fn carry_out(parts: &Parts, op: &mut OpGuard<'_>, page: Page, plan: Plan) -> Attempt {
    let read = if !plan.is_zero_fill() && plan.range.len() == 1 {
        begin_read(parts, op, page, plan.around())
    } else {
        None
    };
    if read.is_some() {
        evict_during_read(parts, op);
    }
    let Some((range, mut credit)) = take_pages(parts, op, &plan) else {
        return Attempt::Served(over_limit(parts, wide(plan.range.len())));
    };
    if !ready_chunk(parts, op, page) {
        op.unreserve(credit);
        return Attempt::Served(over_limit(parts, 1));
    }
    let index = parts.pages.index_of(page);
    let guard = lock_after_read(parts, op, index, read);
    let attempt = fill(parts, op, &guard, page, Plan { range, ..plan }, &mut credit);
    drop(guard);
    op.unreserve(credit);
    attempt
}

/// Takes charged pages for the plan, or for its minimum: a window that does not fit is no reason to
/// fail. Returns what is to be brought in, and pages for it.
fn take_pages(parts: &Parts, op: &mut OpGuard<'_>, plan: &Plan) -> Option<(PageRange, u64)> {
    // Room for readahead into the pool; stays in the operation's reserve until then.
    let ahead = plan
        .around()
        .map_or(0, |around| wide(around.len() + MAX_CHAIN));
    let wanted = wide(plan.range.len());
    if reserve_pages(parts, op, wanted + ahead) {
        op.reserve.put(ahead);
        return Some((plan.range, wanted));
    }
    let minimum = wide(plan.minimum.len());
    (wanted + ahead > minimum && reserve_pages(parts, op, minimum))
        .then_some((plan.minimum, minimum))
}

/// Brings in what the plan says, with the folio held.
fn fill(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    guard: &FolioGuard<'_>,
    page: Page,
    mut plan: Plan,
    credit: &mut u64,
) -> Attempt {
    let entry = parts.pages.get(page);
    if plan.is_zero_fill() {
        // The region may have shrunk or gone before the lock was had; under it, whoever unmaps
        // drops what is brought in now.
        match parts.arena.mapped(page) {
            Some(region) => plan.range = plan.range.and(region),
            None => return Attempt::Served(unmanaged(parts, page)),
        }
    }
    op.window.around = plan.around();
    let brought = if plan.range.len() == 1 && entry.in_block() {
        bring_in_exiting(parts, op, guard, page, credit)
    } else {
        bring_in(parts, op, guard, plan.range, plan.is_zero_fill(), credit)
    };
    op.window.around = None;
    match brought {
        Ok(brought) => {
            record_load(parts, op, guard, page, plan, entry, brought);
            // Another thread may have evicted or dropped the page since it was looked at.
            match parts.pages.get(page) {
                Entry::Resident => Attempt::Served(Fault::Resolved),
                _ => Attempt::Again,
            }
        }
        Err(LoadError::Unreadable(other) | LoadError::Damaged(other))
            if !plan.minimum.pages().any(|page| page == other) =>
        {
            Attempt::AgainWithoutNeighbours
        }
        Err(error) => {
            report_lost(parts, error);
            Attempt::Served(Fault::Corrupt)
        }
    }
}

/// Counts what was brought in, and informs reclaim and readahead.
fn record_load(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    guard: &FolioGuard<'_>,
    page: Page,
    plan: Plan,
    entry: Entry,
    brought: Brought,
) {
    if let Some(around) = plan.around() {
        keep_ahead(parts, op, around);
    }
    if let Kind::Evicted { run, .. } = plan.kind
        && brought.loaded > 0
    {
        note_run(guard, run);
    }
    let counters = parts.account.counters();
    if brought.zeroed > 0 {
        add(&counters.first_touch_pages, wide(brought.zeroed));
    }
    if brought.loaded > 0 {
        count_loaded(parts, brought);
        op.stalls.loaded = true;
        add(&counters.refaults, 1);
        if plan.range.len() > 1 {
            add(&counters.readahead_pages, wide(brought.loaded - 1));
        }
    }
    note_access(parts, guard, parts.pages.index_of(page), entry);
    if plan.is_zero_fill() {
        op.streams.note(plan.range);
    }
}

/// A fault outside the engine's mappings.
fn unmanaged(parts: &Parts, page: Page) -> Fault {
    match parts.arena.regions().lookup(page.addr()) {
        Some(region) if region.flags.contains(Flags::FOREIGN) => Fault::Foreign,
        _ => Fault::NotMapped,
    }
}

/// The page is in the arena already: it was protected, or another thread brought it in.
fn serve_resident(parts: &Parts, op: &mut OpGuard<'_>, page: Page) -> Fault {
    let pages = &parts.pages;
    if pages.is_shared(page) {
        return match unshare(parts, op, page) {
            true => Fault::Resolved,
            false => over_limit(parts, wide(pages.part_of(page).len())),
        };
    }
    let index = pages.index_of(page);
    let guard = pages.folio(index).lock();
    if pages.get(page) != Entry::Resident {
        return Fault::Resolved;
    }
    guard.cancel_reclaim();
    parts.arena.unprotect(pages, &guard, PageRange::one(page));
    if guard.has(PROT_STALE) {
        drop(guard);
        open_shut_folio(parts, op, index);
        return Fault::Resolved;
    }
    let (last, nr) = op.spurious;
    op.spurious = if last == page.index() {
        (last, nr + 1)
    } else {
        (page.index(), 0)
    };
    if nr > MAX_SPURIOUS {
        parts.account.die(FailureReason::Internal, 0, 0);
    }
    Fault::Resolved
}

pub(crate) fn over_limit(parts: &Parts, pages: u64) -> Fault {
    Fault::OverLimit {
        needed_bytes: parts.account.used_bytes() + pages * wide(PAGE_SIZE),
    }
}
