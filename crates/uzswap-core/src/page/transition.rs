//! *What*: every change of a page's entry, in one place, so that engine and model checkers run the
//! same code.
//!
//! | from | to | by |
//! |---|---|---|
//! | resident | stored, filled, in a block | [`store`](Transition::store) |
//! | none, evicted | resident | [`make_resident`](Transition::make_resident) |
//! | stored | stored, denser | [`replace`](Transition::replace) |
//! | stored | stored elsewhere in the pool | [`relocate`](Transition::relocate) |
//! | stored | stored and `writing` | [`begin_write`](Transition::begin_write) |
//! | stored and `writing` | swapped, or stored as before | [`finish_write`](Transition::finish_write), [`abort_write`](Transition::abort_write) |
//! | stored | swapped, by the copy that was kept | [`use_copy`](Transition::use_copy) |
//! | swapped | stored, as it is | [`fetch`](Transition::fetch) |
//! | any | none, or dropped within a block | [`discard`](Transition::discard) |
//! | stored, filled | another page's | [`take`](Transition::take), [`give`](Transition::give) |
//!
//! An entry that is `writing` says that a copy of its object is on its way to a device. Whatever
//! else happens to the page replaces the entry by one that does not say so: that ends the writeback
//! of it.
//!
//! *Invariants*
//! - An object or a slot is held by one entry, or by one copy in the swap cache, and let go of by
//!   whoever replaces that entry. The new entry is there first: nobody finds one that names what is
//!   gone.
//! - The counters `stored_pages`, `swapped_pages`, `same_filled_pages`, `block_pages` and
//!   `stored_incompressible_pages` are the numbers of entries of these kinds: what comes to be
//!   stored is counted by [`Tally`], all else here.
//! - A block changes under one hold of its folio; its last page never has a piece.
//!
//! *Locking*: the folio of the pages is held by the caller. *Context*: signal, worker; models.

use super::address::{Page, PageRange, wide};
use super::block::Entries;
use super::content::Content;
use super::entry::{Age, Entry};
use super::tally::Tally;
use uzswap_group::counters::{Counters, add, sub};
use uzswap_pool::Loc;
use uzswap_sync::strict_unreachable;

/// Entries that can be changed.
pub trait EntriesMut: Entries {
    /// Replaces the entry of `page`.
    fn set(&self, page: Page, entry: Entry);
}

/// The pool's side of a transition.
pub trait Objects {
    /// Frees an object that no entry names any more.
    fn free(&self, loc: Loc);

    /// An object that belonged to another page is `page`'s from now on.
    fn set_owner(&self, loc: Loc, page: Page);
}

/// The swap devices' side of a transition.
pub trait Slots {
    /// Counts the slots of an object that an entry is going to name. `false`: they cannot be
    /// counted.
    fn count(&self, location: u64, size: u16) -> bool;

    /// Counts the slots of an object off that no entry names any more.
    fn uncount(&self, location: u64, size: u16);

    /// Lets go of the copy that was kept of `page`, whose contents are given up.
    fn drop_copy(&self, page: Page);
}

/// What an entry's changes reach.
#[derive(Debug)]
pub struct Transition<'a, E, O, S> {
    /// The page table.
    pub entries: &'a E,
    /// The pool.
    pub objects: &'a O,
    /// The swap devices.
    pub slots: &'a S,
    /// Of this process.
    pub counters: &'a Counters,
}

impl<E: EntriesMut, O: Objects, S: Slots> Transition<'_, E, O, S> {
    /// A resident page is stored: `entry` says how. The caller drops its memory before it lets go
    /// of the folio.
    pub fn store(&self, page: Page, entry: Entry) {
        self.entries.set(page, entry);
    }

    /// The page is in the arena. What was stored of it goes, unless `keeps` takes over its slots.
    /// Returns the old entry.
    pub fn make_resident(&self, page: Page, keeps: impl FnOnce(Entry) -> bool) -> Entry {
        let old = self.entries.get(page);
        self.entries.set(page, Entry::Resident);
        self.uncount(old);
        if !keeps(old) {
            self.free(old);
        }
        old
    }

    /// Pages are stored anew, as `entries` say, in place of what was stored of them.
    pub fn replace(&self, pages: PageRange, entries: &[Entry]) {
        let mut tally = Tally::default();
        for (page, &entry) in pages.pages().zip(entries) {
            let old = self.entries.get(page);
            self.entries.set(page, entry);
            self.release(old);
            tally.add(entry);
        }
        tally.count(self.counters);
    }

    /// The page's object has moved within the pool.
    pub fn relocate(&self, page: Page, to: Loc) {
        let mut entry = self.entries.get(page);
        if let Entry::Stored { loc, .. } = &mut entry {
            *loc = to;
            self.entries.set(page, entry);
        } else {
            strict_unreachable!("an object moved that no entry names");
        }
    }

    /// A copy of the page's object is on its way to a device.
    pub fn begin_write(&self, page: Page) {
        if let Entry::Stored {
            loc,
            size,
            age,
            content,
            ..
        } = self.entries.get(page)
        {
            let content = match content {
                // Nobody asked for it in time.
                Content::ReadAhead => Content::Page,
                other => other,
            };
            self.entries.set(
                page,
                Entry::Stored {
                    loc,
                    size,
                    age,
                    writing: true,
                    content,
                },
            );
        } else {
            strict_unreachable!("a page is written that is not in the pool");
        }
    }

    /// The copy is on the device, at `location`: the entry names it, if nothing else happened to
    /// the page meanwhile, and if its slots can be counted. Returns the object's bytes.
    pub fn finish_write(&self, page: Page, location: u64) -> Option<u16> {
        let old = self.entries.get(page);
        let Entry::Stored {
            size,
            age,
            writing: true,
            content,
            ..
        } = old
        else {
            return None;
        };
        if !self.slots.count(location, size) {
            self.entries.set(page, old.without_writeback());
            return None;
        }
        let new = Entry::Swapped {
            location,
            size,
            age,
            content,
        };
        self.entries.set(page, new);
        self.release(old);
        self.count_swapped(content);
        Some(size)
    }

    /// The copy did not get to the device: the entry is as it was before, if nothing else happened
    /// to the page meanwhile.
    pub fn abort_write(&self, page: Page) {
        let entry = self.entries.get(page);
        if matches!(entry, Entry::Stored { writing: true, .. }) {
            self.entries.set(page, entry.without_writeback());
        }
    }

    /// The page's object is the same as the copy that was kept: `copy`, an entry that takes over
    /// its count, names that again.
    pub fn use_copy(&self, page: Page, copy: Entry) {
        let old = self.entries.get(page);
        self.entries.set(page, copy);
        self.release(old);
        self.count_swapped(Content::Page);
    }

    /// The page's object is in the pool at `loc`, as it was on its device. The slots go, unless
    /// `keeps` takes them over.
    pub fn fetch(
        &self,
        page: Page,
        loc: Loc,
        age: Age,
        content: Content,
        keeps: impl FnOnce(Entry) -> bool,
    ) {
        let old = self.entries.get(page);
        let Entry::Swapped { size, .. } = old else {
            strict_unreachable!("a page is fetched that is not on a device");
            return;
        };
        let new = Entry::Stored {
            loc,
            size,
            age,
            writing: false,
            content,
        };
        self.entries.set(page, new);
        self.uncount(old);
        if !keeps(old) {
            self.free(old);
        }
        let mut tally = Tally::default();
        if !new.is_empty() {
            tally.add(new);
        }
        tally.count(self.counters);
    }

    /// The page's contents are given up. `part`: all the pages of its folio that are; a block that
    /// is not all in it stays, without this page.
    pub fn discard(&self, page: Page, part: PageRange) {
        let old = self.entries.get(page);
        if old == Entry::None {
            return;
        }
        if old.in_block() {
            let block = self.entries.block_of(page);
            if block.and(part) != block {
                self.discard_in_block(page, old, block);
                return;
            }
        }
        self.entries.set(page, Entry::None);
        self.release(old);
        self.slots.drop_copy(page);
    }

    fn discard_in_block(&self, page: Page, old: Entry, block: PageRange) {
        if old.is_dropped() {
            return;
        }
        self.entries.set(page, old.dropped());
        self.uncount(old);
        self.slots.drop_copy(page);
        if self.entries.contents_of(block) == 0 {
            for page in self.entries.pages_in(block) {
                self.forget_dropped(page);
            }
        }
    }

    /// The block of a page without contents comes in, or has none left: the entry is no part of it
    /// any more.
    pub fn forget_dropped(&self, page: Page) {
        let old = self.entries.get(page);
        self.entries.set(page, Entry::None);
        self.release(old);
    }

    /// Of `way`, from the page that leaves its block to the first behind it that has no piece, each
    /// entry gives its piece to the next: then the first has none.
    pub fn exit_block(&self, way: PageRange) {
        let block = self.entries.block_of(Page::from_index(way.start));
        #[expect(clippy::cast_possible_truncation, reason = "at most MAX_BLOCK_ORDER")]
        let order = block.len().ilog2() as u8;
        let mut piece = None;
        for page in self.entries.pages_in(way) {
            let entry = self.entries.get(page);
            let Some(age) = entry.age() else { continue };
            let dropped = entry.is_dropped();
            let passed = match entry {
                Entry::Stored { loc, size, .. } => Some((loc, size)),
                _ => None,
            };
            let new = match piece {
                None => Entry::Block {
                    order,
                    age,
                    dropped,
                },
                Some((loc, size)) => {
                    self.objects.set_owner(loc, page);
                    Entry::Stored {
                        loc,
                        size,
                        age,
                        // The copy under way is another page's.
                        writing: false,
                        content: if dropped {
                            Content::DroppedPiece
                        } else {
                            Content::BlockPiece
                        },
                    }
                }
            };
            self.entries.set(page, new);
            piece = passed;
        }
    }

    /// Takes what is stored of `page`, for another. Nothing names it until it is given. `None`: it
    /// is not stored alone.
    pub fn take(&self, page: Page, to: Page) -> Option<Entry> {
        let mut entry = match self.entries.get(page) {
            entry @ (Entry::Stored { .. } | Entry::Filled { .. }) if !entry.in_block() => entry,
            _ => return None,
        };
        self.entries.set(page, Entry::None);
        if let Entry::Stored { loc, writing, .. } = &mut entry {
            self.objects.set_owner(*loc, to);
            // The copy under way is another page's.
            *writing = false;
        }
        Some(entry)
    }

    /// Gives `page`, which is none, what was taken.
    pub fn give(&self, page: Page, entry: Entry) {
        self.entries.set(page, entry);
    }

    /// An entry is no longer in the table, and nothing that it held is kept.
    fn release(&self, old: Entry) {
        self.uncount(old);
        self.free(old);
    }

    /// Frees what an entry held.
    fn free(&self, old: Entry) {
        match old {
            Entry::Stored { loc, .. } => self.objects.free(loc),
            Entry::Swapped { location, size, .. } => self.slots.uncount(location, size),
            Entry::Filled { .. } | Entry::Block { .. } | Entry::None | Entry::Resident => {}
        }
    }

    /// The entry's page is not out of the arena any more, or not that way.
    fn uncount(&self, entry: Entry) {
        let counters = self.counters;
        if entry.is_evicted() && entry.in_block() {
            sub(&counters.block_pages, 1);
        }
        match entry {
            entry if entry.is_empty() => {}
            Entry::Swapped { .. } => sub(&counters.swapped_pages, 1),
            Entry::Stored { size, content, .. } => {
                sub(&counters.stored_pages, 1);
                if Tally::is_raw(size, content) {
                    sub(&counters.stored_incompressible_pages, 1);
                }
            }
            Entry::Filled { .. } => {
                sub(&counters.stored_pages, 1);
                sub(&counters.same_filled_pages, 1);
            }
            Entry::Block { .. } => sub(&counters.stored_pages, 1),
            Entry::None | Entry::Resident => {}
        }
    }

    /// An entry says that its object is on a device.
    fn count_swapped(&self, content: Content) {
        match content {
            Content::Page | Content::ReadAhead => add(&self.counters.swapped_pages, 1),
            Content::BlockPiece => {
                add(&self.counters.swapped_pages, 1);
                add(&self.counters.block_pages, 1);
            }
            Content::DroppedPiece => {}
        }
    }
}

/// From `page` to the entry that its piece, or that of one between, can go to. `None` if it may not
/// leave its block alone: little is left of that, a piece is not in the pool, or no other entry
/// without a piece would be the last.
pub fn exit_range(entries: &impl Entries, page: Page) -> Option<PageRange> {
    // Most pages that are asked for are in none: they are not looked at any further.
    let entry = entries.get(page);
    if !(entry.in_block() && entry.is_evicted()) {
        return None;
    }
    let block = entries.block_of(page);
    if entries.contents_of(block) * 2 <= wide(block.len()) {
        return None;
    }
    let mut end = None;
    // The last entry, and whether the one before it has a piece.
    let (mut last, mut has_piece, mut had_piece) = (page, true, true);
    for at in entries.pages_in(block) {
        (last, had_piece) = (at, has_piece);
        has_piece = match entries.get(at) {
            Entry::Stored { .. } => true,
            Entry::Block { .. } => false,
            _ => return None,
        };
        if !has_piece && at.index() >= page.index() {
            end = end.or(Some(at));
        }
    }
    let end = end?;
    (end != last || (end == page && !had_piece)).then_some(PageRange {
        start: page.index(),
        end: end.index() + 1,
    })
}
