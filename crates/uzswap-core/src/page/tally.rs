//! *What*: what was stored of some pages, counted by kind.
//!
//! *Invariants*: none. *Locking*: none. *Context*: signal, worker; models.

use super::address::{PAGE_SIZE, wide};
use super::content::Content;
use super::entry::Entry;
use uzswap_group::counters::{Counters, add};

/// How many pages came to be stored, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// All of them.
    pub pages: usize,
    filled: usize,
    raw: usize,
    in_blocks: usize,
}

impl Tally {
    /// Pages that a codec made smaller.
    #[must_use]
    pub const fn compressed(&self) -> usize {
        self.pages - self.filled - self.raw
    }

    /// One more page has this entry.
    pub fn add(&mut self, entry: Entry) {
        self.pages += 1;
        self.in_blocks += usize::from(entry.in_block());
        match entry {
            Entry::Filled { .. } => self.filled += 1,
            Entry::Stored { size, content, .. } if Self::is_raw(size, content) => self.raw += 1,
            _ => {}
        }
    }

    /// Whether an object of that size is a page as it is.
    pub(super) fn is_raw(size: u16, content: Content) -> bool {
        content.is_page() && usize::from(size) == PAGE_SIZE
    }

    /// Adds all of them to the counters.
    pub fn count(&self, counters: &Counters) {
        for (cell, nr) in [
            (&counters.stored_pages, self.pages),
            (&counters.same_filled_pages, self.filled),
            (&counters.block_pages, self.in_blocks),
            (&counters.stored_incompressible_pages, self.raw),
        ] {
            if nr > 0 {
                add(cell, wide(nr));
            }
        }
    }
}
