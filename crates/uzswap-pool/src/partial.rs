//! *What*: the mutable part of a size class: its counts, and its zspages with free objects by
//! fullness. The fullest is filled first, so that the emptiest become empty.
//!
//! *Invariants*
//! - Every zspage of the class with `0 < inuse < objects` is in the group of its
//!   fullness; full ones are on no list.
//! - Bit `g` of `nonempty` is set exactly while `groups[g]` has members.
//! - `nr_objects + free objects = nr_zspages * objects`.
//!
//! *Locking*: the class lock is the lock around [`Partial`]; it guards the descriptors and the free
//! objects of the class's zspages as well.
//! *Context*: signal, worker.

use crate::class::{GROUPS, SizeClass};
use crate::window::Area;
use crate::zspage::{Index, List, NIL};
use uzswap_sync::lock::Lock;
use uzswap_sync::primitive::{AtomicU64, Ordering};
use uzswap_sync::{const_unless_modelled, strict_assert};

/// The mutable part of a size class. Zero is an empty class.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Class {
    pub(crate) partial: Lock<Partial>,
    // Both change under the lock (the huge class has none: by atomic additions).
    // `nr_objects + free objects = nr_zspages * objects`.
    pub(crate) nr_zspages: AtomicU64,
    pub(crate) nr_objects: AtomicU64,
}

/// A class's zspages with free objects, by fullness.
#[derive(Debug)]
pub(crate) struct Partial {
    groups: [List; GROUPS],
    /// Bit `g` is set while `groups[g]` is not empty.
    pub(crate) nonempty: u32,
}

impl Class {
    const EMPTY: Partial = Partial {
        groups: [List::EMPTY; GROUPS],
        nonempty: 0,
    };

    const_unless_modelled! {
        pub(crate) fn new() -> Self {
            Self {
                partial: Lock::new(Self::EMPTY),
                nr_zspages: AtomicU64::new(0),
                nr_objects: AtomicU64::new(0),
            }
        }
    }

    // Written under the class's lock alone, so a load and a store will do; atomic
    // for those who read without the lock.
    #[inline]
    pub(crate) fn add(counter: &AtomicU64, nr: u64) {
        let sum = counter.load(Ordering::Relaxed).wrapping_add(nr);
        counter.store(sum, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn sub(counter: &AtomicU64, nr: u64) {
        strict_assert!(counter.load(Ordering::Relaxed) >= nr);
        Self::add(counter, nr.wrapping_neg());
    }

    /// States `nr_objects + free objects = nr_zspages * objects`, as far as the counts alone show
    /// it.
    ///
    /// The caller holds the class's lock.
    #[inline]
    pub(crate) fn assert_counts(&self, shape: &SizeClass) {
        let nr = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        strict_assert!(
            nr(&self.nr_objects) <= nr(&self.nr_zspages) * u64::from(shape.objects),
            "nr_objects + free objects = nr_zspages * objects"
        );
    }
}

impl Partial {
    /// Nothing is to be had of the zspages that it knows.
    pub(crate) fn forget_all(&mut self) {
        *self = Class::EMPTY;
    }

    /// The zspage to allocate from, or [`NIL`].
    #[inline]
    pub(crate) fn fullest(&self) -> Index {
        match self.nonempty.checked_ilog2() {
            Some(group) => self.group(group as usize).first(),
            None => NIL,
        }
    }

    #[inline]
    pub(crate) fn group(&self, group: usize) -> &List {
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        &self.groups[group & (GROUPS - 1)]
    }

    #[inline]
    pub(crate) fn group_mut(&mut self, group: usize) -> &mut List {
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        &mut self.groups[group & (GROUPS - 1)]
    }

    /// Moves a zspage whose use went from `before` to `after` objects to the list
    /// where it now belongs. Empty and full zspages are on none.
    ///
    /// # Safety
    /// The class's lock is held (`self` comes out of it); `index` is one of its
    /// zspages, on the list for `before`.
    #[inline]
    pub(crate) unsafe fn regroup(
        &mut self,
        area: &Area,
        shape: &SizeClass,
        index: Index,
        before: u16,
        after: u16,
    ) {
        let group = |inuse| (inuse != 0 && inuse != shape.objects).then(|| shape.group_of(inuse));
        let (from, to) = (group(before), group(after));
        if from == to {
            return;
        }
        if let Some(from) = from {
            // SAFETY: by this function's contract.
            unsafe { self.remove(area, from, index) };
        }
        if let Some(to) = to {
            // SAFETY: on no list now.
            unsafe { self.group_mut(to).push_front(area.zspages, index) };
            self.nonempty |= 1 << to;
        }
    }

    /// Takes a zspage off its group.
    ///
    /// # Safety
    /// As for [`Partial::regroup`]; `index` is on the list `group`.
    #[inline]
    pub(crate) unsafe fn remove(&mut self, area: &Area, group: usize, index: Index) {
        let list = self.group_mut(group);
        // SAFETY: by this function's contract.
        unsafe { list.remove(area.zspages, index) };
        if list.first() == NIL {
            self.nonempty &= !(1 << group);
        }
    }
}
