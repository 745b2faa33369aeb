//! *What*: a slot: what one engine operation works with: compressor contexts, buffers, the batch
//! being reclaimed, and pages set aside for it. There is about one a CPU.
//!
//! *Invariants*: an operation holds exactly one slot from beginning to end, so whoever holds all
//! slots knows that none is under way (fork relies on it). Each slot owns [`RESERVE_PAGES`] charged
//! pages between operations, so that reclaim can grow the pool at the limit.
//! *Locking*: first in the order. A thread that holds a slot never waits for another slot, except
//! `fork_prepare`, which takes all in rising order and holds nothing else.
//! *Context*: signal, worker; allocated at init.

use crate::accel::Job;
use crate::arena::{PAGE_SIZE, Page, PageRange};
use crate::readahead::Streams;
use crate::table::Entry;
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use uzswap_compress::{Codec, Compressor, Decompressor};
use uzswap_io::{Extent, Fingerprint, MAX_READS, SLOT};
use uzswap_sync::charge::Reserve;
use uzswap_sync::lock::{RawLock, RawLockGuard};
use uzswap_sys::mem::IoVec;

/// Pages that each slot keeps charged, so that reclaim can make a zspage of any length, and a few,
/// before the first page of a batch is dropped.
pub const RESERVE_PAGES: u64 = 24;
/// Freed pages that a slot may keep for its next faults, beyond [`RESERVE_PAGES`].
pub const SLACK_PAGES: u64 = 64;
/// Most pages in a batch: one folio of the largest order.
pub const BATCH_PAGES: usize = 512;
/// Most folios in a batch.
pub const BATCH_FOLIOS: usize = 64;
/// Bytes that are loaded, and copied in, at once.
pub const LOAD_LEN: usize = 64 << 10;
/// Bytes that a block, or a batch, is compressed to at most; without either no more than a page of them is touched.
pub const STORE_LEN: usize = 64 << 10;
/// Bytes that are read from a swap device at once.
pub const SWAP_IN_LEN: usize = 64 << 10;

/// A page under reclaim and what became of it.
#[derive(Clone, Copy, Debug)]
pub struct BatchPage {
    /// The page.
    pub page: Page,
    /// Where it was stored; [`Entry::None`] if it was not.
    pub entry: Entry,
}

/// A folio under reclaim: `nr` pages of the batch from `first` on.
#[derive(Clone, Copy, Debug)]
pub struct BatchFolio {
    /// Number of the folio.
    pub index: u32,
    /// Its first page in [`Batch::pages`].
    pub first: usize,
    /// Its pages in [`Batch::pages`].
    pub nr: usize,
    /// It is compressed with the slot's denser compressor.
    pub denser: bool,
    /// Its lock is held: its pages are being dropped.
    pub dropping: bool,
}

/// What one reclaim works on.
#[derive(Debug)]
pub struct Batch {
    /// Its pages.
    pub pages: [BatchPage; BATCH_PAGES],
    /// How many of `pages` are in use.
    pub nr_pages: usize,
    /// Its folios.
    pub folios: [BatchFolio; BATCH_FOLIOS],
    /// How many of `folios` are in use.
    pub nr_folios: usize,
    /// Address ranges to drop.
    pub ranges: [IoVec; BATCH_PAGES],
}

/// Slots that are read along rather than that two reads are made of what lies on both sides.
const NEAR: u64 = 2;

/// Slots of the swap device that are read together, for the pages of one folio.
#[derive(Debug)]
pub struct SwapIn {
    /// What the extents hold, one after the other.
    buffer: &'static mut [u8],
    extents: [Extent; MAX_READS],
    nr_extents: usize,
    /// Pages around the one that is asked for, of which is read along what costs no read of its own.
    pub around: Option<PageRange>,
    /// What was read is what the entries of the folio name that is held now.
    current: bool,
    /// What was evicted while something was read last made no room: the pool took as much.
    pub in_vain: bool,
    /// Of the pages in the load buffer, by their places there: what they were read from.
    fingerprints: [Option<Fingerprint>; LOAD_LEN / PAGE_SIZE],
}

impl SwapIn {
    /// Nothing read yet. `buffer` is page aligned; empty without a swap device.
    #[must_use]
    pub const fn new(buffer: &'static mut [u8]) -> Self {
        Self {
            buffer,
            extents: [Extent {
                slot: 0,
                nr_slots: 0,
            }; MAX_READS],
            nr_extents: 0,
            around: None,
            current: false,
            in_vain: false,
            fingerprints: [None; LOAD_LEN / PAGE_SIZE],
        }
    }

    /// Notes what the page at `place` of the load buffer was read from; `None`: its copy is not kept.
    pub fn note(&mut self, place: usize, fingerprint: Option<Fingerprint>) {
        if let Some(noted) = self.fingerprints.get_mut(place) {
            *noted = fingerprint;
        }
    }

    /// What was noted last of the page at `place` of the load buffer.
    #[must_use]
    pub fn noted(&self, place: usize) -> Option<Fingerprint> {
        self.fingerprints.get(place).copied().flatten()
    }

    /// Forgets what was read.
    #[inline]
    pub const fn forget(&mut self) {
        self.nr_extents = 0;
        self.current = false;
    }

    /// What was read before the folio was held has been found to be what its entries name.
    pub const fn set_current(&mut self) {
        self.current = true;
    }

    /// A folio is held: forgets what was read before, which may be another's by now, unless it was looked into.
    #[inline]
    pub const fn begin(&mut self) {
        if !core::mem::replace(&mut self.current, false) {
            self.forget();
        }
    }

    /// The extents, which the buffer is to be filled with.
    pub fn to_read(&mut self) -> (&[Extent], &mut [u8]) {
        let extents = self.extents.get(..self.nr_extents).unwrap_or_default();
        let len = extents.iter().map(Extent::bytes).sum();
        (extents, self.buffer.get_mut(..len).unwrap_or_default())
    }

    /// Where in the buffer the extent that holds all of `wanted` begins, and which that is.
    fn find(&self, wanted: Extent) -> Option<(usize, Extent)> {
        let mut at = 0;
        for extent in self.extents.iter().take(self.nr_extents) {
            if wanted.slot >= extent.slot && end_of(wanted) <= end_of(*extent) {
                return Some((at, *extent));
            }
            at += extent.bytes();
        }
        None
    }

    /// Adds `wanted` to what is to be read. `false`: there is no room for it.
    pub fn add(&mut self, wanted: Extent) -> bool {
        if self.find(wanted).is_some() {
            return true;
        }
        let read = self.extents.get(..self.nr_extents).unwrap_or_default();
        let left = self.buffer.len() - read.iter().map(Extent::bytes).sum::<usize>();
        if let Some(last) = self.extents.get_mut(self.nr_extents.wrapping_sub(1))
            && (last.slot..=end_of(*last) + NEAR).contains(&wanted.slot)
            && let Ok(more) = u32::try_from(end_of(wanted) - end_of(*last))
            && more as usize * SLOT <= left
        {
            last.nr_slots += more;
            return true;
        }
        match self.extents.get_mut(self.nr_extents) {
            Some(place) if wanted.bytes() <= left => {
                *place = wanted;
                self.nr_extents += 1;
                true
            }
            _ => false,
        }
    }

    /// Both and what is between them, if that is one read.
    #[must_use]
    pub fn joined(one: Extent, other: Extent) -> Option<Extent> {
        let (low, high) = if one.slot <= other.slot {
            (one, other)
        } else {
            (other, one)
        };
        let end = end_of(low).max(end_of(high));
        let nr_slots = u32::try_from(end - low.slot).ok()?;
        let fits = nr_slots as usize * SLOT <= SWAP_IN_LEN;
        (high.slot <= end_of(low) + NEAR && fits).then_some(Extent {
            slot: low.slot,
            nr_slots,
        })
    }

    /// Of what is to be read leaves `wanted` alone. `false`: it was alone.
    pub fn only(&mut self, wanted: Extent) -> bool {
        let (extents, _) = self.to_read();
        let alone = extents == [wanted];
        self.forget();
        self.add(wanted) && !alone
    }

    /// Slots that were read, `wanted` among them, and the number of the first; `None`: it was not read.
    pub fn read(&mut self, wanted: Extent) -> Option<(u64, &mut [u8])> {
        let (at, extent) = self.find(wanted)?;
        let slots = self.buffer.get_mut(at..at + extent.bytes())?;
        Some((extent.slot, slots))
    }
}

const fn end_of(extent: Extent) -> u64 {
    extent.slot + extent.nr_slots as u64
}

/// The contents of a slot.
#[derive(Debug)]
pub struct SlotInner {
    /// What pages are stored with.
    pub compressor: Compressor,
    /// What some of them are stored with while that is worth it, with `--compressor auto`.
    pub denser: Option<Compressor>,
    /// The knobs `compressor` and `block` when this slot last looked, and the denser codec.
    pub asked: (u64, u64, Option<Codec>),
    /// What they are brought back with.
    pub decompressor: Decompressor,
    /// [`LOAD_LEN`] bytes that pages are decompressed to.
    pub load: &'static mut [u8],
    /// What was read from the swap device.
    pub swap_in: SwapIn,
    /// [`STORE_LEN`] bytes that are compressed to, a page of them for each page of a batch, and that a block is put together in.
    pub store: &'static mut [u8],
    /// The batch.
    pub batch: &'static mut Batch,
    /// What devices are asked to do of it, [`BATCH`](crate::accel::BATCH) jobs: all settled between operations.
    pub jobs: &'static [Job],
    /// Charged pages for the pool's growth and for the next faults.
    pub reserve: Reserve<'static>,
    /// Sequential accesses seen from here.
    pub streams: Streams,
    /// Last page that faulted though it is resident, and how often in a row.
    pub spurious: (usize, u32),
}

/// One slot.
#[derive(Debug)]
pub struct Slot {
    lock: RawLock,
    inner: UnsafeCell<SlotInner>,
}

// SAFETY: `inner` is reached through `SlotGuard` only, which holds `lock`.
unsafe impl Sync for Slot {}

impl Slot {
    /// A free slot.
    #[must_use]
    pub const fn new(inner: SlotInner) -> Slot {
        Slot {
            lock: RawLock::new(),
            inner: UnsafeCell::new(inner),
        }
    }

    /// The slot that this thread holds already and whose guard it forgot.
    ///
    /// # Safety
    /// It was acquired by this thread (or, after fork, by the one it is a copy of), that guard was
    /// forgotten, and no other was made since.
    pub unsafe fn held(&self) -> SlotGuard<'_> {
        SlotGuard {
            slot: self,
            // SAFETY: the caller's promise.
            _guard: unsafe { self.lock.held() },
        }
    }

    /// Takes the slot if it is free now.
    pub fn try_acquire(&self) -> Option<SlotGuard<'_>> {
        let guard = self.lock.try_lock()?;
        Some(SlotGuard {
            slot: self,
            _guard: guard,
        })
    }

    /// Takes the slot, waiting for it.
    pub fn acquire(&self) -> SlotGuard<'_> {
        let guard = self.lock.lock();
        SlotGuard {
            slot: self,
            _guard: guard,
        }
    }
}

/// A slot, held.
#[derive(Debug)]
pub struct SlotGuard<'a> {
    slot: &'a Slot,
    _guard: RawLockGuard<'a>,
}

impl Deref for SlotGuard<'_> {
    type Target = SlotInner;
    fn deref(&self) -> &SlotInner {
        // SAFETY: the lock is held by this guard.
        unsafe { &*self.slot.inner.get() }
    }
}

impl DerefMut for SlotGuard<'_> {
    fn deref_mut(&mut self) -> &mut SlotInner {
        // SAFETY: the lock is held by this guard, which is borrowed uniquely.
        unsafe { &mut *self.slot.inner.get() }
    }
}

/// All slots.
#[derive(Debug)]
pub struct SlotTable {
    slots: &'static [Slot],
}

impl SlotTable {
    /// The table of these slots.
    #[must_use]
    pub const fn new(slots: &'static [Slot]) -> Self {
        Self { slots }
    }

    /// All of them.
    #[must_use]
    pub const fn all(&self) -> &'static [Slot] {
        self.slots
    }

    /// Takes a slot: this CPU's if it is free, else any free one, else waits for this CPU's.
    #[must_use]
    pub fn acquire(&self) -> Option<SlotGuard<'static>> {
        let nr = self.slots.len();
        let own = uzswap_sys::thread::sched_getcpu() as usize;
        for step in 0..nr {
            if let Some(slot) = self.slots.get((own + step) % nr)
                && let Some(guard) = slot.try_acquire()
            {
                return Some(guard);
            }
        }
        self.slots.get(own % nr.max(1)).map(Slot::acquire)
    }

    /// Waits for the operations that are under way now. The caller holds no slot.
    pub fn wait_for_all(&self) {
        self.slots.iter().for_each(|slot| drop(slot.acquire()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is asked for in whatever order: what was added is there to be read, in its own slots, and nothing
    /// takes more room than there is.
    #[test]
    fn what_is_to_be_read_is_found_in_its_place() {
        let mut x = 0x2545_f491_4f6c_dd1d_u64;
        let mut window = SwapIn::new(Box::leak(vec![0; SWAP_IN_LEN].into_boxed_slice()));
        let (mut asked, mut refused) = (0, 0);
        for _ in 0..2000 {
            window.forget();
            let mut added = Vec::new();
            for _ in 0..x % 24 {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                let wanted = Extent {
                    slot: 1000 + (x >> 8) % 64,
                    nr_slots: (x >> 40) as u32 % 2 + 1,
                };
                asked += 1;
                if window.add(wanted) {
                    added.push(wanted);
                } else {
                    refused += 1;
                }
            }
            let (extents, buffer) = window.to_read();
            // Filled as the device would: every slot with its number.
            let slots = extents.iter().flat_map(|e| e.slot..end_of(*e));
            let mut filled = 0;
            for (slot, bytes) in slots.zip(buffer.chunks_mut(SLOT)) {
                bytes.fill(slot as u8);
                filled += SLOT;
            }
            assert_eq!(filled, buffer.len());
            for wanted in added {
                let (first, slots) = window.read(wanted).expect("it was added");
                let at = (wanted.slot - first) as usize * SLOT;
                for (nr, bytes) in slots[at..at + wanted.bytes()].chunks(SLOT).enumerate() {
                    assert_eq!(bytes[0], (wanted.slot + nr as u64) as u8, "{wanted:?}");
                }
            }
        }
        assert!(refused > 0 && refused < asked / 2, "{refused} of {asked}");
    }
}
