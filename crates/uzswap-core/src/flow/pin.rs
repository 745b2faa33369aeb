//! *What*: pins: brings memory in and keeps it resident while a system call uses it.
//!
//! *Invariants*: a pinned folio is not isolated, and an isolation under way is cancelled. So from
//! the return of `pin` until `unpin` its pages are present and writable as the program mapped them.
//! Pins do not survive fork: the threads that hold them stay in the parent. `hold` does.
//! *Locking*: op → folio. *Context*: signal, worker.

use super::access::note_access;
use super::decode::{LoadError, report_lost};
use super::fault::{Fault, over_limit};
use super::load::{bring_in, count_loaded};
use super::reserve::{ready_chunk, reserve_pages};
use super::shut::open_shut_folio;
use super::stall::count_wait;
use super::unshare::unshare_range;
use crate::arena::hazard::Hazard;
use crate::op::OpGuard;
use crate::page::block::Entries;
use crate::page::folio::{FolioGuard, HELD, PROT_STALE, RECLAIM};
use crate::page::{Entry, PAGE_SIZE, Page, PageRange, wide};
use crate::parts::Parts;
use uzswap_group::counters::add;
use uzswap_sys::arch;

/// Pinned memory; give it back to [`Engine::unpin`](crate::Engine::unpin).
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Pin {
    range: PageRange,
}

impl Pin {
    pub(crate) const fn of(range: PageRange) -> Pin {
        Pin { range }
    }

    pub(crate) const fn range(&self) -> PageRange {
        self.range
    }

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

/// What a page that is brought in is to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Only bring in.
    No,
    Pin,
    Hold,
}

/// Whether `range` covers all of `[addr, addr + len)`: nothing of it lies outside the arena.
const fn is_whole(range: PageRange, addr: usize, len: usize) -> bool {
    range.len() == (addr % PAGE_SIZE).saturating_add(len).div_ceil(PAGE_SIZE)
}

/// As [`Engine::is_resident`](crate::Engine::is_resident).
pub(crate) fn is_resident(parts: &Parts, addr: usize, len: usize) -> bool {
    let range = PageRange::covering(addr, len);
    is_whole(range, addr, len) && is_in(parts, range)
}

/// As [`Engine::announce`](crate::Engine::announce).
#[inline]
pub(crate) fn announce(
    parts: &'static Parts,
    nr: usize,
    addr: usize,
    len: usize,
) -> Option<Hazard<'static>> {
    let range = PageRange::covering(addr, len);
    if !is_whole(range, addr, len) {
        return None;
    }
    let hazard = parts.arena.hazards().announce(nr, range)?;
    if is_kept(parts, range) {
        return Some(hazard);
    }
    hazard.withdraw();
    None
}

fn is_in(parts: &Parts, range: PageRange) -> bool {
    range
        .pages()
        .all(|page| parts.pages.get(page) == Entry::Resident)
}

/// Whether all of `range`, announced by this thread, is in and stays in.
fn is_kept(parts: &Parts, range: PageRange) -> bool {
    let last = range.end.saturating_sub(1);
    let folio = |index| parts.pages.index_of(Page::from_index(index));
    // The folios first: whoever sees `RECLAIM` cleared sees the entries that were written under it.
    (folio(range.start)..=folio(last))
        .all(|index| !parts.pages.folio(index).has(RECLAIM | PROT_STALE))
        && is_in(parts, range)
        && !range.pages().any(|page| parts.pages.is_shared(page))
}

/// Takes one pin off every folio of `range`. The caller holds an operation.
pub(crate) fn unpin_range(parts: &Parts, range: PageRange) {
    let mut at = range.start;
    while at < range.end {
        let page = Page::from_index(at);
        let index = parts.pages.index_of(page);
        if parts.pages.is_ready(page) {
            parts.pages.folio(index).lock().unpin();
        }
        at = parts.pages.range_of(index).end;
    }
}

/// As [`Engine::not_held`](crate::Engine::not_held).
pub(crate) fn not_held(parts: &Parts, range: PageRange) -> usize {
    let (mut bytes, mut at) = (0, range.start);
    while at < range.end {
        let page = Page::from_index(at);
        let index = parts.pages.index_of(page);
        let folio = parts.pages.range_of(index);
        if !(parts.pages.is_ready(page) && parts.pages.folio(index).has(HELD)) {
            bytes += folio.bytes();
        }
        at = folio.end;
    }
    bytes
}

/// Brings in and keeps, folio by folio; on failure lets go of what it kept.
pub(crate) fn keep_in(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    range: PageRange,
    keep: Keep,
) -> Result<(), Fault> {
    let mut at = range.start;
    op.begin_wait();
    while at < range.end {
        let index = parts.pages.index_of(Page::from_index(at));
        let folio = parts.pages.range_of(index);
        if let Err(fault) = keep_folio(parts, op, index, folio.and(range), keep) {
            if keep == Keep::Pin {
                unpin_range(
                    parts,
                    PageRange {
                        start: range.start,
                        end: at,
                    },
                );
            }
            return Err(fault);
        }
        at = folio.end;
    }
    Ok(())
}

/// Brings `part` of a folio in and keeps the folio.
fn keep_folio(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    index: u32,
    part: PageRange,
    keep: Keep,
) -> Result<(), Fault> {
    let first = Page::from_index(part.start);
    if keep == Keep::No && parts.arena.mapped(first).is_none() && part.len() == 1 {
        return Ok(());
    }
    if !ready_chunk(parts, op, first) {
        return Err(over_limit(parts, 1));
    }
    // The caller holds an operation, so there is no fork until the folio is pinned.
    if !unshare_range(parts, op, part) {
        return Err(over_limit(parts, wide(part.len())));
    }
    let folio = parts.pages.folio(index);
    let guard = folio.lock();
    // Pinned first: loading may need reclaim, which skips pinned folios.
    match keep {
        Keep::Pin => guard.pin(),
        Keep::Hold => guard.set(HELD),
        Keep::No => {}
    }
    // A reclaimer that has isolated the folio may protect it after anything that is done about it
    // now, and the kernel's write would fail: it is waited for until it has rolled back.
    let guard = if guard.cancel_reclaim() {
        drop(guard);
        folio.wait_reclaim();
        None
    } else {
        Some(guard)
    };
    let done = fill(parts, op, index, part, guard);
    if done.is_err() && keep == Keep::Pin {
        folio.lock().unpin();
    }
    done
}

/// Brings in every page of `part` that is mapped. `guard`, if the folio is held already, is
/// released while memory is reclaimed.
fn fill<'a>(
    parts: &'a Parts,
    op: &mut OpGuard<'_>,
    index: u32,
    part: PageRange,
    mut guard: Option<FolioGuard<'a>>,
) -> Result<(), Fault> {
    loop {
        // A block comes in whole or not at all.
        let part = parts.pages.whole_blocks(part);
        let missing = missing(parts, part);
        if missing == 0 && !parts.pages.folio(index).has(PROT_STALE) {
            return Ok(());
        }
        drop(guard.take());
        if missing == 0 {
            open_shut_folio(parts, op, index);
            return Ok(());
        }
        let began = arch::ticks();
        let mut credit = wide(missing);
        if !reserve_pages(parts, op, credit) {
            return Err(over_limit(parts, credit));
        }
        let held = guard.insert(parts.pages.folio(index).lock());
        let entry = parts.pages.get(Page::from_index(part.start));
        let filled = bring_in_part(parts, op, held, part, &mut credit);
        op.unreserve(credit);
        if let Err(error) = filled {
            report_lost(parts, error);
            return Err(Fault::Corrupt);
        }
        note_access(parts, held, index, entry);
        count_wait(parts, op, arch::ticks().wrapping_sub(began));
        op.begin_wait();
    }
}

/// Brings in what was evicted of `part`, then what of it is mapped and was never touched.
fn bring_in_part(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    guard: &FolioGuard<'_>,
    part: PageRange,
    credit: &mut u64,
) -> Result<(), LoadError> {
    let mut brought = bring_in(parts, op, guard, part, false, credit)?;
    count_loaded(parts, brought);
    op.stalls.loaded = brought.loaded > 0;
    let mut at = part.start;
    while at < part.end {
        let Some(region) = parts.arena.mapped(Page::from_index(at)) else {
            at += 1;
            continue;
        };
        let range = region.and(part);
        let zeroed = bring_in(parts, op, guard, range, true, credit)?;
        brought.zeroed += zeroed.zeroed;
        at = range.end;
    }
    add(
        &parts.account.counters().first_touch_pages,
        wide(brought.zeroed),
    );
    add(
        &parts.account.counters().guarded_pages,
        wide(brought.loaded + brought.zeroed),
    );
    Ok(())
}

/// Pages of `part` that are mapped and not in.
fn missing(parts: &Parts, part: PageRange) -> usize {
    let mut nr = 0;
    let mut mapped = PageRange { start: 0, end: 0 };
    for page in part.pages() {
        nr += usize::from(match parts.pages.get(page) {
            Entry::Resident => false,
            entry if entry.is_evicted() => true,
            _ => {
                let at = page.index();
                if !(mapped.start..mapped.end).contains(&at) {
                    mapped = parts
                        .arena
                        .mapped(page)
                        .unwrap_or(PageRange { start: at, end: at });
                }
                (mapped.start..mapped.end).contains(&at)
            }
        });
    }
    nr
}
