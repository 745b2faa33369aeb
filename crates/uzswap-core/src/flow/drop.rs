//! *What*: drops contents that the program gives up, resident or stored.
//!
//! *Invariants*: no folio is held while waiting for one under reclaim.
//! *Locking*: op → folios (rising, at most [`HELD_FOLIOS`] at once). *Context*: worker.

use super::share::clear_empty;
use super::sizes;
use crate::page::block::Entries;
use crate::page::folio::FolioGuard;
use crate::page::{Entry, Page, PageRange, wide};
use crate::parts::Parts;
use uzswap_group::group::FailureReason;
use uzswap_sys::Errno;

/// Folios whose pages are dropped with one call.
const HELD_FOLIOS: usize = 32;

/// Drops all contents of `range`, wherever they are.
///
/// # Errors
/// ENOMEM: the kernel had no mapping left to close some pages with; those stay resident, full of
/// zeroes.
pub(crate) fn drop_pages(parts: &Parts, range: PageRange) -> Result<(), Errno> {
    let mut kept = false;
    let mut held = HeldFolios {
        parts,
        range: PageRange { start: 0, end: 0 },
        nr: 0,
        dropped: 0,
        shared: 0,
        must_zero: false,
    };
    parts.pages.for_each_folio(range, |index, part| {
        let folio = parts.pages.folio(index);
        let guard = loop {
            let guard = folio.lock();
            if !guard.cancel_reclaim() {
                break guard;
            }
            drop(guard);
            held.flush();
            folio.wait_reclaim();
        };
        kept |= !held.add(index, part, guard);
    });
    held.flush();
    sizes::publish_sizes(parts);
    if kept { Err(Errno::ENOMEM) } else { Ok(()) }
}

/// Empties the entries of `part`, but for those of resident pages that are `kept`. Returns how many
/// pages were resident, and how many of them not charged, as they are shared.
fn clear_entries(
    parts: &Parts,
    index: u32,
    part: PageRange,
    guard: &FolioGuard<'_>,
    kept: bool,
) -> (usize, usize) {
    let (mut resident, mut shared) = (0, 0);
    for page in part.pages() {
        let entry = parts.pages.get(page);
        if entry == Entry::None || (kept && entry == Entry::Resident) {
            continue;
        }
        parts.transition().discard(page, part);
        if entry == Entry::Resident {
            resident += 1;
            shared += usize::from(parts.pages.is_shared(page));
        }
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a folio has 512 pages at most"
    )]
    guard.sub_resident(resident as u16);
    if resident > 0 && guard.nr_resident() == 0 {
        parts.pages.lru_remove(guard, index);
    }
    if shared > 0 {
        clear_empty(parts, guard, part);
    }
    (resident, shared)
}

/// Folios that are held while their pages are dropped with one call.
struct HeldFolios<'a> {
    parts: &'a Parts,
    range: PageRange,
    nr: usize,
    dropped: usize,
    /// Of the dropped pages those that are not charged.
    shared: usize,
    /// Some of their resident pages stay.
    must_zero: bool,
}

impl HeldFolios<'_> {
    /// Adds a folio that lies right of those held, or drops those first. `false`: its resident
    /// pages stay.
    fn add(&mut self, index: u32, part: PageRange, guard: FolioGuard<'_>) -> bool {
        if self.nr > 0 && (self.range.end != part.start || self.nr == HELD_FOLIOS) {
            self.flush();
        }
        let closed = guard.nr_resident() == 0 || self.parts.arena.close(part);
        let (resident, shared) = clear_entries(self.parts, index, part, &guard, !closed);
        if self.nr == 0 {
            self.range = part;
        } else {
            self.range.end = part.end;
        }
        self.nr += 1;
        self.dropped += resident;
        self.shared += shared;
        self.must_zero |= !closed;
        // Let go of in `flush`, when the pages are gone.
        core::mem::forget(guard);
        closed
    }

    fn flush(&mut self) {
        if self.nr == 0 {
            return;
        }
        let parts = self.parts;
        if self.dropped > 0 || self.must_zero {
            if let Err(errno) = parts.arena.drop_range(self.range) {
                parts
                    .account
                    .die(FailureReason::Internal, errno.0.unsigned_abs(), 0);
            }
            sizes::count_dropped(parts, self.dropped);
            let charge = parts.account.charge();
            charge.uncharge(wide(self.dropped - self.shared));
            if self.shared > 0 {
                charge.share().unshare(wide(self.shared));
            }
        }
        let first = parts.pages.index_of(Page::from_index(self.range.start));
        for step in 0..self.nr {
            #[expect(clippy::cast_possible_truncation, reason = "at most HELD_FOLIOS")]
            let index = first + step as u32;
            // SAFETY: locked by `add` on this thread, its guard forgotten.
            drop(unsafe { parts.pages.folio(index).held() });
        }
        self.nr = 0;
        self.dropped = 0;
        self.shared = 0;
        self.must_zero = false;
    }
}
