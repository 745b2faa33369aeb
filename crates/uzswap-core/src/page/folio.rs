//! *What*: the folio table: sixteen bytes per folio of the arena: its lock, its state in reclaim,
//! its links in the LRU lists, its resident pages and its pins.
//!
//! *Invariants*
//! - `LOCKED` is held by one thread. All other bits of `word`, `nr_resident` and `pins`, and the
//!   entries of the folio's pages, change only under it, except the lists' fields (`next`, `prev`,
//!   the `LIST` bits), which change under the LRU lock.
//! - `RECLAIM` is set by the one reclaimer that isolated the folio, and cleared by the same. While
//!   it is set, the pages in that reclaimer's batch stay mapped and readable: whoever drops or
//!   hides them, or needs them writable at once (a pin), sets `CANCELLED`, releases the folio and
//!   waits. A plain write only cancels: if the page is protected once more, it faults once more.
//! - A folio with `pins` is never isolated.
//!
//! *States of a page under reclaim*, modelled in tests: resident → isolated and write-protected →
//! stored and dropped, or back to resident when cancelled.
//!
//! *Locking*: op → folio → LRU → pool class. A thread waits for a second folio only if it is the
//! reclaimer that isolated it. Never waits for `RECLAIM` to clear while it holds any folio.
//! *Context*: signal, worker, init.

use super::bitmap::Bitmap;
use crate::page::{NR_PAGES, PAGE_SIZE, Page, PageRange};
use uzswap_sync::primitive::{AtomicU16, AtomicU32, Ordering, spin_loop};
use uzswap_sync::strict_assert;
use uzswap_sys::arch;

const LOCKED: u32 = 1;
const WAITED: u32 = 1 << 1;
/// Isolated by a reclaimer.
pub const RECLAIM: u32 = 1 << 2;
/// The program accessed the folio after it was isolated: its reclaimer gives up.
pub const CANCELLED: u32 = 1 << 3;
/// On the inactive list.
pub const INACTIVE: u32 = 1 << 4;
/// On the active list.
pub const ACTIVE: u32 = 1 << 5;
/// Pages of it refaulted since it joined its list: it gets one more round.
pub const REFERENCED: u32 = 1 << 6;
/// Never evicted, in fork children neither: a stack that signals may be delivered on.
pub const HELD: u32 = 1 << 7;

/// Its last sequential load was of four or more pages.
pub const RUNS_OF_4: u32 = 1 << 8;
/// Its last sequential load was of sixteen or more pages.
pub const RUNS_OF_16: u32 = 1 << 9;

/// Some of its resident pages lack their protection, because the process had no mapping left
/// (`vm.max_map_count`).
pub const PROT_STALE: u32 = 1 << 10;
/// Densifying its stored pages was tried; cleared when a page of it is stored anew.
pub const TRIED: u32 = 1 << 11;

/// A bit for each sixteenth of it: see [`super::shared`].
pub const SHARED: u32 = 0xffff << 16;

const SPINS: u32 = if cfg!(any(loom, miri)) { 1 } else { 100 };

/// One folio's sixteen bytes.
#[derive(Debug)]
#[repr(C)]
pub struct Folio {
    word: AtomicU32,
    /// Next towards the tail, by the LRU lists.
    pub(crate) next: AtomicU32,
    /// Next towards the head, by the LRU lists.
    pub(crate) prev: AtomicU32,
    nr_resident: AtomicU16,
    pins: AtomicU16,
}

impl Folio {
    /// An untouched folio; zero-filled memory is one.
    #[must_use]
    pub fn new() -> Folio {
        Folio {
            word: AtomicU32::new(0),
            next: AtomicU32::new(0),
            prev: AtomicU32::new(0),
            nr_resident: AtomicU16::new(0),
            pins: AtomicU16::new(0),
        }
    }

    /// Whether one of `bits` is set; a hint without the lock.
    #[inline]
    pub fn has(&self, bits: u32) -> bool {
        // Acquire: a reader that sees RECLAIM cleared sees what its reclaimer did before.
        self.word.load(Ordering::Acquire) & bits != 0
    }

    /// Sets `bits` that belong to the lists; under the LRU lock.
    #[cfg(not(loom))]
    pub(crate) fn set_list(&self, bits: u32) {
        self.word.fetch_and(!(INACTIVE | ACTIVE), Ordering::Relaxed);
        self.word.fetch_or(bits, Ordering::Relaxed);
    }

    /// Whether it was on the list of `bit` a moment ago: a hint.
    #[must_use]
    pub fn is_on(&self, bit: u32) -> bool {
        self.word.load(Ordering::Relaxed) & bit != 0
    }

    /// Resident pages a moment ago: a hint.
    #[cfg(not(loom))]
    pub(crate) fn nr_resident_about(&self) -> u16 {
        self.nr_resident.load(Ordering::Relaxed)
    }

    /// Takes the lock if it is free now.
    #[inline]
    pub fn try_lock(&self) -> Option<FolioGuard<'_>> {
        // Acquire: pairs with the release in `FolioGuard::drop`.
        let was = self.word.fetch_or(LOCKED, Ordering::Acquire);
        if was & LOCKED != 0 {
            return None;
        }
        Some(FolioGuard { folio: self })
    }

    /// Takes the lock, waiting for it.
    #[inline]
    pub fn lock(&self) -> FolioGuard<'_> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_slow(),
        }
    }

    #[cold]
    fn lock_slow(&self) -> FolioGuard<'_> {
        for _ in 0..SPINS {
            if self.word.load(Ordering::Relaxed) & LOCKED == 0
                && let Some(guard) = self.try_lock()
            {
                return guard;
            }
            spin_loop();
        }
        loop {
            // WAITED stays set while anybody may sleep; the unlocker clears it and wakes all, since
            // the bits of one word cannot tell how many sleep.
            let was = self.word.fetch_or(LOCKED | WAITED, Ordering::Acquire);
            if was & LOCKED == 0 {
                return FolioGuard { folio: self };
            }
            self.sleep(was | LOCKED | WAITED);
        }
    }

    /// The guard of a lock that this thread holds already, having forgotten its guard.
    ///
    /// # Safety
    /// This thread locked it and forgot the guard; no other guard was made since.
    pub unsafe fn held(&self) -> FolioGuard<'_> {
        FolioGuard { folio: self }
    }

    /// Waits until the reclaimer that isolated this folio, if any, is done. The caller holds no
    /// folio.
    #[cold]
    pub fn wait_reclaim(&self) {
        let mut rounds = 0_u32;
        while self.has(RECLAIM) {
            spin_loop();
            rounds = rounds.wrapping_add(1);
            if rounds > SPINS {
                yield_cpu();
            }
        }
    }

    #[cfg(not(any(loom, miri)))]
    fn sleep(&self, value: u32) {
        // A changed word or a signal returns at once; the caller looks again.
        let _ = uzswap_sys::futex::wait(&self.word, value, None);
    }

    #[cfg(any(loom, miri))]
    fn sleep(&self, _value: u32) {
        spin_loop();
    }

    #[cfg(not(any(loom, miri)))]
    #[cold]
    fn wake_all(&self) {
        let _ = uzswap_sys::futex::wake(&self.word, u32::MAX >> 1);
    }

    #[cfg(any(loom, miri))]
    fn wake_all(&self) {}
}

impl Default for Folio {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(not(any(loom, miri)))]
fn yield_cpu() {
    uzswap_sys::thread::sched_yield();
}

#[cfg(any(loom, miri))]
fn yield_cpu() {
    spin_loop();
}

/// A folio's lock, held.
#[derive(Debug)]
pub struct FolioGuard<'a> {
    folio: &'a Folio,
}

impl FolioGuard<'_> {
    /// Whether one of `bits` is set.
    #[inline]
    pub fn has(&self, bits: u32) -> bool {
        self.folio.word.load(Ordering::Relaxed) & bits != 0
    }

    /// All bits.
    #[inline]
    pub fn bits(&self) -> u32 {
        self.folio.word.load(Ordering::Relaxed)
    }

    /// Sets `bits`.
    #[inline]
    pub fn set(&self, bits: u32) {
        self.folio.word.fetch_or(bits, Ordering::Relaxed);
    }

    /// Clears `bits`.
    #[inline]
    pub fn clear(&self, bits: u32) {
        // Release: whoever waits for RECLAIM to clear sees what was done before.
        self.folio.word.fetch_and(!bits, Ordering::Release);
    }

    /// Cancels the reclaim of the folio, because the program uses it. `true`: there was one.
    #[inline]
    pub fn cancel_reclaim(&self) -> bool {
        let isolated = self.has(RECLAIM);
        if isolated {
            self.set(CANCELLED);
        }
        isolated
    }

    /// Resident pages.
    #[inline]
    pub fn nr_resident(&self) -> u16 {
        self.folio.nr_resident.load(Ordering::Relaxed)
    }

    /// Counts `nr` pages as resident.
    #[inline]
    pub fn add_resident(&self, nr: u16) {
        self.folio.nr_resident.fetch_add(nr, Ordering::Relaxed);
    }

    /// Uncounts `nr` dropped pages.
    #[inline]
    pub fn sub_resident(&self, nr: u16) {
        let before = self.folio.nr_resident.fetch_sub(nr, Ordering::Relaxed);
        strict_assert!(before >= nr, "more pages dropped than were resident");
    }

    /// Whether reclaim must not take it.
    #[inline]
    pub fn is_pinned(&self) -> bool {
        self.folio.pins.load(Ordering::Relaxed) > 0 || self.has(HELD)
    }

    /// Adds a pin. When the count is full, the folio is `HELD` instead, for good.
    pub fn pin(&self) {
        let pins = self.folio.pins.load(Ordering::Relaxed);
        match pins.checked_add(1) {
            Some(more) => self.folio.pins.store(more, Ordering::Relaxed),
            None => self.set(HELD),
        }
    }

    /// Removes a pin.
    pub fn unpin(&self) {
        let pins = self.folio.pins.load(Ordering::Relaxed);
        strict_assert!(
            pins > 0 || self.has(HELD),
            "unpinned more often than pinned"
        );
        self.folio
            .pins
            .store(pins.saturating_sub(1), Ordering::Relaxed);
    }

    /// Removes all pins: their threads do not exist in this fork child.
    pub fn clear_pins(&self) {
        self.folio.pins.store(0, Ordering::Relaxed);
    }
}

impl Drop for FolioGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquire in `try_lock` and `lock_slow`.
        let was = self
            .folio
            .word
            .fetch_and(!(LOCKED | WAITED), Ordering::Release);
        if was & WAITED != 0 {
            self.folio.wake_all();
        }
    }
}

/// All folios of the arena.
#[derive(Debug)]
pub struct FolioTable {
    folios: *const Folio,
    order: u32,
    charged: Bitmap,
}

impl FolioTable {
    /// Bytes of address space for folios of `order`.
    #[must_use]
    pub const fn len_for(order: u32) -> usize {
        (NR_PAGES >> order) * size_of::<Folio>()
    }

    /// Bytes of address space for its bitmap of charged pages.
    #[must_use]
    pub const fn bitmap_len_for(order: u32) -> usize {
        Bitmap::len_for(Self::len_for(order).div_ceil(PAGE_SIZE))
    }

    /// A table on zero-filled memory.
    ///
    /// # Safety
    /// `folios` is [`Self::len_for`] bytes and `bitmap` [`Self::bitmap_len_for`] bytes of page
    /// aligned zero-filled memory, used by nothing else for as long as the table lives.
    #[must_use]
    pub const unsafe fn new(folios: *mut u8, bitmap: *mut u8, order: u32) -> Self {
        Self {
            folios: folios.cast(),
            order,
            // SAFETY: the caller's promise.
            charged: unsafe { Bitmap::new(bitmap) },
        }
    }

    /// Pages of a folio.
    #[inline]
    #[must_use]
    pub const fn nr_pages(&self) -> usize {
        1 << self.order
    }

    /// log2 of the pages of a folio.
    #[inline]
    #[must_use]
    pub const fn order(&self) -> u32 {
        self.order
    }

    /// Number of the folio that holds `page`.
    #[inline]
    #[must_use]
    pub const fn index_of(&self, page: Page) -> u32 {
        page.owner() >> self.order
    }

    /// The folio of that number.
    #[inline]
    #[must_use]
    pub fn at(&self, index: u32) -> &Folio {
        let index = index as usize & ((NR_PAGES >> self.order) - 1);
        // SAFETY: below the number of folios by the mask; `new` was given that many.
        unsafe { &*self.folios.add(index) }
    }

    /// Prefetches a folio's record into the CPU's cache.
    #[inline]
    pub fn prefetch(&self, index: u32) {
        arch::prefetch(
            core::ptr::from_ref(self.at(index)).addr(),
            size_of::<Folio>(),
        );
    }

    /// The folio that holds `page`.
    #[inline]
    #[must_use]
    pub fn of(&self, page: Page) -> &Folio {
        self.at(self.index_of(page))
    }

    /// The pages of the folio of that number.
    #[inline]
    #[must_use]
    pub const fn range(&self, index: u32) -> PageRange {
        let start = (index as usize) << self.order;
        PageRange {
            start,
            end: start + self.nr_pages(),
        }
    }

    /// Marks the pages of this table that the folios of `chunk` need. Returns how many were not
    /// marked before; the caller charges them.
    pub fn charge_chunk(&self, chunk: PageRange) -> u64 {
        let bytes = |page: usize| (page >> self.order) * size_of::<Folio>();
        let first = bytes(chunk.start) / PAGE_SIZE;
        let last = (bytes(chunk.end - 1)) / PAGE_SIZE;
        let mut nr = 0;
        for table_page in first..=last {
            nr += u64::from(self.charged.set(table_page));
        }
        nr
    }
}

// SAFETY: the pointer is to memory of atomics that lives as long as the process.
unsafe impl Send for FolioTable {}
// SAFETY: all access is through atomics.
unsafe impl Sync for FolioTable {}
