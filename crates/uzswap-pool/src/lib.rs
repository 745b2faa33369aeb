//! *What*: the compressed pool, after the kernel's zsmalloc: objects of 1 to 4096 bytes
//! packed into *zspages*, runs of 1 to 8 pages that are neighbours in the address
//! space, so that an object is always one piece of memory.
//!
//! Words: a *granule* is 16 bytes; a *size class* holds objects of one size; a
//! *zspage* holds objects of one class; a *window* is the part of the address
//! range with the zspages of one length; a *location* ([`Loc`]) is an object's
//! place in granules from the base; the *owner* is the number of the arena page
//! whose data an object holds, kept in the object so that [`Pool::compact`] can
//! find the page table entry, with no table of handles between.
//!
//! *Invariants*
//! - `total_pages = Σ live zspages + Σ idle zspages + descriptor pages`, all of
//!   them charged; resident never exceeds it.
//! - Metadata a stored page: 4 bytes of owner plus 16 bytes a zspage.
//! - What a fork has left in common to processes, [`Pool::share`], is read and not written.
//! - An object's location changes in [`Pool::compact`] alone, and only while its
//!   page table entry is held through [`Relocate::try_hold`].
//! - All-zero memory is a pool before [`Pool::init`].
//!
//! *Locking*: op → folio → LRU → pool class → pool window (leaf). One class lock for each
//! [`Pool::alloc`] or [`Pool::free`]; the window lock only when a zspage is made or becomes empty.
//! Compaction goes against the order, with a class lock held towards a folio: there it only ever
//! *tries*.
//! *Context*: signal, worker, init; under the rules of [`uzswap_sync::lock`]. Never allocates.
#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable
    )
)]
#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        reason = "test data is cut to size on purpose"
    )
)]

mod class;
mod compact;
mod loc;
mod memory;
mod objects;
mod partial;
mod shared;
mod stat;
mod window;
mod zspage;

pub use class::MAX_CHAIN;
pub use compact::Relocate;
pub use loc::{LOC_BITS, Loc};
pub use stat::ClassStat;

use class::{ClassId, HUGE, OWNER};
use partial::Class;
use uzswap_sync::charge::{Charge, Reserve};
use uzswap_sync::primitive::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use uzswap_sync::{const_unless_modelled, strict_assert};
use uzswap_sys::{Errno, PAGE_SIZE, arch};
use window::{Area, Window};
use zspage::{Descriptors, Index, NIL, SHARED, Zspage};

/// Why the pool could not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// The pool takes 1 to 4096 bytes.
    BadSize {
        /// What was asked for, in bytes.
        size: usize,
    },
    /// The limit leaves no room. With so many pages in the reserve the same
    /// request succeeds.
    NoRoom {
        /// 4 KiB pages.
        pages_needed: u64,
    },
    /// The address range for zspages of this length is used up.
    WindowFull {
        /// Pages a zspage.
        chain: u32,
    },
    /// The kernel refused memory that the limit would have allowed.
    Memory {
        /// Its reason.
        errno: Errno,
    },
    /// [`Pool::init`]: the ranges do not have the form that [`PoolMemory`] says.
    BadRange,
}

/// The two address ranges that a pool lives in, mapped by the caller: private,
/// anonymous, readable and writable, without reserve (`MAP_NORESERVE`), and of
/// nobody else's concern. The pool touches a page of them only after charging it.
#[derive(Clone, Copy, Debug)]
pub struct PoolMemory {
    /// Where objects go: page-aligned.
    pub data: *mut u8,
    /// Bytes: a power of two from 1 MiB to 1 TiB. Each zspage length gets an
    /// eighth of it, so it should be many times what will be stored.
    pub data_len: usize,
    /// Where descriptors go: page-aligned.
    pub metadata: *mut u8,
    /// Bytes: at least [`Pool::metadata_len`].
    pub metadata_len: usize,
}

const MIN_DATA_LEN: usize = 1 << 20;
const MAX_DATA_LEN: usize = 1 << 40;
/// Bytes of data for a byte of descriptors, in windows of one-page zspages.
const DATA_PER_METADATA: usize = PAGE_SIZE / size_of::<Zspage>();

/// Pages that the pool holds, all of them charged, but for those that it shares since a fork.
#[derive(Debug)]
struct Held {
    /// In zspages, live and idle.
    pages: AtomicU64,
    /// In descriptors.
    metadata: AtomicU64,
    /// Of `pages`, those of shared zspages.
    shared: AtomicU64,
}

/// The pool.
#[derive(Debug)]
pub struct Pool {
    data: AtomicPtr<u8>,
    metadata: AtomicPtr<Zspage>,
    /// log2 of the bytes in a window; 0 before `init`.
    window_shift: AtomicU32,
    held: Held,
    windows: [Window; MAX_CHAIN],
    /// By number; most of the 256 do not exist, and their memory is not touched.
    classes: [Class; 256],
}

/// Where a location lies.
#[derive(Debug)]
struct Place {
    window: usize,
    index: Index,
    /// Bytes from the start of the zspage.
    offset: u32,
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Pool {
    const_unless_modelled! {
        /// A pool without memory.
        pub fn new() -> Self {
            Self {
                data: AtomicPtr::new(core::ptr::null_mut()),
                metadata: AtomicPtr::new(core::ptr::null_mut()),
                window_shift: AtomicU32::new(0),
                held: Held {
                    pages: AtomicU64::new(0),
                    metadata: AtomicU64::new(0),
                    shared: AtomicU64::new(0),
                },
                #[cfg(not(loom))]
                windows: [const { Window::new() }; MAX_CHAIN],
                #[cfg(not(loom))]
                classes: [const { Class::new() }; 256],
                #[cfg(loom)]
                windows: core::array::from_fn(|_| Window::new()),
                #[cfg(loom)]
                classes: core::array::from_fn(|_| Class::new()),
            }
        }
    }

    /// Bytes of metadata range that a data range of `data_len` bytes needs.
    pub const fn metadata_len(data_len: usize) -> usize {
        data_len / DATA_PER_METADATA
    }

    /// Gives the pool its address ranges.
    ///
    /// # Errors
    /// [`PoolError::BadRange`]; [`PoolError::Memory`] when the kernel refuses to
    /// keep huge pages out.
    ///
    /// # Safety
    /// `memory` is as [`PoolMemory`] says, stays so as long as the pool is used,
    /// and reads as zeroes. Called once, before any other thread uses the pool.
    pub unsafe fn init(&self, memory: PoolMemory) -> Result<(), PoolError> {
        let PoolMemory {
            data,
            data_len,
            metadata,
            metadata_len,
        } = memory;
        let fits = data_len.is_power_of_two()
            && (MIN_DATA_LEN..=MAX_DATA_LEN).contains(&data_len)
            && metadata_len >= Self::metadata_len(data_len)
            && data.addr().is_multiple_of(PAGE_SIZE)
            && metadata.addr().is_multiple_of(PAGE_SIZE)
            && !data.is_null()
            && !metadata.is_null();
        if !fits {
            return Err(PoolError::BadRange);
        }
        // SAFETY: the caller's mappings are the pool's from here on.
        unsafe { memory::prepare(data, data_len) }
            // SAFETY: as above.
            .and_then(|()| unsafe { memory::prepare(metadata, metadata_len) })
            .map_err(|errno| PoolError::Memory { errno })?;
        // Relaxed: no other thread uses the pool yet, and whatever publishes the
        // pool to them publishes these.
        self.data.store(data, Ordering::Relaxed);
        self.metadata.store(metadata.cast(), Ordering::Relaxed);
        let window_len = data_len / MAX_CHAIN;
        self.window_shift
            .store(window_len.ilog2(), Ordering::Relaxed);
        Ok(())
    }

    /// Bytes that an object of `size` bytes takes, with its owner.
    #[must_use]
    pub const fn takes(size: usize) -> usize {
        if size == PAGE_SIZE {
            PAGE_SIZE
        } else {
            (size + OWNER).next_multiple_of(class::GRANULE)
        }
    }

    /// Allocates an object of `size` bytes and writes `owner` in front of it. The bytes
    /// themselves are not zeroed, nor written: see [`Pool::data_ptr`].
    ///
    /// Memory comes from, in this order: a free object in the fullest zspage of the class; the
    /// cache of empty zspages; the reserve; the limit's room; empty zspages of other lengths; a
    /// free object of a larger class.
    ///
    /// Until the caller has published the location in the owner's page table
    /// entry, compaction leaves the object where it is.
    ///
    /// # Errors
    /// Any of [`PoolError`] but `BadRange`. Nothing has changed then, except that
    /// pages may have moved from idle zspages into the reserve.
    #[inline]
    pub fn alloc(
        &self,
        size: usize,
        owner: u32,
        reserve: &mut Reserve<'_>,
    ) -> Result<Loc, PoolError> {
        let id = class::class_for(size).ok_or(PoolError::BadSize { size })?;
        if id == HUGE {
            return self.alloc_huge(owner, reserve);
        }
        match self.alloc_in(id, owner, Some(reserve)) {
            Ok(loc) => Ok(loc),
            Err(error) => self.alloc_larger(id, owner).ok_or(error),
        }
    }

    /// An object of class `id`; without a reserve, only where one is free already.
    #[inline]
    fn alloc_in(
        &self,
        id: ClassId,
        owner: u32,
        reserve: Option<&mut Reserve<'_>>,
    ) -> Result<Loc, PoolError> {
        let shape = class::class(id);
        let class = self.class(id);
        let area = self.area(shape.chain as usize - 1);
        let mut partial = class.partial.lock();
        let mut index = partial.fullest();
        if index == NIL {
            let Some(reserve) = reserve else {
                return Err(PoolError::NoRoom {
                    pages_needed: u64::from(shape.chain),
                });
            };
            index = self.take_zspage(&area, reserve)?;
            let zspage = area.zspages.get(index);
            // SAFETY: a zspage just taken is this thread's own.
            unsafe {
                (*zspage).class = id;
                (*zspage).free = 0;
                (*zspage).fresh = 0;
                (*zspage).inuse = 0;
            }
            Class::add(&class.nr_zspages, 1);
        }
        let zspage = area.zspages.get(index);
        let memory = area.memory(index);
        // SAFETY: the class's lock is held; zspages on its lists, and the one just
        // taken, are live, of this class and not full. The object is 16-byte
        // aligned and ours.
        let object = unsafe {
            let inuse = (*zspage).inuse;
            let object = zspage::take_object(zspage, shape, memory);
            let object = zspage::object_ptr(shape, memory, object);
            object.cast::<u32>().write(owner);
            partial.regroup(&area, shape, index, inuse, inuse.wrapping_add(1));
            object
        };
        Class::add(&class.nr_objects, 1);
        class.assert_counts(shape);
        Ok(self.loc_of(object))
    }

    /// A whole page, with its owner in the descriptor.
    fn alloc_huge(&self, owner: u32, reserve: &mut Reserve<'_>) -> Result<Loc, PoolError> {
        let area = self.area(0);
        let index = self.take_zspage(&area, reserve)?;
        let zspage = area.zspages.get(index);
        // SAFETY: a zspage just taken is this thread's own; a huge one is on no
        // list, so its link holds the owner.
        unsafe {
            (*zspage).class = HUGE;
            (*zspage).next = owner;
            (*zspage).prev = 0;
        }
        let class = self.class(HUGE);
        class.nr_zspages.fetch_add(1, Ordering::Relaxed);
        class.nr_objects.fetch_add(1, Ordering::Relaxed);
        Ok(self.loc_of(area.memory(index)))
    }

    /// A free object of any larger class: wasteful, but better than to fail.
    #[cold]
    fn alloc_larger(&self, id: ClassId, owner: u32) -> Option<Loc> {
        (id.saturating_add(1)..HUGE)
            .filter(|&id| {
                // A hint, to pass over classes without taking their locks.
                let stat = self.class_stat(id);
                stat.nr_objects < stat.nr_zspages * u64::from(stat.objects_per_zspage)
            })
            .find_map(|id| self.alloc_in(id, owner, None).ok())
    }

    /// A zspage of `area`'s length; when the limit is in the way, at the price of
    /// the other windows' caches.
    #[cold]
    fn take_zspage(&self, area: &Area, reserve: &mut Reserve<'_>) -> Result<Index, PoolError> {
        let window = self.window(area.chain as usize - 1);
        match window.take(area, &self.held, reserve) {
            Err(PoolError::NoRoom { .. }) if self.trim_into(reserve) > 0 => {
                window.take(area, &self.held, reserve)
            }
            result => result,
        }
    }

    /// Frees an object.
    ///
    /// # Safety
    /// `loc` came from [`Pool::alloc`] (or was published by [`Pool::compact`]) and
    /// was not freed since; nobody uses its data; the owner's page table entry is
    /// held by the caller and no longer says `loc` when it is let go.
    #[inline]
    pub unsafe fn free(&self, loc: Loc, charge: &Charge) {
        let place = self.place(loc);
        let area = self.area(place.window);
        strict_assert!(place.index != NIL && place.index < area.nr_max);
        let zspage = area.zspages.get(place.index);
        // SAFETY: the object lives, so its zspage was cut and keeps its class.
        let id = unsafe { (*zspage).class };
        let class = self.class(id);
        if id == HUGE {
            // SAFETY: the object is the caller's, and nobody makes a huge shared zspage live again.
            if unsafe { (*zspage).state } == SHARED {
                return self.put_shared(&place, charge);
            }
            class.nr_zspages.fetch_sub(1, Ordering::Relaxed);
            class.nr_objects.fetch_sub(1, Ordering::Relaxed);
        } else {
            let shape = class::class(id);
            let mut partial = class.partial.lock();
            // SAFETY: the class's lock is held.
            if unsafe { (*zspage).state } == SHARED {
                // SAFETY: as above; the object is in use.
                let inuse = unsafe { shared::forget_object(zspage) };
                drop(partial);
                if inuse == 0 {
                    self.put_shared(&place, charge);
                }
                return;
            }
            // SAFETY: the class's lock is held; the object is in use and, by this
            // function's contract, the caller's.
            let inuse = unsafe {
                let object = shape.object_at(place.offset);
                zspage::put_object(zspage, shape, area.memory(place.index), object);
                let inuse = (*zspage).inuse;
                partial.regroup(&area, shape, place.index, inuse.wrapping_add(1), inuse);
                inuse
            };
            Class::sub(&class.nr_objects, 1);
            if inuse > 0 {
                return;
            }
            Class::sub(&class.nr_zspages, 1);
            class.assert_counts(shape);
            // The lock is dropped here. The empty zspage is on no list any more,
            // so it is this thread's own.
        }
        // SAFETY: the zspage is live, empty, on no list and our own.
        let pages = unsafe {
            self.window(place.window)
                .put(&area, &self.held, place.index)
        };
        if pages > 0 {
            charge.uncharge(pages);
        }
    }

    /// Where an object's data begin. They are in one piece, and stay there while
    /// the owner's page table entry is held (or was not published yet).
    #[inline]
    pub fn data_ptr(&self, loc: Loc) -> *mut u8 {
        let offset = loc.offset();
        let huge = offset >> self.shift() == 0;
        self.base()
            .wrapping_add(if huge { offset } else { offset + OWNER })
    }

    /// Prefetches what loading and freeing an object of `size` bytes touches. A hint: the object
    /// may have been freed.
    #[inline]
    pub fn prefetch(&self, loc: Loc, size: usize) {
        let place = self.place(loc);
        let zspage = self.area(place.window).zspages.get(place.index);
        arch::prefetch(zspage.addr(), size_of::<Zspage>());
        arch::prefetch(self.data_ptr(loc).addr(), size);
    }

    /// The owner that [`Pool::alloc`] was given.
    ///
    /// # Safety
    /// `loc` is an object in use, and stays so during the call.
    #[inline]
    pub unsafe fn owner(&self, loc: Loc) -> u32 {
        let place = self.place(loc);
        if place.window == 0 {
            let zspage = self.area(0).zspages.get(place.index);
            // SAFETY: a huge object's descriptor; `next` is its owner while it lives.
            return unsafe { (*zspage).next };
        }
        // SAFETY: the owner is in front of the data; it changes only while nothing says `loc`.
        unsafe { self.base().wrapping_add(loc.offset()).cast::<u32>().read() }
    }

    /// Gives an object to another owner; its data stay where they are.
    ///
    /// # Safety
    /// `loc` is an object in use, and stays so during the call; no page table entry
    /// says `loc` at this moment, so that compaction leaves it alone.
    pub unsafe fn set_owner(&self, loc: Loc, owner: u32) {
        let place = self.place(loc);
        let zspage = self.area(place.window).zspages.get(place.index);
        if place.window == 0 {
            // SAFETY: a huge object's descriptor; `next` is its owner while it lives.
            unsafe { (*zspage).next = owner };
            return;
        }
        // SAFETY: a live zspage keeps its class.
        let id = unsafe { (*zspage).class };
        // Compaction reads owners under the class's lock.
        let _partial = self.class(id).partial.lock();
        // SAFETY: under the class's lock. A shared page is not written: compaction will not find
        // this object, and leave it where it is.
        if unsafe { (*zspage).state } == SHARED {
            return;
        }
        let object = self.base().wrapping_add(loc.offset()).cast::<u32>();
        // SAFETY: the owner word in front of the object's data.
        unsafe { object.write(owner) };
    }

    /// What [`Pool::set_note`] wrote beside an object of 4096 bytes; 0 if nothing was.
    ///
    /// # Safety
    /// `loc` is an object in use, of 4096 bytes, and stays so during the call.
    pub unsafe fn note(&self, loc: Loc) -> u32 {
        let place = self.place(loc);
        // SAFETY: a huge object's descriptor; `prev` is its note while it lives.
        unsafe { (*self.area(0).zspages.get(place.index)).prev }
    }

    /// Writes `note`, such as a checksum, beside an object of 4096 bytes, which fills its page.
    ///
    /// # Safety
    /// As for [`Pool::note`], and nobody else reads or notes meanwhile.
    pub unsafe fn set_note(&self, loc: Loc, note: u32) {
        let place = self.place(loc);
        // SAFETY: as in `note`.
        unsafe { (*self.area(0).zspages.get(place.index)).prev = note };
    }

    /// Gives the memory of every empty zspage back to the kernel and uncharges
    /// it. Returns the pages.
    pub fn trim(&self, charge: &Charge) -> u64 {
        let mut reserve = Reserve::empty(charge);
        self.trim_into(&mut reserve)
        // Dropping the reserve uncharges them.
    }

    /// As [`Pool::trim`], but keeps the pages charged, in the reserve.
    pub fn trim_into(&self, reserve: &mut Reserve<'_>) -> u64 {
        let mut pages = 0;
        for (at, window) in self.windows.iter().enumerate() {
            pages += window.drain(&self.area(at), &self.held);
        }
        reserve.put(pages);
        pages
    }

    #[inline]
    fn base(&self) -> *mut u8 {
        self.data.load(Ordering::Relaxed)
    }

    #[inline]
    fn shift(&self) -> u32 {
        self.window_shift.load(Ordering::Relaxed)
    }

    #[inline]
    fn loc_of(&self, object: *mut u8) -> Loc {
        Loc::at(object.addr().wrapping_sub(self.base().addr()))
    }

    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a window has at most 2^25 pages, a zspage 2^15 bytes"
    )]
    fn place(&self, loc: Loc) -> Place {
        let offset = loc.offset();
        let shift = self.shift();
        let window = (offset >> shift) & (MAX_CHAIN - 1);
        let in_window = offset & ((1 << shift) - 1);
        let chain = window as u32 + 1;
        let index = (in_window / PAGE_SIZE) as u32 / chain;
        Place {
            window,
            index,
            offset: (in_window - index as usize * chain as usize * PAGE_SIZE) as u32,
        }
    }

    /// Where the window at `at` (0 for zspages of one page) lies.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a window has at most 2^25 pages"
    )]
    fn area(&self, at: usize) -> Area {
        let shift = self.shift();
        let first = self
            .metadata
            .load(Ordering::Relaxed)
            .wrapping_add(at * ((1 << shift) / PAGE_SIZE));
        let chain = at as u32 + 1;
        Area {
            data: self.base().wrapping_add(at << shift),
            // SAFETY: `init` was given a metadata range with one descriptor for
            // each page of data; this is the window's share of it.
            zspages: unsafe { Descriptors::new(first) },
            chain,
            nr_max: ((1usize << shift) / PAGE_SIZE) as u32 / chain,
        }
    }

    #[inline]
    fn window(&self, at: usize) -> &Window {
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        &self.windows[at & (MAX_CHAIN - 1)]
    }

    #[inline]
    fn class(&self, id: ClassId) -> &Class {
        #[allow(clippy::indexing_slicing, reason = "an u8 into 256 entries")]
        &self.classes[id as usize]
    }
}
