//! *What*: one zspage's descriptor, the objects in it, and lists of zspages.
//!
//! *Invariants*
//! - 16 bytes a zspage, in the metadata area, never in the object pages. All
//!   zeroes is the zspage that was never used.
//! - A zspage is known by its index in its window. Index 0 is never used, so 0
//!   ends lists and locations are never 0.
//! - Objects `0..fresh` were handed out at some time, the ones from `fresh` on
//!   never: a new zspage needs no threading, and its pages are not read.
//! - `free` is the first of a chain of free objects below `fresh`, as 1 + its
//!   number; the first two bytes of each hold the next in the same form.
//! - `fresh - |chain| == inuse`, but in a shared zspage, whose chain stays what it was at the fork.
//! - A descriptor is on one list at most: an idle or hollow list of its window,
//!   or a fullness group of its class. Full, shared and huge ones are on none,
//!   and a huge one keeps its owner in `next` and its object's note in `prev`.
//!
//! *Locking*: `state` changes under the window lock, and from `SHARED` to `LIVE` under the class's
//! as well. The rest belongs to the class's lock while the zspage is `LIVE` or `SHARED`, to the
//! window's otherwise. `class` does not change while an object lives, so the holder of a location
//! reads it unlocked. Fields are reached one by one through raw pointers, never through a reference
//! to the whole: two locks may guard two fields of one descriptor.
//! *Context*: signal, worker, init.

use crate::class::{ClassId, GRANULE, SizeClass};
use uzswap_sync::strict_assert;

/// A zspage's index in its window; [`NIL`] is none.
pub(crate) type Index = u32;
/// The end of a list.
pub(crate) const NIL: Index = 0;

/// Has no memory.
pub(crate) const HOLLOW: u8 = 0;
/// Has memory and no objects, in its window's cache.
pub(crate) const IDLE: u8 = 1;
/// Belongs to a class.
pub(crate) const LIVE: u8 = 2;
/// Was live when the process forked: it loses objects and gets none, and its pages are only read.
pub(crate) const SHARED: u8 = 3;

/// The descriptor.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Zspage {
    /// Next in the list, or a huge object's owner.
    pub(crate) next: u32,
    /// Previous in the list, or a huge object's note.
    pub(crate) prev: u32,
    /// 1 + the first free object, 0 for none.
    pub(crate) free: u16,
    /// Objects from here on were never handed out.
    pub(crate) fresh: u16,
    /// Objects in use.
    pub(crate) inuse: u16,
    /// The class, while live.
    pub(crate) class: ClassId,
    /// [`HOLLOW`], [`IDLE`], [`LIVE`] or [`SHARED`].
    pub(crate) state: u8,
}

const _: () = assert!(size_of::<Zspage>() == GRANULE);

/// Where the descriptors of one window are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors(*mut Zspage);

impl Descriptors {
    /// # Safety
    /// `first` must be the descriptor array of a window, and every index given
    /// to the methods below must be one that the window has cut.
    pub(crate) const unsafe fn new(first: *mut Zspage) -> Self {
        Self(first)
    }

    /// The descriptor of a zspage that was cut.
    #[inline]
    pub(crate) fn get(self, index: Index) -> *mut Zspage {
        self.0.wrapping_add(index as usize)
    }
}

/// A circular list of zspages, threaded through their descriptors. Zero is empty.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct List {
    head: Index,
}

impl List {
    pub(crate) const EMPTY: Self = Self { head: NIL };

    /// The first zspage, or [`NIL`].
    #[inline]
    pub(crate) const fn first(self) -> Index {
        self.head
    }

    /// The last zspage, or [`NIL`].
    ///
    /// # Safety
    /// As for [`List::push_front`].
    #[inline]
    pub(crate) unsafe fn last(self, all: Descriptors) -> Index {
        if self.head == NIL {
            return NIL;
        }
        // SAFETY: a list's members are cut zspages of `all`.
        unsafe { (*all.get(self.head)).prev }
    }

    /// Puts `index` in front.
    ///
    /// # Safety
    /// The caller holds the lock of this list, which is one of the window that
    /// `all` describes; `index` is cut and on no list.
    #[inline]
    pub(crate) unsafe fn push_front(&mut self, all: Descriptors, index: Index) {
        // SAFETY: passed on.
        unsafe { self.push_back(all, index) };
        self.head = index;
    }

    /// Puts `index` at the end.
    ///
    /// # Safety
    /// As for [`List::push_front`].
    #[inline]
    pub(crate) unsafe fn push_back(&mut self, all: Descriptors, index: Index) {
        let this = all.get(index);
        // SAFETY: `index`, the head and its neighbour are cut zspages, whose links
        // are this list's to change under its lock.
        unsafe {
            if self.head == NIL {
                (*this).next = index;
                (*this).prev = index;
                self.head = index;
                return;
            }
            let head = all.get(self.head);
            let tail = (*head).prev;
            (*this).next = self.head;
            (*this).prev = tail;
            (*all.get(tail)).next = index;
            (*head).prev = index;
        }
    }

    /// Takes `index` out.
    ///
    /// # Safety
    /// As for [`List::push_front`], but `index` is on this list.
    #[inline]
    pub(crate) unsafe fn remove(&mut self, all: Descriptors, index: Index) {
        let this = all.get(index);
        // SAFETY: `index` and its neighbours are on this list, under its lock.
        unsafe {
            let (next, prev) = ((*this).next, (*this).prev);
            strict_assert!((*all.get(prev)).next == index && (*all.get(next)).prev == index);
            if next == index {
                strict_assert!(self.head == index);
                self.head = NIL;
                return;
            }
            (*all.get(prev)).next = next;
            (*all.get(next)).prev = prev;
            if self.head == index {
                self.head = next;
            }
        }
    }
}

/// Takes a free object out of a zspage that is not full.
///
/// # Safety
/// The caller holds the class's lock; `zspage` is live, of class `shape`, not
/// full, and its memory begins at `memory`.
#[inline]
pub(crate) unsafe fn take_object(zspage: *mut Zspage, shape: &SizeClass, memory: *mut u8) -> u16 {
    // SAFETY: under the class's lock its fields are ours; a free object's first
    // two bytes hold the link, and objects are at least 16-byte aligned.
    unsafe {
        strict_assert!((*zspage).state == LIVE);
        strict_assert!((*zspage).inuse < shape.objects, "taken from a full zspage");
        (*zspage).inuse = (*zspage).inuse.wrapping_add(1);
        let link = (*zspage).free;
        if link == 0 {
            let object = (*zspage).fresh;
            // fresh - |chain| == inuse, and the chain is empty.
            strict_assert!(object.wrapping_add(1) == (*zspage).inuse);
            (*zspage).fresh = object.wrapping_add(1);
            return object;
        }
        let object = link.wrapping_sub(1);
        strict_assert!(object < (*zspage).fresh && (*zspage).inuse <= (*zspage).fresh);
        (*zspage).free = object_ptr(shape, memory, object).cast::<u16>().read();
        object
    }
}

/// Puts an object back.
///
/// # Safety
/// The caller holds the class's lock; `zspage` is live, of class `shape`, its
/// memory begins at `memory`, and `object` is in use and reached by nobody else.
#[inline]
pub(crate) unsafe fn put_object(
    zspage: *mut Zspage,
    shape: &SizeClass,
    memory: *mut u8,
    object: u16,
) {
    // SAFETY: as in `take_object`; the object's bytes are nobody's any more.
    unsafe {
        strict_assert!((*zspage).state == LIVE);
        strict_assert!(object < (*zspage).fresh, "freed and never handed out");
        strict_assert!(
            (*zspage).inuse > 0 && (*zspage).free != object.wrapping_add(1),
            "freed twice"
        );
        (*zspage).inuse = (*zspage).inuse.wrapping_sub(1);
        object_ptr(shape, memory, object)
            .cast::<u16>()
            .write((*zspage).free);
        (*zspage).free = object.wrapping_add(1);
    }
}

/// Makes a chain of the objects that `is_free` names among those that were ever handed out.
///
/// # Safety
/// The caller holds the class's lock; `zspage` is of class `shape`, its memory, which begins at
/// `memory`, is this process's alone, and all its other objects are in use.
pub(crate) unsafe fn chain_free(
    zspage: *mut Zspage,
    shape: &SizeClass,
    memory: *mut u8,
    is_free: impl Fn(u16) -> bool,
) {
    // SAFETY: as in `put_object`.
    unsafe {
        (*zspage).free = 0;
        for object in (0..(*zspage).fresh).filter(|&object| is_free(object)) {
            let link = object_ptr(shape, memory, object).cast::<u16>();
            link.write((*zspage).free);
            (*zspage).free = object.wrapping_add(1);
        }
    }
}

/// Where an object of a zspage begins.
#[inline]
pub(crate) fn object_ptr(shape: &SizeClass, memory: *mut u8, object: u16) -> *mut u8 {
    memory.wrapping_add(usize::from(object) * shape.size as usize)
}
