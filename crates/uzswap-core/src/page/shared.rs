//! *What*: which resident pages this process may have in common with others since a fork: for each
//! sixteenth of a folio a bit in its word.
//!
//! *Invariants*
//! - Resident pages of a part whose bit is set are write-protected as far as others may have them,
//!   and count in the `shared` of this process's [`Share`](uzswap_sync::ledger::Share), not in what
//!   is used.
//! - Bits are set by fork alone, while no operation is under way, in folios that are neither pinned
//!   nor isolated. What an isolated folio has of them stays protected whatever becomes of the rest.
//!
//! *Locking*: a bit changes under its folio's lock. *Context*: signal, worker, init.

use super::address::{Page, PageRange};
use super::folio::{FolioGuard, SHARED};
use super::pages::Pages;

/// log2 of the parts of a folio.
const PARTS_ORDER: u32 = 4;
/// The lowest bit of [`SHARED`].
const FIRST_BIT: u32 = SHARED.trailing_zeros();

impl Pages {
    /// The pages that have one bit with `page`.
    pub(crate) fn part_of(&self, page: Page) -> PageRange {
        let nr = 1 << self.order().saturating_sub(PARTS_ORDER);
        let start = page.index() & !(nr - 1);
        PageRange {
            start,
            end: start + nr,
        }
    }

    fn bit_of(&self, page: Page) -> u32 {
        let within = page.index() & (self.folio_pages() - 1);
        let part = within >> self.order().saturating_sub(PARTS_ORDER);
        (1 << FIRST_BIT) << part
    }

    /// Whether others may have `page` if it is resident. A hint without the folio's lock.
    #[inline]
    pub(crate) fn is_shared(&self, page: Page) -> bool {
        self.folio_of(page).has(SHARED) && self.folio_of(page).has(self.bit_of(page))
    }

    /// The bits of the parts of `range`, all of it in one folio, that have resident pages.
    pub(crate) fn resident_parts(&self, range: PageRange) -> u32 {
        self.resident(range)
            .fold(0, |bits, page| bits | self.bit_of(page))
    }

    /// The resident pages of `range` whose part has one of `bits`.
    pub(crate) fn resident_in(&self, range: PageRange, bits: u32) -> usize {
        let within = |page: &Page| self.bit_of(*page) & bits != 0;
        self.resident(range).filter(within).count()
    }

    /// Marks the part of `page` as this process's own.
    pub(crate) fn clear_shared(&self, guard: &FolioGuard<'_>, page: Page) {
        guard.clear(self.bit_of(page));
    }

    /// The shared parts of `range`, and the resident pages of each.
    pub(crate) fn shared_parts(
        &self,
        range: PageRange,
    ) -> impl Iterator<Item = (PageRange, usize)> {
        let first = |at: usize| self.part_of(Page::from_index(at));
        let parts = core::iter::successors(Some(first(range.start)), move |part| {
            (part.end < range.end).then(|| first(part.end))
        });
        parts
            .filter(|part| self.is_shared(Page::from_index(part.start)))
            .map(|part| (part, self.resident(part).count()))
    }

    /// The resident pages of `range`, all of it in one folio, that count as shared.
    pub(crate) fn nr_shared(&self, guard: &FolioGuard<'_>, range: PageRange) -> usize {
        match guard.bits() & SHARED {
            0 => 0,
            bits => self.resident_in(range, bits),
        }
    }
}
