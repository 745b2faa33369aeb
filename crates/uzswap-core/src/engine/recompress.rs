//! *What*: recompress: pages of the pool that the fast codec of `--compressor auto` made are compressed once more, by its
//! denser one, before the pool is written back.
//!
//! When [`auto`](super::auto) goes over to the denser codec the pool is full of what the fast one made. Each page of that
//! which is written has to be read again, at many times what it costs to make it denser, and where everything just fits densely nothing
//! need be written at all. So while samples say that much is gained by it, each run that is to be written is preceded by a
//! step of a sweep over the page table. It takes what has been out for longer than the resident set turns over: what is younger
//! may come back before it is worth it. A sweep that has ended is followed by the next one
//! when as many pages were evicted as the limit has.
//!
//! *Invariants*: an entry changes under its folio's lock, which is only tried for, from the decoding of its object to the publishing of
//! the new one; it keeps its age, so the order of writeback stays. What is new is allocated before what is old is freed, out of what the slot's
//! reserve holds beyond [`RESERVE_PAGES`], and is smaller.
//! *Locking*: slot → [`Sweep`] (tried) → folio (tried) → pool class. *Context*: signal, worker.

use super::Parts;
use super::object::{self, Source};
use super::store::{MOST_COMPRESSED, Stored};
use crate::arena::{PAGE_SIZE, Page, PageRange, wide};
use crate::slot::{RESERVE_PAGES, SlotGuard, SlotInner};
use crate::table::Entry;
use uzswap_group::counters::add;
use uzswap_group::knobs::is_on;
use uzswap_pool::Pool;

/// Pages of a step, which takes about as long as a run is written in.
const STEP: usize = 32;
/// Pages that a step looks at, at most.
const MOST_LOOKS: usize = 4096;
/// Pages that must be set aside for what is new, or as many of the pool are looked for that hold nothing.
const ASIDE: u64 = 24;
/// What is new must be smaller than what was there by this part of it.
const LEAST_GAIN: usize = 8;

/// Where the sweep stands.
#[derive(Debug)]
pub(super) struct Sweep {
    /// The page that it has come to; 0 when it has ended.
    hand: usize,
    /// The eviction clock when the last one ended.
    ended: Option<u64>,
}

impl Sweep {
    /// None yet.
    pub(super) const fn new() -> Self {
        Sweep {
            hand: 0,
            ended: None,
        }
    }
}

impl Parts {
    /// Recompresses some pages of the pool, if that is worth it, or leaves it to another thread that is at it. `false`: it is not,
    /// or there are none.
    pub(super) fn recompress(&self, slot: &mut SlotGuard<'_>) -> bool {
        if !self.auto.recompresses() || slot.denser.is_none() {
            return false;
        }
        // What it makes room for need not be written.
        let Some(mut sweep) = self.auto.sweep.try_lock() else {
            return true;
        };
        let limit = self.charge.limit();
        let rests = |ended| self.clock.pages_since(ended, limit) < limit;
        if sweep.hand == 0 && sweep.ended.is_some_and(rests) {
            return false;
        }
        if slot.reserve.pages() < RESERVE_PAGES + ASIDE {
            self.make_pool_smaller(slot, ASIDE);
        }
        let nr = self.step(slot, &mut sweep);
        add(&self.counters().recompressed_pages, wide(nr));
        self.compact_if_worth(slot, 0);
        nr > 0
    }

    /// A step of the sweep. Returns how many pages became denser: none at its end, or if there is no room.
    fn step(&self, slot: &mut SlotGuard<'_>, sweep: &mut Sweep) -> usize {
        let (mut nr, mut looks) = (0, 0);
        for chunk in self.table.ready_chunks(sweep.hand) {
            let end = chunk.end;
            for index in chunk {
                sweep.hand = index;
                if nr == STEP || looks == MOST_LOOKS || slot.reserve.pages() <= RESERVE_PAGES {
                    return nr;
                }
                let page = Page::from_index(index);
                if self.is_left_behind(self.table.get(page)) {
                    looks += 1;
                    nr += usize::from(self.recompress_page(slot, page));
                }
            }
            sweep.hand = end;
        }
        sweep.hand = 0;
        sweep.ended = Some(self.clock.reading());
        nr
    }

    /// Whether the page is in the pool, compressed alone, was not used for as long as the resident set takes to turn
    /// over, and nobody writes it back. Without its folio, a hint.
    fn is_left_behind(&self, entry: Entry) -> bool {
        let Entry::Stored {
            size,
            writing: false,
            holds,
            ..
        } = entry
        else {
            return false;
        };
        holds.is_page() && usize::from(size) < PAGE_SIZE && !self.is_workingset(entry)
    }

    /// `false`: the page is in use, was made by another codec, or would not be smaller by much.
    fn recompress_page(&self, slot: &mut SlotGuard<'_>, page: Page) -> bool {
        let Some(_guard) = self.folios.of(page).try_lock() else {
            return false;
        };
        let old = self.table.get(page);
        let Entry::Stored {
            loc,
            size,
            age,
            holds,
            ..
        } = old
        else {
            return false;
        };
        // SAFETY: the object lives and does not move while the folio is held; it has `size` bytes.
        let object = unsafe { core::slice::from_raw_parts(self.pool.data_ptr(loc), size.into()) };
        let by_fast = object::codec_of(object) == Some(slot.compressor.codec().id());
        if !by_fast
            || !self.is_left_behind(old)
            || self
                .decode(slot, page, old, PageRange::one(page), 0)
                .is_err()
        {
            return false;
        }
        let SlotInner {
            denser: Some(denser),
            decompressor,
            load,
            store,
            reserve,
            ..
        } = &mut **slot
        else {
            return false;
        };
        let Some(load) = load.get_mut(..PAGE_SIZE) else {
            return false;
        };
        let takes = Pool::takes(size.into());
        let most = (takes - takes / LEAST_GAIN).min(MOST_COMPRESSED);
        // SAFETY: the slot's buffer, which holds a page and is written to by nobody else.
        let source = unsafe { Source::new(load.as_ptr().addr(), PAGE_SIZE, true) };
        let checked = is_on(&self.group.knobs.checksum);
        let made = store
            .get_mut(..most)
            .and_then(|out| object::pack(denser, source, checked, out).ok());
        let new = made.and_then(|size| store.get(..size));
        let Some(new) = new.filter(|new| self.is_right_in(decompressor, new, load)) else {
            return false;
        };
        // SAFETY: the object is in the slot's buffer.
        let loc = unsafe { self.put_object(reserve, page, new.as_ptr(), new.len()) };
        let Some((loc, size)) = loc.zip(u16::try_from(new.len()).ok()) else {
            return false;
        };
        let entry = Entry::Stored {
            loc,
            size,
            age,
            writing: false,
            holds,
        };
        self.table.set(page, entry);
        self.forget(old);
        let mut stored = Stored::default();
        stored.add(entry);
        self.count_stored(&stored);
        true
    }
}
