//! *What*: compresses pages from the arena into the pool, in batches, while the program may still
//! read them (a write cancels their folio).
//!
//! A page that compresses becomes an [`object`](super::object). A page that does not is stored as
//! it is; its size, 4096 bytes, says so.
//!
//! *Invariants*: the caller publishes the entries that this gives to the operation's batch, or
//! frees them by `Store::forget_unpublished`; an incomplete block's are freed at once. The pages
//! stay mapped and readable throughout: their folio is isolated.
//! *Locking*: pool class. *Context*: signal, worker.

use crate::accel::{BATCH, Outcome};
use crate::op::{Op, OpGuard};
use crate::page::batch::BatchFolio;
use crate::page::block::Entries;
use crate::page::folio::CANCELLED;
use crate::page::{Age, Content, Entry, PAGE_SIZE, Page, PageRange, Pages};
use crate::store::codec::pick_compressor;
use crate::store::object::{MAX_COMPRESSED, Source, same_filled_word};
use crate::store::offload::Offload;
use crate::store::{Store, object};
use core::ops::Range;
use uzswap_compress::{CompressError, Compressor, Decompressor};
use uzswap_group::counters::add;
use uzswap_group::knobs::is_on;
use uzswap_io::crc::Crc32c;
use uzswap_pool::Loc;
use uzswap_sync::charge::Reserve;
use uzswap_sync::strict_assert;
use uzswap_sys::arch;

/// How pages are stored.
#[derive(Clone, Copy)]
pub(crate) struct StoreMode {
    /// When they were evicted.
    pub age: Age,
    /// Nobody can write to them meanwhile.
    pub stable: bool,
    /// With the operation's denser compressor.
    pub denser: bool,
}

/// Pages of one folio that are stored together.
struct Pieces {
    /// Their places in the operation's batch.
    places: Range<usize>,
    folio: u32,
    mode: StoreMode,
    /// The operation's store buffer: a page of it for each of these.
    buffer: *mut u8,
}

impl Pieces {
    /// The piece of the buffer that the page at place `at` is compressed to. Without accelerators
    /// that is always the first: the others are not charged.
    fn piece_of(&self, at: usize, offload: &Offload) -> *mut [u8] {
        let nr = if offload.is_empty() {
            0
        } else {
            at - self.places.start
        };
        let piece = self.buffer.wrapping_add(nr * PAGE_SIZE);
        core::ptr::slice_from_raw_parts_mut(piece, MAX_COMPRESSED)
    }
}

impl Store {
    /// Stores the pages of a folio of the operation's batch, as far as there is room and it is not
    /// cancelled: in blocks where they are to be, the others in batches.
    pub(crate) fn store_folio(
        &self,
        pages: &Pages,
        op: &mut OpGuard<'_>,
        folio: BatchFolio,
        mode: StoreMode,
    ) {
        let block = self.block_pages(pages, op, folio);
        let end = folio.first + folio.nr;
        let mut at = folio.first;
        // Nobody waits longer for a cancelled folio than for the page, batch or block in work.
        while at < end && !pages.folio(folio.index).has(CANCELLED) {
            if block > 1
                && let Some(range) = op.batch.block_at(at, end, block)
                && !pages.is_in_larger(range)
                && self.store_block(pages, op, at, range, mode)
            {
                at += block;
                continue;
            }
            let nr = op.batch.nr_within_block(at, end, block);
            let pieces = Pieces {
                places: at..at + nr.min(BATCH),
                folio: folio.index,
                mode,
                buffer: op.store.as_mut_ptr(),
            };
            at = pieces.places.end;
            if !self.store_pages(pages, op, &pieces) {
                break;
            }
        }
    }

    /// Stores a batch: accelerators compress what they take, this thread the rest meanwhile.
    /// `false`: no more of the folio can be stored, for want of room or because it was cancelled.
    /// Every page then has its entry or stays resident.
    fn store_pages(&self, pages: &Pages, op: &mut OpGuard<'_>, batch: &Pieces) -> bool {
        let offload = if batch.mode.denser {
            Offload::default()
        } else {
            self.submit_pages(op, batch.places.clone(), batch.buffer, batch.mode.age)
        };
        let storing = batch.places.clone().all(|at| {
            if offload.has(at) || op.batch.is_stored(at) {
                return true;
            }
            // SAFETY: a batch has no more pages than the buffer; no accelerator writes to the
            // piece of a page that it did not take.
            let piece = unsafe { &mut *batch.piece_of(at, &offload) };
            !pages.folio(batch.folio).has(CANCELLED) && self.store_page(pages, op, batch, at, piece)
        });
        self.complete(op, &offload);
        storing
            && offload.taken(op.jobs).all(|(at, outcome)| {
                // SAFETY: a batch has no more pages than the buffer; the accelerators are done.
                let piece = unsafe { &mut *batch.piece_of(at, &offload) };
                let object = match outcome {
                    Outcome::Done(len) => offload.seal(piece, len),
                    _ => None,
                };
                match object.filter(|object| self.is_right(pages, op, at, 1, object)) {
                    Some(object) => self.insert(op, batch, at, Ok(object)),
                    None if outcome == Outcome::Incompressible => {
                        self.insert(op, batch, at, Err(CompressError::Poor))
                    }
                    // Returned undone, or failed verification.
                    None => self.store_page(pages, op, batch, at, piece),
                }
            })
    }

    /// Stores the page at place `at` of the operation's batch, compressing it to `piece`, if there
    /// is room.
    #[inline]
    fn store_page(
        &self,
        pages: &Pages,
        op: &mut Op,
        batch: &Pieces,
        at: usize,
        piece: &mut [u8],
    ) -> bool {
        let Some(place) = op.batch.pages.get_mut(at) else {
            strict_assert!(false, "a place outside the batch");
            return false;
        };
        let page = place.page;
        if is_on(&self.account.knobs().same_filled_pages_enabled) {
            // SAFETY: the page is mapped and readable: its folio is isolated by this thread.
            if let Some(word) = unsafe { same_filled_word(page) } {
                let age = batch.mode.age;
                place.entry = Entry::Filled { word, age };
                return true;
            }
        }
        // The next page is cold, or it would not be here: fetched while this one is compressed, it
        // costs nothing.
        if let Some(next) = op.batch.pages.get(at + 1) {
            arch::prefetch(next.page.addr(), PAGE_SIZE);
        }
        let range = PageRange::one(page);
        // SAFETY: as above.
        let made = unsafe {
            let compressor = pick_compressor(&mut op.compressor, &mut op.denser, batch.mode.denser);
            self.make_object(compressor, range, piece, batch.mode.stable)
        };
        let object = made.and_then(|size| {
            let object = piece.get(..size);
            object
                .filter(|object| self.is_right(pages, op, at, 1, object))
                .ok_or(CompressError::Failed)
        });
        self.insert(op, batch, at, object)
    }

    /// Whether `object` makes the `nr` pages from place `at` of the operation's batch on again, if
    /// that is to be looked at.
    #[inline]
    pub(crate) fn is_right(
        &self,
        pages: &Pages,
        op: &mut Op,
        at: usize,
        nr: usize,
        object: &[u8],
    ) -> bool {
        !is_on(&self.account.knobs().verify_compress) || self.verify(pages, op, at, nr, object)
    }

    fn verify(&self, pages: &Pages, op: &mut Op, at: usize, nr: usize, object: &[u8]) -> bool {
        let (Some(place), Some(out)) = (op.batch.pages.get(at), op.load.get_mut(..nr * PAGE_SIZE))
        else {
            return false;
        };
        let source = place.page.addr() as *const u64;
        let right = object::unpack(&mut op.decompressor, object, out).is_ok()
            && out
                .chunks_exact(size_of::<u64>())
                .enumerate()
                .all(|(nr, word)| {
                    // SAFETY: the pages are mapped and readable: their folio is isolated by this
                    // thread. Volatile, as a program whose write has just cancelled that may be
                    // changing them.
                    let there = unsafe { source.add(nr).read_volatile() };
                    word == there.to_ne_bytes()
                });
        // What is cancelled may differ, and will be dropped.
        if !right && !pages.folio_of(place.page).has(CANCELLED) {
            add(&self.account.counters().verify_compress_fail, 1);
        }
        right
    }

    /// Whether `object` makes what it was made of, which `buffer` holds, if that is to be looked
    /// at: told by a checksum, since it is decoded there.
    pub(crate) fn is_right_in(
        &self,
        decompressor: &mut Decompressor,
        object: &[u8],
        buffer: &mut [u8],
    ) -> bool {
        if !is_on(&self.account.knobs().verify_compress) {
            return true;
        }
        let sum = |bytes: &[u8]| Crc32c::new().with(bytes).value();
        let before = sum(buffer);
        let right = object::unpack(decompressor, object, buffer).is_ok() && sum(buffer) == before;
        if !right {
            add(&self.account.counters().verify_compress_fail, 1);
        }
        right
    }

    /// Gives the page at place `at` of the operation's batch an object in the pool, if there is
    /// room: the one that was made, or the page as it is.
    #[inline]
    fn insert(
        &self,
        op: &mut Op,
        batch: &Pieces,
        at: usize,
        made: Result<&[u8], CompressError>,
    ) -> bool {
        let Some(place) = op.batch.pages.get_mut(at) else {
            strict_assert!(false, "a place outside the batch");
            return false;
        };
        let (data, size) = match made {
            Ok(object) => (object.as_ptr(), object.len()),
            Err(error) => {
                add(
                    match error {
                        CompressError::Poor => &self.account.counters().reject_compress_poor,
                        CompressError::Failed => &self.account.counters().reject_compress_fail,
                    },
                    1,
                );
                (place.page.addr() as *const u8, PAGE_SIZE)
            }
        };
        // SAFETY: the data are the object or the page, which is mapped and readable.
        let loc = unsafe { self.put_object(&mut op.reserve, place.page, data, size) };
        let Some((loc, size)) = loc.zip(u16::try_from(size).ok()) else {
            return false;
        };
        if made.is_err() {
            // SAFETY: mapped and readable, as above. If it is written to, nobody will see what was
            // noted.
            self.note_raw(loc, unsafe {
                core::slice::from_raw_parts(data, size.into())
            });
        }
        place.entry = Entry::Stored {
            loc,
            size,
            age: batch.mode.age,
            writing: false,
            content: Content::Page,
        };
        true
    }

    /// Compresses `pages` into one object, at most as large as `room`. Returns its bytes. `stable`:
    /// nobody can write to them meanwhile.
    ///
    /// # Safety
    /// The pages are mapped and readable, and stay so: their folio is isolated by this thread.
    pub(crate) unsafe fn make_object(
        &self,
        compressor: &mut Compressor,
        pages: PageRange,
        room: &mut [u8],
        stable: bool,
    ) -> Result<usize, CompressError> {
        // SAFETY: the caller's promise.
        let source = unsafe { Source::new(pages.addr(), pages.bytes(), stable) };
        let checked = is_on(&self.account.knobs().checksum);
        object::pack(compressor, source, checked, room)
    }

    /// Makes an object of the page's, of `size` bytes at `data`, if there is room.
    ///
    /// # Safety
    /// `data` is readable for `size` bytes.
    pub(crate) unsafe fn put_object(
        &self,
        reserve: &mut Reserve<'static>,
        page: Page,
        data: *const u8,
        size: usize,
    ) -> Option<Loc> {
        let Ok(loc) = self.pool.alloc(size, page.owner(), reserve) else {
            add(&self.account.counters().reject_alloc_fail, 1);
            return None;
        };
        // SAFETY: the new object has `size` bytes and is not published; the source by the caller's
        // promise.
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

    /// Stores a page as `object`, if there is room for it in `reserve`. The entry is not published.
    pub(crate) fn put_page(
        &self,
        reserve: &mut Reserve<'static>,
        page: Page,
        object: &[u8],
        age: Age,
        content: Content,
    ) -> Option<Entry> {
        // SAFETY: a slice is readable.
        let loc = unsafe { self.put_object(reserve, page, object.as_ptr(), object.len()) }?;
        Some(Entry::Stored {
            loc,
            size: u16::try_from(object.len()).ok()?,
            age,
            writing: false,
            content,
        })
    }

    /// Frees an entry's object that was never published.
    pub(crate) fn forget_unpublished(&self, entry: Entry) {
        if let Entry::Stored { loc, .. } = entry {
            // SAFETY: never published, so this thread is its only holder.
            unsafe { self.pool.free(loc, self.account.charge()) };
        }
    }
}
