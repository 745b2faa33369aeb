//! *What*: blocks: pages next to each other that are compressed as one, because together they take less.
//!
//! A block is up to 16 pages of one folio, aligned. It is compressed to one object, which is cut into pieces of a page
//! at most; they are in the entries of its first pages, in order, objects of pool or
//! device like any other: each is moved by compaction, written back and freed alone. The pages behind the
//! last piece have an entry that says how large the block is, and the last page always is such, so a block is
//! found from any page in it. Pages may leave it ([`leave`](super::leave)): their entries are as if it were not there.
//!
//! | what happens | to the block |
//! |---|---|
//! | its pages are evicted together | becomes one, if that takes no more than three quarters of them |
//! | its pages stay cold in the pool, alone or in smaller blocks | becomes one, if that takes less: `densify` |
//! | fault on a page that nobody seems to go on from | stays, while half of it is left; the page comes in and is out of it: `leave` |
//! | any other fault, pin, mremap of a page | brought in whole: every page that has contents is resident, the others are nowhere |
//! | part of it dropped (unmapped, discarded) | stays; those pages' entries say that their contents are gone |
//! | the last of it dropped | its pieces are freed |
//! | a dropped page is touched | brought in; what was dropped is then a fresh page |
//! | writeback, compaction | piece by piece: some may be in the pool and some on the device |
//! | fork | the child has a copy |
//!
//! Nothing of a block is written back into it: a write is a fault.
//!
//! *Invariants*: the entries of a block change from evicted pages to a block, and from a block to no block, under
//! one hold of their folio. No page in a block is resident; pages of its range that left it may be anything but in
//! a block: none is made where a larger one has pages left. A range that takes part of a block brings nothing
//! of it in, so whoever brings pages in asks for [`Parts::whole_blocks`].
//! *Locking*: the folio, held by the caller; without it what is found is a hint. *Context*: signal, worker.

use super::Parts;
use super::auto::either;
use super::load::LoadError;
use super::object::{Undecodable, unpack_first};
use super::store::same_filled_word;
use crate::arena::{PAGE_SIZE, Page, PageRange, wide};
use crate::folio::{FolioGuard, RUNS_OF_4, RUNS_OF_16};
use crate::slot::SlotInner;
use crate::table::{Age, Entry, Holds};
use uzswap_compress::Compressor;
use uzswap_group::counters::{add, sub};
use uzswap_group::knobs::{BLOCK_AUTO, is_on};
use uzswap_sync::charge::Reserve;
use uzswap_sync::primitive::Ordering;

/// log2 of the pages of the largest block.
pub(crate) const MOST_BLOCK_ORDER: u64 = 4;
const MOST_BLOCK: usize = 1 << MOST_BLOCK_ORDER;

/// Bytes that `nr` pages are stored as a block in, at most: else they stay apart.
pub(super) const fn most_of_block(nr: usize) -> usize {
    // Whole pages, so that the last page never has a piece.
    nr * 3 / 4 * PAGE_SIZE
}

impl Parts {
    /// The block that `page` is in, or the page alone.
    pub(crate) fn block_of(&self, page: Page) -> PageRange {
        let at = page.index();
        if self.table.is_ready(page) && self.table.get(page).in_block() {
            for index in at..(at | (MOST_BLOCK - 1)) + 1 {
                if let Entry::Block { order, .. } = self.table.get(Page::from_index(index)) {
                    let nr = 1 << u64::from(order).min(MOST_BLOCK_ORDER);
                    let start = at & !(nr - 1);
                    return PageRange {
                        start,
                        end: start + nr,
                    };
                }
            }
        }
        PageRange::one(page)
    }

    /// The pages that are still in `block`.
    pub(super) fn pages_in(&self, block: PageRange) -> impl DoubleEndedIterator<Item = Page> {
        let is_in = |page: &Page| self.table.get(*page).in_block();
        block.pages().filter(is_in)
    }

    /// Pages of a block that have contents: so many become resident with it.
    pub(crate) fn contents_of(&self, block: PageRange) -> u64 {
        let evicted = |page: &Page| self.table.get(*page).is_evicted();
        wide(self.pages_in(block).filter(evicted).count())
    }

    /// `range` and the rest of the blocks at its ends.
    pub(crate) fn whole_blocks(&self, range: PageRange) -> PageRange {
        if range.is_empty() || !self.table.is_ready(Page::from_index(range.start)) {
            return range;
        }
        // The page at an end may have left the block that it lies in: others are still in that.
        let reach = |index: usize| PageRange {
            start: index & !(MOST_BLOCK - 1),
            end: (index | (MOST_BLOCK - 1)) + 1,
        };
        let first = self.pages_in(range.and(reach(range.start))).next();
        let last = self.pages_in(range.and(reach(range.end - 1))).next_back();
        PageRange {
            start: first.map_or(range.start, |page| {
                self.block_of(page).start.min(range.start)
            }),
            end: last.map_or(range.end, |page| self.block_of(page).end.max(range.end)),
        }
    }

    /// Whether `range` lies in a larger block that has pages left: no block may be made there.
    pub(super) fn is_in_larger(&self, range: PageRange) -> bool {
        let start = range.start & !(MOST_BLOCK - 1);
        let around = PageRange {
            start,
            end: start + MOST_BLOCK,
        };
        range.len() < MOST_BLOCK
            && self.pages_in(around).any(|page| {
                let block = self.block_of(page);
                block.len() > range.len() && block.and(range) == range
            })
    }

    /// log2 of the pages that the folio's blocks have if it is stored with that compressor now; 0 for none.
    pub(crate) fn block_order(&self, compressor: &Compressor, folio: u32) -> u32 {
        let folio = self.folios.at(folio);
        let order = match self.group.knobs.block.load(Ordering::Relaxed) {
            BLOCK_AUTO if folio.has(RUNS_OF_16) => 4,
            BLOCK_AUTO if folio.has(RUNS_OF_4) => 2,
            BLOCK_AUTO => 0,
            order => u32::try_from(order).unwrap_or(0),
        };
        let most = (compressor.max_block() / PAGE_SIZE).ilog2();
        order.min(most).min(self.folios.order())
    }

    /// Pages of the folio came back in a run of `nr` that the program asked for one after the other.
    pub(crate) fn note_run(&self, guard: &FolioGuard<'_>, nr: usize) {
        let runs = match nr {
            16.. => RUNS_OF_16,
            4.. => RUNS_OF_4,
            _ => 0,
        };
        let others = (RUNS_OF_4 | RUNS_OF_16) & !runs;
        if guard.has(others) {
            guard.clear(others);
        }
        if runs != 0 && !guard.has(runs) {
            guard.set(runs);
        }
    }

    /// Stores `block`, the pages of the slot's batch from `at` on. `false`: they are better stored one by one.
    pub(crate) fn store_block(
        &self,
        slot: &mut SlotInner,
        at: usize,
        block: PageRange,
        age: Age,
        alone: bool,
        denser: bool,
    ) -> bool {
        let look = is_on(&self.group.knobs.same_filled_pages_enabled);
        // SAFETY: its pages are mapped and readable: their folio is isolated by this thread.
        let is_filled = |page| unsafe { same_filled_word(page) }.is_some();
        // Entries can hold them: then they take no room at all.
        if look && block.pages().all(is_filled) {
            return false;
        }
        let Some(room) = slot.store.get_mut(..most_of_block(block.len())) else {
            return false;
        };
        let compressor = either(&mut slot.compressor, &mut slot.denser, denser);
        // SAFETY: as above.
        let size = unsafe { self.make_object(compressor, block, room, alone) };
        let Ok(size) = size else { return false };
        let object = slot.store.as_ptr();
        // SAFETY: the bytes just made, of the store buffer, which verifying leaves as it is.
        let object = unsafe { core::slice::from_raw_parts(object, size) };
        if !self.is_right(slot, at, block.len(), object) {
            return false;
        }
        let SlotInner {
            store,
            batch,
            reserve,
            ..
        } = slot;
        let (Some(object), Some(places)) =
            (store.get(..size), batch.pages.get_mut(at..at + block.len()))
        else {
            return false;
        };
        let Some(entries) = self.cut(reserve, object, block, |_| age) else {
            return false;
        };
        for (place, entry) in places.iter_mut().zip(entries) {
            place.entry = entry;
        }
        true
    }

    /// Cuts `object` into the pieces of `block`, if there is room for them. The entries are not published.
    pub(super) fn cut(
        &self,
        reserve: &mut Reserve<'static>,
        object: &[u8],
        block: PageRange,
        age_of: impl Fn(Page) -> Age,
    ) -> Option<[Entry; MOST_BLOCK]> {
        #[expect(clippy::cast_possible_truncation, reason = "at most MOST_BLOCK_ORDER")]
        let order = block.len().ilog2() as u8;
        let mut pieces = object.chunks(PAGE_SIZE);
        let mut entries = [Entry::None; MOST_BLOCK];
        for (page, place) in block.pages().zip(&mut entries) {
            let age = age_of(page);
            let entry = match pieces.next() {
                Some(piece) => self.store_piece(reserve, page, piece, age),
                None => Some(Entry::Block {
                    order,
                    age,
                    dropped: false,
                }),
            };
            if let Some(entry) = entry {
                *place = entry;
            } else {
                for entry in entries {
                    self.forget_unpublished(entry);
                }
                return None;
            }
        }
        Some(entries)
    }

    /// Stores a piece of a block, if there is room.
    fn store_piece(
        &self,
        reserve: &mut Reserve<'static>,
        page: Page,
        piece: &[u8],
        age: Age,
    ) -> Option<Entry> {
        // SAFETY: the piece is in the store buffer.
        let loc = unsafe { self.put_object(reserve, page, piece.as_ptr(), piece.len()) }?;
        Some(Entry::Stored {
            loc,
            size: u16::try_from(piece.len()).ok()?,
            age,
            writing: false,
            holds: Holds::Piece,
        })
    }

    /// Decodes the first `nr` pages of `block` at least into the slot's load buffer at byte `at`, where there is room for all.
    pub(crate) fn load_block(
        &self,
        slot: &mut SlotInner,
        block: PageRange,
        nr: usize,
        at: usize,
    ) -> Result<(), LoadError> {
        let page = Page::from_index(block.start);
        let (unreadable, damaged) = (LoadError::Unreadable(page), LoadError::Damaged(page));
        let mut len = 0;
        for page in self.pages_in(block) {
            len += match self.table.get(page) {
                Entry::Stored { loc, size, .. } => {
                    let data = self.pool.data_ptr(loc);
                    // SAFETY: the object lives and does not move while the folio is held; it has
                    // `size` bytes.
                    let data = unsafe { core::slice::from_raw_parts(data, usize::from(size)) };
                    append(slot.store, len, data)
                }
                Entry::Swapped { .. } => {
                    let SlotInner { swap_in, store, .. } = &mut *slot;
                    self.swap_in(swap_in, page, block, |data, _| append(store, len, data))
                        .unwrap_or(None)
                }
                _ => continue,
            }
            .ok_or(unreadable)?;
        }
        let object = slot.store.get(..len).ok_or(damaged)?;
        let out = slot.load.get_mut(at..at + block.bytes()).ok_or(damaged)?;
        let first = nr * PAGE_SIZE;
        self.told(unpack_first(&mut slot.decompressor, object, first, out))
            .map_err(|Undecodable| damaged)
    }

    /// Takes `page`'s contents out of its block, of which other pages stay, and the block with them.
    pub(crate) fn drop_from_block(&self, page: Page, entry: Entry) {
        if entry.is_dropped() {
            return;
        }
        self.table.set(page, entry.dropped());
        self.uncount(entry);
        self.forget_copy(page);
        let block = self.block_of(page);
        if self.contents_of(block) == 0 {
            for page in self.pages_in(block) {
                let entry = self.table.get(page);
                self.table.set(page, Entry::None);
                self.forget(entry);
            }
        }
    }

    /// An entry says that its object is on the device.
    pub(crate) fn count_swapped(&self, holds: Holds) {
        let counters = self.counters();
        match holds {
            Holds::Page | Holds::Ahead => add(&counters.swapped_pages, 1),
            Holds::Piece => {
                add(&counters.swapped_pages, 1);
                add(&counters.block_pages, 1);
            }
            Holds::Remains => {}
        }
    }

    /// The entry's page is not out of the arena any more.
    pub(crate) fn uncount(&self, entry: Entry) {
        let counters = self.counters();
        if entry.is_evicted() && entry.in_block() {
            sub(&counters.block_pages, 1);
        }
        match entry {
            entry if entry.is_empty() => {}
            Entry::Swapped { .. } => sub(&counters.swapped_pages, 1),
            Entry::Stored { size, holds, .. } => {
                sub(&counters.stored_pages, 1);
                if holds.is_page() && usize::from(size) == PAGE_SIZE {
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
}

/// Puts `data` behind the first `len` bytes of `buffer`; their number.
fn append(buffer: &mut [u8], len: usize, data: &[u8]) -> Option<usize> {
    buffer.get_mut(len..len + data.len())?.copy_from_slice(data);
    Some(data.len())
}
