//! *What*: store: pages of the arena compressed into the pool, batch by batch, in place, while the program may
//! go on reading (and, to its reclaimer's loss, writing) them.
//!
//! A page that compresses becomes an [`object`](super::object). A page that does not is kept as it is, 4096 bytes, by
//! which it is known.
//!
//! *Invariants*: the entries that places of the slot's batch get are published by the caller or given back with
//! `Parts::forget_unpublished`, those of a block at once if the block is not had whole. The pages are mapped and readable while this
//! runs: their folio is isolated.
//! *Locking*: pool class only. *Context*: signal, worker.

use core::ops::Range;

use super::Parts;
use super::accel::Offered;
use super::auto::either;
use super::object::{self, Source};
use crate::accel::{BATCH, Outcome};
use crate::arena::{PAGE_SIZE, Page, PageRange, wide};
use crate::folio::CANCELLED;
use crate::slot::{BatchFolio, SlotGuard, SlotInner};
use crate::table::{Age, Entry, Holds};
use uzswap_compress::{CompressError, Compressor, Decompressor, same_filled};
use uzswap_group::counters::add;
use uzswap_group::knobs::is_on;
use uzswap_io::crc::Crc32c;
use uzswap_pool::Loc;
use uzswap_sync::charge::Reserve;
use uzswap_sys::arch;

/// An object larger than this is kept raw: it would save less than decoding it costs.
pub(super) const MOST_COMPRESSED: usize = PAGE_SIZE - 64;

/// A batch of pages, all of one folio, being stored.
struct Batch {
    /// Their places in the slot's batch.
    places: Range<usize>,
    folio: u32,
    age: Age,
    /// Nobody can write to them meanwhile.
    alone: bool,
    /// They are compressed with the slot's denser compressor.
    denser: bool,
}

impl Parts {
    /// Stores the pages of a folio of the slot's batch, as far as there is room and it is not cancelled: in blocks where they are to
    /// be, the others in batches.
    pub(super) fn store_folio(
        &self,
        slot: &mut SlotGuard<'_>,
        folio: BatchFolio,
        age: Age,
        alone: bool,
    ) {
        let denser = folio.denser;
        let inner = &mut **slot;
        let compressor = either(&mut inner.compressor, &mut inner.denser, denser);
        let block = 1 << self.block_order(compressor, folio.index);
        self.sample(slot, folio, block, alone);
        let end = folio.first + folio.nr;
        let mut at = folio.first;
        // Nobody waits longer for a cancelled folio than for the page, batch or block in work.
        while at < end && !self.folios.at(folio.index).has(CANCELLED) {
            if block > 1
                && let Some(pages) = slot.batch.block_at(at, end, block)
                && !self.is_in_larger(pages)
                && self.store_block(slot, at, pages, age, alone, denser)
            {
                at += block;
                continue;
            }
            let nr = slot.batch.nr_within_block(at, end, block);
            let batch = Batch {
                places: at..at + nr.min(BATCH),
                folio: folio.index,
                age,
                alone,
                denser,
            };
            at = batch.places.end;
            if !self.store_pages(slot, &batch) {
                break;
            }
        }
    }

    /// Stores a batch: what devices take is theirs, and the others are done here meanwhile, one after the other. `false`: no more
    /// can be stored of the folio. Every page either has its entry then or stays as it was.
    fn store_pages(&self, slot: &mut SlotGuard<'_>, batch: &Batch) -> bool {
        let pieces = slot.store.as_mut_ptr();
        let offered = if batch.denser {
            Offered::default()
        } else {
            self.offer_pages(slot, batch.places.clone(), pieces, batch.age)
        };
        let piece_of = |at: usize| {
            // Without devices no other piece may be touched: it is not charged.
            let piece = if offered.is_empty() {
                0
            } else {
                at - batch.places.start
            };
            // SAFETY: a batch has no more pages than the buffer; the piece is not one that a device writes to.
            unsafe {
                core::slice::from_raw_parts_mut(pieces.add(piece * PAGE_SIZE), MOST_COMPRESSED)
            }
        };
        let mut going_on = true;
        for at in batch.places.clone() {
            if offered.has(at) || slot.batch.is_stored(at) {
                continue;
            }
            going_on = !self.folios.at(batch.folio).has(CANCELLED)
                && self.store_page(slot, batch, at, piece_of(at));
            if !going_on {
                break;
            }
        }
        self.settle(slot, &offered);
        for (at, outcome) in offered.taken(slot.jobs) {
            if !going_on {
                break;
            }
            let object = match outcome {
                Outcome::Made(len) => offered.seal(piece_of(at), len),
                _ => None,
            };
            going_on = match object.filter(|object| self.is_right(slot, at, 1, object)) {
                Some(object) => self.keep(slot, batch, at, Ok(object)),
                None if outcome == Outcome::Poor => {
                    self.keep(slot, batch, at, Err(CompressError::Poor))
                }
                // Given back, or wrong.
                None => self.store_page(slot, batch, at, piece_of(at)),
            };
        }
        going_on
    }

    /// Stores the page at place `at` of the slot's batch, compressing it to `piece`, if there is room.
    #[inline]
    fn store_page(&self, slot: &mut SlotInner, batch: &Batch, at: usize, piece: &mut [u8]) -> bool {
        let Some(place) = slot.batch.pages.get_mut(at) else {
            return false;
        };
        let page = place.page;
        if is_on(&self.group.knobs.same_filled_pages_enabled) {
            // SAFETY: the page is mapped and readable: its folio is isolated by this thread.
            if let Some(word) = unsafe { same_filled_word(page) } {
                let age = batch.age;
                place.entry = Entry::Filled { word, age };
                return true;
            }
        }
        // The next page is cold, or it would not be here: fetched while this one is compressed, it
        // costs nothing.
        if let Some(next) = slot.batch.pages.get(at + 1) {
            arch::prefetch(next.page.addr(), PAGE_SIZE);
        }
        let pages = PageRange::one(page);
        // SAFETY: as above.
        let made = unsafe {
            let compressor = either(&mut slot.compressor, &mut slot.denser, batch.denser);
            self.make_object(compressor, pages, piece, batch.alone)
        };
        let object = made.and_then(|size| {
            let object = piece.get(..size);
            object
                .filter(|object| self.is_right(slot, at, 1, object))
                .ok_or(CompressError::Failed)
        });
        self.keep(slot, batch, at, object)
    }

    /// Whether `object` makes the `nr` pages from place `at` of the slot's batch on again, if that is to be looked at.
    #[inline]
    pub(super) fn is_right(
        &self,
        slot: &mut SlotInner,
        at: usize,
        nr: usize,
        object: &[u8],
    ) -> bool {
        !is_on(&self.group.knobs.verify_compress) || self.verify(slot, at, nr, object)
    }

    fn verify(&self, slot: &mut SlotInner, at: usize, nr: usize, object: &[u8]) -> bool {
        let (Some(place), Some(out)) = (
            slot.batch.pages.get(at),
            slot.load.get_mut(..nr * PAGE_SIZE),
        ) else {
            return false;
        };
        let source = place.page.addr() as *const u64;
        let right = object::unpack(&mut slot.decompressor, object, out).is_ok()
            && out
                .chunks_exact(size_of::<u64>())
                .enumerate()
                .all(|(nr, word)| {
                    // SAFETY: the pages are mapped and readable: their folio is isolated by this thread. Volatile, as a
                    // program whose write has just cancelled that may be changing them.
                    let there = unsafe { source.add(nr).read_volatile() };
                    word == there.to_ne_bytes()
                });
        // What is cancelled may differ, and will be dropped.
        if !right && !self.folios.of(place.page).has(CANCELLED) {
            add(&self.counters().verify_compress_fail, 1);
        }
        right
    }

    /// Whether `object` makes what it was made of, which `buffer` holds, if that is to be looked at: told by a checksum, since it is decoded
    /// there.
    pub(super) fn is_right_in(
        &self,
        decompressor: &mut Decompressor,
        object: &[u8],
        buffer: &mut [u8],
    ) -> bool {
        if !is_on(&self.group.knobs.verify_compress) {
            return true;
        }
        let sum = |bytes: &[u8]| Crc32c::new().with(bytes).value();
        let before = sum(buffer);
        let right = object::unpack(decompressor, object, buffer).is_ok() && sum(buffer) == before;
        if !right {
            add(&self.counters().verify_compress_fail, 1);
        }
        right
    }

    /// Gives the page at place `at` of the slot's batch an object in the pool, if there is room: the one that was made, or the
    /// page as it is.
    #[inline]
    fn keep(
        &self,
        slot: &mut SlotInner,
        batch: &Batch,
        at: usize,
        made: Result<&[u8], CompressError>,
    ) -> bool {
        let Some(place) = slot.batch.pages.get_mut(at) else {
            return false;
        };
        let (data, size) = match made {
            Ok(object) => (object.as_ptr(), object.len()),
            Err(error) => {
                add(
                    match error {
                        CompressError::Poor => &self.counters().reject_compress_poor,
                        CompressError::Failed => &self.counters().reject_compress_fail,
                    },
                    1,
                );
                (place.page.addr() as *const u8, PAGE_SIZE)
            }
        };
        // SAFETY: the data are the object or the page, which is mapped and readable.
        let loc = unsafe { self.put_object(&mut slot.reserve, place.page, data, size) };
        let Some((loc, size)) = loc.zip(u16::try_from(size).ok()) else {
            return false;
        };
        if made.is_err() && is_on(&self.group.knobs.checksum) {
            // SAFETY: mapped and readable, as above. If it is written to, nobody will see what was noted.
            let note = object::note_of(unsafe { core::slice::from_raw_parts(data, PAGE_SIZE) });
            // SAFETY: an object of a page, not published yet.
            unsafe { self.pool.set_note(loc, note) };
        }
        place.entry = Entry::Stored {
            loc,
            size,
            age: batch.age,
            writing: false,
            holds: Holds::Page,
        };
        true
    }

    /// Compresses `pages` into one object, at most as large as `room`. Returns its bytes. `alone`: nobody can write to them meanwhile.
    ///
    /// # Safety
    /// The pages are mapped and readable, and stay so: their folio is isolated by this thread.
    pub(super) unsafe fn make_object(
        &self,
        compressor: &mut Compressor,
        pages: PageRange,
        room: &mut [u8],
        alone: bool,
    ) -> Result<usize, CompressError> {
        // SAFETY: the caller's promise.
        let source = unsafe { Source::new(pages.addr(), pages.bytes(), alone) };
        let checked = is_on(&self.group.knobs.checksum);
        object::pack(compressor, source, checked, room)
    }

    /// Makes an object of the page's, of `size` bytes at `data`, if there is room.
    ///
    /// # Safety
    /// `data` is readable for `size` bytes.
    pub(super) unsafe fn put_object(
        &self,
        reserve: &mut Reserve<'static>,
        page: Page,
        data: *const u8,
        size: usize,
    ) -> Option<Loc> {
        let Ok(loc) = self.pool.alloc(size, page.owner(), reserve) else {
            add(&self.counters().reject_alloc_fail, 1);
            return None;
        };
        // SAFETY: the new object has `size` bytes and is not published; the source by the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(data, self.pool.data_ptr(loc), size) };
        #[cfg(feature = "fault-injection")]
        self.damage_stored(loc, size);
        Some(loc)
    }

    /// An object that was put into the pool is damaged, if the plan says so.
    #[cfg(feature = "fault-injection")]
    fn damage_stored(&self, loc: Loc, size: usize) {
        // SAFETY: an object of that size, which nobody knows of yet.
        let data = unsafe { core::slice::from_raw_parts_mut(self.pool.data_ptr(loc), size) };
        self.pool_injector.damage_stored(data);
    }

    /// Frees what was made for a place of a batch and nobody saw.
    pub(crate) fn forget_unpublished(&self, entry: Entry) {
        if let Entry::Stored { loc, .. } = entry {
            // SAFETY: never published, so this thread is its only holder.
            unsafe { self.pool.free(loc, self.charge) };
        }
    }

    /// Counts what was published of a folio.
    pub(crate) fn count_stored(&self, stored: &Stored) {
        let counters = self.counters();
        add(&counters.stored_pages, wide(stored.pages));
        if stored.filled > 0 {
            add(&counters.same_filled_pages, wide(stored.filled));
        }
        if stored.in_blocks > 0 {
            add(&counters.block_pages, wide(stored.in_blocks));
        }
        if stored.raw > 0 {
            add(&counters.stored_incompressible_pages, wide(stored.raw));
        }
    }
}

/// The word that a page repeats, if an entry can hold it.
///
/// # Safety
/// The page is mapped and readable.
pub(super) unsafe fn same_filled_word(page: Page) -> Option<u64> {
    // SAFETY: the caller's promise.
    unsafe { same_filled::same_filled(page.addr() as *const u8, PAGE_SIZE) }
        .filter(|&word| Entry::can_fill(word))
}

/// What was stored of a folio, in pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stored {
    pub pages: usize,
    filled: usize,
    raw: usize,
    in_blocks: usize,
}

impl Stored {
    /// Pages that a codec made smaller.
    pub(crate) const fn compressed(&self) -> usize {
        self.pages - self.filled - self.raw
    }

    /// One more page has this entry.
    pub(crate) fn add(&mut self, entry: Entry) {
        self.pages += 1;
        self.in_blocks += usize::from(entry.in_block());
        match entry {
            Entry::Filled { .. } => self.filled += 1,
            Entry::Stored { size, holds, .. }
                if holds.is_page() && usize::from(size) == PAGE_SIZE =>
            {
                self.raw += 1;
            }
            _ => {}
        }
    }
}
