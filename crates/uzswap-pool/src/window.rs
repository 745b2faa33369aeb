//! *What*: a window, the part of the pool's address range that holds the zspages of one length.
//! Classes take whole zspages from it and put empty ones back.
//!
//! *Invariants*
//! - A zspage below `nr_cut` is *live* (in a class), *idle* (memory without
//!   objects, on `idle`) or *hollow* (no memory, on `hollow`). A *shared* one
//!   counts as live. One at or above
//!   `nr_cut` was never used, and neither its pages nor its descriptor were
//!   touched.
//! - `cut - 1 = live + idle + hollow` once anything was cut (index 0 is unused).
//! - Live and idle zspages, and descriptor pages below `nr_cut`, are charged; shared ones count in
//!   what processes have in common.
//!   Descriptor pages are never given back: 1/256 of the most that was stored.
//!
//! *Locking*: one leaf lock a window, taken under a class lock or alone. Two window locks
//! are never held together.
//! *Context*: signal, worker. System calls are made under the lock.

use crate::class::{ClassId, GRANULE, HUGE};
use crate::memory;
use crate::zspage::{Descriptors, HOLLOW, IDLE, Index, LIVE, List, NIL, SHARED};
use crate::{Held, PoolError};
use uzswap_sync::charge::Reserve;
use uzswap_sync::lock::Lock;
use uzswap_sync::primitive::Ordering;
use uzswap_sync::{const_unless_modelled, strict_assert};
use uzswap_sys::PAGE_SIZE;

/// Pages made resident by one system call.
const BATCH: u32 = 16;
/// Empty pages that a window may keep at least, so that a class that shrinks and grows does not
/// call the kernel each time, and at most.
const MIN_IDLE_PAGES: u32 = 8;
const MAX_IDLE_PAGES: u32 = 64;

/// Where a window lies: computed, not stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area {
    /// The first byte of zspage 0.
    pub(crate) data: *mut u8,
    /// The window's descriptors.
    pub(crate) zspages: Descriptors,
    /// Pages in a zspage.
    pub(crate) chain: u32,
    /// Indices below this one fit into the window.
    pub(crate) nr_max: u32,
}

impl Area {
    /// Where a zspage's memory begins.
    #[inline]
    pub(crate) fn memory(&self, index: Index) -> *mut u8 {
        self.data.wrapping_add(self.bytes(index))
    }

    #[inline]
    fn bytes(&self, nr: u32) -> usize {
        nr as usize * self.chain as usize * PAGE_SIZE
    }
}

/// A window's zspages that no class has. Zero is a window that nothing was cut
/// from.
#[derive(Debug)]
pub(crate) struct Window {
    state: Lock<State>,
}

#[derive(Debug, Default)]
struct State {
    idle: List,
    hollow: List,
    nr_idle: u32,
    nr_live: u32,
    nr_cut: u32,
}

impl Window {
    const EMPTY: State = State {
        idle: List::EMPTY,
        hollow: List::EMPTY,
        nr_idle: 0,
        nr_live: 0,
        nr_cut: 0,
    };

    const_unless_modelled! {
        pub(crate) fn new() -> Self {
            Self {
                state: Lock::new(Self::EMPTY),
            }
        }
    }

    /// A zspage with memory, live and the caller's own.
    pub(crate) fn take(
        &self,
        area: &Area,
        held: &Held,
        reserve: &mut Reserve<'_>,
    ) -> Result<Index, PoolError> {
        let mut state = self.state.lock();
        if state.idle.first() == NIL {
            state.grow(area, held, reserve)?;
        }
        let index = state.idle.first();
        // SAFETY: under the window's lock; `index` is on the idle list.
        unsafe {
            state.idle.remove(area.zspages, index);
            (*area.zspages.get(index)).state = LIVE;
        }
        state.nr_idle = state.nr_idle.wrapping_sub(1);
        state.nr_live = state.nr_live.wrapping_add(1);
        state.assert_counts(area, held);
        Ok(index)
    }

    /// Takes an empty zspage back into the cache, and returns how many pages were
    /// given to the kernel because the cache is full. They are still charged.
    ///
    /// # Safety
    /// `index` is live, without objects, on no list and the caller's own.
    #[must_use = "the pages given back are still charged"]
    pub(crate) unsafe fn put(&self, area: &Area, held: &Held, index: Index) -> u64 {
        let mut state = self.state.lock();
        // SAFETY: by this function's contract.
        unsafe { state.idle_again(area, index) };
        state.assert_counts(area, held);
        let max =
            (state.nr_live.saturating_mul(area.chain) / 32).clamp(MIN_IDLE_PAGES, MAX_IDLE_PAGES);
        if state.nr_idle.saturating_mul(area.chain) <= max {
            return 0;
        }
        // Half of the cache stays, so that the next zspage does not come here.
        state.give_back(area, held, max / area.chain / 2)
    }

    /// Takes an empty zspage back without looking at the size of the cache: the
    /// caller is going to [`Window::drain`] it.
    ///
    /// # Safety
    /// As for [`Window::put`].
    pub(crate) unsafe fn put_idle(&self, area: &Area, index: Index) {
        // SAFETY: by this function's contract.
        unsafe { self.state.lock().idle_again(area, index) };
    }

    /// Makes all live zspages shared. Returns their pages.
    ///
    /// # Safety
    /// Nobody else uses the pool meanwhile.
    pub(crate) unsafe fn share(&self, area: &Area) -> u64 {
        let state = self.state.lock();
        let mut pages = 0;
        for index in NIL + 1..state.nr_cut {
            let zspage = area.zspages.get(index);
            // SAFETY: below `nr_cut`, under the window's lock; the caller has the rest.
            unsafe {
                if (*zspage).state == LIVE {
                    (*zspage).state = SHARED;
                    pages += u64::from(area.chain);
                }
            }
        }
        pages
    }

    /// The next shared zspage from `from` on, and its class.
    pub(crate) fn next_shared(&self, area: &Area, from: Index) -> Option<(Index, ClassId)> {
        let state = self.state.lock();
        let mut all = from.max(NIL + 1)..state.nr_cut;
        all.find_map(|index| Some((index, state.class_if_shared(area, index)?)))
    }

    /// Whether a zspage is shared. It does not become so while an operation is under way.
    pub(crate) fn is_shared(&self, area: &Area, index: Index) -> bool {
        self.state.lock().class_if_shared(area, index).is_some()
    }

    /// Makes a shared zspage live.
    ///
    /// # Safety
    /// The caller holds the class's lock, and has what the zspage's fields say put right.
    pub(crate) unsafe fn own(&self, area: &Area, index: Index) {
        let _state = self.state.lock();
        // SAFETY: as the caller says.
        unsafe { (*area.zspages.get(index)).state = LIVE };
    }

    /// Gives the memory of an empty shared zspage to the kernel. `false`: it refuses, and the
    /// zspage is idle now.
    ///
    /// # Safety
    /// `index` is shared, without objects, and the caller's own.
    pub(crate) unsafe fn put_shared(&self, area: &Area, held: &Held, index: Index) -> bool {
        let mut state = self.state.lock();
        let zspage = area.zspages.get(index);
        // SAFETY: by this function's contract.
        unsafe {
            // Memory locked by the program, at worst.
            if memory::discard(area.memory(index), area.bytes(1)).is_err() {
                (*zspage).state = LIVE;
                state.idle_again(area, index);
                return false;
            }
            (*zspage).state = HOLLOW;
            state.hollow.push_front(area.zspages, index);
        }
        state.nr_live = state.nr_live.wrapping_sub(1);
        let pages = u64::from(area.chain);
        let before = held.pages.fetch_sub(pages, Ordering::Relaxed);
        strict_assert!(before >= pages);
        state.assert_counts(area, held);
        true
    }

    /// Gives every idle zspage to the kernel and returns how many pages those
    /// were. They are still charged.
    #[must_use = "the pages given back are still charged"]
    pub(crate) fn drain(&self, area: &Area, held: &Held) -> u64 {
        self.state.lock().give_back(area, held, 0)
    }

    /// Pages in the cache of empty zspages.
    pub(crate) fn idle_pages(&self, area: &Area) -> u64 {
        u64::from(self.state.lock().nr_idle) * u64::from(area.chain)
    }
}

impl State {
    /// The class of a zspage that was cut, if it is shared.
    fn class_if_shared(&self, area: &Area, index: Index) -> Option<ClassId> {
        let zspage = area.zspages.get(index);
        // SAFETY: `state` is the window lock's, out of which this comes; while it says shared, the
        // class stays.
        unsafe { ((*zspage).state == SHARED).then(|| (*zspage).class) }
    }

    /// States the counting equations, as far as this window shows them: it has no more zspages than
    /// were cut, and the pool holds at least the pages of this window and its descriptors.
    #[inline]
    fn assert_counts(&self, area: &Area, held: &Held) {
        let with_memory = u64::from(self.nr_live) + u64::from(self.nr_idle);
        strict_assert!(
            with_memory < u64::from(self.nr_cut),
            "live + idle + hollow = cut - 1"
        );
        strict_assert!((self.nr_idle == 0) == (self.idle.first() == NIL));
        strict_assert!(
            with_memory * u64::from(area.chain) <= held.pages.load(Ordering::Relaxed),
            "total pages = live + idle + descriptors"
        );
    }

    /// Marks a live zspage idle.
    ///
    /// # Safety
    /// As for [`Window::put`].
    unsafe fn idle_again(&mut self, area: &Area, index: Index) {
        // SAFETY: the zspage is the caller's own and on no list.
        unsafe {
            strict_assert!((*area.zspages.get(index)).state == LIVE);
            strict_assert!(
                (*area.zspages.get(index)).inuse == 0 || (*area.zspages.get(index)).class == HUGE
            );
            (*area.zspages.get(index)).state = IDLE;
            self.idle.push_front(area.zspages, index);
        }
        self.nr_idle = self.nr_idle.wrapping_add(1);
        self.nr_live = self.nr_live.wrapping_sub(1);
    }

    /// Makes at least one more zspage idle, more where room is plenty.
    fn grow(
        &mut self,
        area: &Area,
        held: &Held,
        reserve: &mut Reserve<'_>,
    ) -> Result<(), PoolError> {
        let chain = area.chain;
        // Near the limit a batch would take the room that another class needs.
        let room = reserve.pages().saturating_add(reserve.charge().room()) / 4;
        let batch = u32::try_from(room).unwrap_or(u32::MAX).min(BATCH) / chain;
        let (first, mut nr) = self.next_run(area, batch.max(1));
        if nr == 0 {
            return Err(PoolError::WindowFull { chain });
        }
        if !reserve.take(self.cost(area, first, nr)) {
            nr = 1;
            let pages_needed = self.cost(area, first, nr);
            if !reserve.take(pages_needed) {
                return Err(PoolError::NoRoom { pages_needed });
            }
        }
        let cost = self.cost(area, first, nr);
        // SAFETY: hollow or never cut, so there are no objects in the range; it
        // ends below `nr_max`.
        if let Err(errno) = unsafe { memory::populate(area.memory(first), area.bytes(nr)) } {
            reserve.put(cost);
            return Err(PoolError::Memory { errno });
        }
        let pages = u64::from(nr) * u64::from(chain);
        held.pages.fetch_add(pages, Ordering::Relaxed);
        held.metadata
            .fetch_add(cost.saturating_sub(pages), Ordering::Relaxed);
        let was_cut = first < self.nr_cut;
        self.nr_cut = self.nr_cut.max(first.saturating_add(nr));
        for index in first..first.saturating_add(nr) {
            // SAFETY: cut now, under the window's lock; hollow ones are on the
            // hollow list, new ones on none.
            unsafe {
                if was_cut {
                    self.hollow.remove(area.zspages, index);
                }
                (*area.zspages.get(index)).state = IDLE;
                self.idle.push_back(area.zspages, index);
            }
        }
        self.nr_idle = self.nr_idle.wrapping_add(nr);
        Ok(())
    }

    /// Up to `max` neighbouring zspages without memory: the first, and how many.
    /// Hollow ones come before new ones, so that descriptors stay few.
    fn next_run(&self, area: &Area, max: u32) -> (Index, u32) {
        let hollow = self.hollow.first();
        if hollow != NIL {
            return self.run_of(area, hollow, HOLLOW, max);
        }
        let first = self.nr_cut.max(NIL + 1);
        (first, area.nr_max.saturating_sub(first).min(max))
    }

    /// The run of up to `max` zspages in `wanted` state around `index`.
    fn run_of(&self, area: &Area, index: Index, wanted: u8, max: u32) -> (Index, u32) {
        // SAFETY: only zspages below `nr_cut` are looked at, under the window's
        // lock, which guards `state`.
        let is_wanted = |index| unsafe { (*area.zspages.get(index)).state == wanted };
        let (mut first, mut end) = (index, index.saturating_add(1));
        while end.saturating_sub(first) < max && end < self.nr_cut && is_wanted(end) {
            end = end.saturating_add(1);
        }
        while end.saturating_sub(first) < max && first > NIL + 1 && is_wanted(first - 1) {
            first -= 1;
        }
        (first, end.saturating_sub(first))
    }

    /// Pages to charge for `nr` zspages from `first` on: theirs, and descriptor
    /// pages that are touched for the first time.
    fn cost(&self, area: &Area, first: Index, nr: u32) -> u64 {
        let descriptor_pages = |nr: u32| (nr as usize * GRANULE).div_ceil(PAGE_SIZE) as u64;
        let end = first.saturating_add(nr);
        let metadata = descriptor_pages(end).saturating_sub(descriptor_pages(self.nr_cut));
        u64::from(nr) * u64::from(area.chain) + metadata
    }

    /// Gives idle zspages to the kernel until `keep` are left, the longest unused
    /// first, and returns how many pages those were.
    fn give_back(&mut self, area: &Area, held: &Held, keep: u32) -> u64 {
        let mut pages = 0;
        while self.nr_idle > keep {
            // SAFETY: under the window's lock.
            let last = unsafe { self.idle.last(area.zspages) };
            let (first, nr) = self.run_of(area, last, IDLE, self.nr_idle.wrapping_sub(keep));
            // SAFETY: idle zspages have no objects.
            if unsafe { memory::discard(area.memory(first), area.bytes(nr)) }.is_err() {
                // Memory locked by the program, at worst: it stays charged.
                break;
            }
            for index in (first..first.saturating_add(nr)).rev() {
                // SAFETY: under the window's lock; idle ones are on the idle list.
                unsafe {
                    self.idle.remove(area.zspages, index);
                    (*area.zspages.get(index)).state = HOLLOW;
                    self.hollow.push_front(area.zspages, index);
                }
            }
            self.nr_idle = self.nr_idle.wrapping_sub(nr);
            pages += u64::from(nr) * u64::from(area.chain);
        }
        let before = held.pages.fetch_sub(pages, Ordering::Relaxed);
        strict_assert!(before >= pages);
        pages
    }
}
