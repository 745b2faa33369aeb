//! *What*: walks over the page table: the folios of a range, and its resident pages.
//!
//! *Invariants*: only entries of charged chunks are read.
//! *Locking*: none; results are hints until the folio is held. *Context*: signal, worker.

use crate::page::block::Entries;
use crate::page::{Entry, Page, PageRange, Pages};

impl Pages {
    /// Calls `f` with each folio of `range` whose entries are charged, and its part of `range`.
    pub(crate) fn for_each_folio(&self, range: PageRange, mut f: impl FnMut(u32, PageRange)) {
        let mut at = range.start;
        while let Some(page) = self.next_ready(at).filter(|&page| page < range.end) {
            let index = self.index_of(Page::from_index(page));
            let folio = self.range_of(index);
            f(index, folio.and(range));
            at = folio.end;
        }
    }

    /// Waits until no reclaimer is reading any page of `range`.
    pub(crate) fn wait_reclaim(&self, range: PageRange) {
        self.for_each_folio(range, |index, _| {
            let folio = self.folio(index);
            // Under the lock: an isolation before this is seen here; one after it sees the region
            // map as it is now.
            if folio.lock().cancel_reclaim() {
                folio.wait_reclaim();
            }
        });
    }

    /// The resident pages of `range`.
    pub(crate) fn resident(&self, range: PageRange) -> impl Iterator<Item = Page> {
        range
            .pages()
            .filter(|&page| self.get(page) == Entry::Resident)
    }
}
