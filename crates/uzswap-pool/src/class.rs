//! *What*: the size classes: which object sizes share a class, and how many pages a
//! zspage of each class has. Everything here is computed at compile time.
//!
//! *Invariants*
//! - Sizes are counted in granules of 16 bytes, the owner word included.
//! - A class takes every size between the next smaller class and its own size.
//!   Two sizes whose zspages have the same pages and the same number of objects
//!   waste the same memory, so they are one class (as in zsmalloc).
//! - A zspage of an ordinary class has 2 to 8 pages; one page long are only the
//!   zspages of the *huge* class, which hold one page-sized object with the owner
//!   in the descriptor. So a location alone tells where its data begin.
//! - Class 0 does not exist: a descriptor of zeroes belongs to no class.
//!
//! *Locking*: none; constants.
//! *Context*: any.

use core::num::NonZeroU32;
use uzswap_sys::PAGE_SIZE;

/// Locations and object sizes are multiples of this.
pub(crate) const GRANULE: usize = 16;
/// Bytes in front of an object's data: the owner.
pub(crate) const OWNER: usize = 4;
/// The longest zspage, in pages, and the number of windows.
pub const MAX_CHAIN: usize = 8;
/// Fullness groups per class. Full zspages are in none.
pub(crate) const GROUPS: usize = 8;

const GRANULES_PER_PAGE: usize = PAGE_SIZE / GRANULE;

/// A class's number. 0 is no class, [`HUGE`] the page-sized objects.
pub(crate) type ClassId = u8;

/// Incompressible pages: one object of a whole page, without an owner word.
pub(crate) const HUGE: ClassId = 255;

/// The shape of one class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizeClass {
    /// Bytes from one object to the next; 0 in a class that does not exist.
    pub(crate) size: u32,
    /// Pages in a zspage.
    pub(crate) chain: u32,
    /// Objects in a zspage.
    pub(crate) objects: u16,
    /// `size` again, as a divisor.
    divisor: NonZeroU32,
    /// `GROUPS / objects` in 16-bit fixed point.
    group_scale: u32,
}

impl SizeClass {
    const NONE: Self = Self {
        size: 0,
        chain: 1,
        objects: 0,
        divisor: NonZeroU32::MIN,
        group_scale: 0,
    };

    /// The number of the object that begins `offset` bytes into its zspage.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a zspage has at most 32 KiB / 16 B = 2048 objects"
    )]
    pub(crate) const fn object_at(&self, offset: u32) -> u16 {
        (offset / self.divisor.get()) as u16
    }

    /// The fullness group of a zspage with `inuse` objects, 0 the emptiest.
    #[inline]
    pub(crate) const fn group_of(&self, inuse: u16) -> usize {
        ((inuse as u32 * self.group_scale) >> 16) as usize & (GROUPS - 1)
    }
}

/// Every class by its number.
pub(crate) static CLASSES: [SizeClass; 256] = TABLES.0;

/// The class for an object of so many granules.
static CLASS_OF: [ClassId; GRANULES_PER_PAGE + 1] = TABLES.1;

/// The class for `size` bytes of data; `None` unless `1 <= size <= 4096`.
#[inline]
pub(crate) fn class_for(size: usize) -> Option<ClassId> {
    if size == 0 || size > PAGE_SIZE {
        return None;
    }
    let granules = (size + OWNER).div_ceil(GRANULE);
    Some(CLASS_OF.get(granules).copied().unwrap_or(HUGE))
}

/// The shape of a class.
#[inline]
pub(crate) fn class(id: ClassId) -> &'static SizeClass {
    // 256 entries and an eight-bit index: always in bounds.
    #[allow(clippy::indexing_slicing, reason = "an u8 into 256 entries")]
    &CLASSES[id as usize]
}

/// Pages a zspage of `size`-byte objects should have: those that waste least, but
/// never more pages for a gain below 1/`MIN_GAIN_PART` of the memory, because a short
/// zspage becomes empty sooner.
const fn chain_for(size: usize) -> usize {
    const MIN_GAIN_PART: usize = 20;
    let mut best = 2;
    let mut pages = 3;
    while pages <= MAX_CHAIN {
        let waste = (pages * PAGE_SIZE) % size;
        let best_waste = (best * PAGE_SIZE) % size;
        // waste / pages + PAGE_SIZE / MIN_GAIN_PART < best_waste / best, without fractions
        if waste * best * MIN_GAIN_PART + PAGE_SIZE * best * pages
            < best_waste * pages * MIN_GAIN_PART
        {
            best = pages;
        }
        pages += 1;
    }
    best
}

const TABLES: ([SizeClass; 256], [ClassId; GRANULES_PER_PAGE + 1]) = build();

#[allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "evaluated at compile time; the tests check the tables"
)]
const fn build() -> ([SizeClass; 256], [ClassId; GRANULES_PER_PAGE + 1]) {
    let mut classes = [SizeClass::NONE; 256];
    let mut class_of = [HUGE; GRANULES_PER_PAGE + 1];
    classes[HUGE as usize] = SizeClass {
        size: PAGE_SIZE as u32,
        chain: 1,
        objects: 1,
        divisor: divisor(PAGE_SIZE),
        group_scale: (GROUPS as u32) << 16,
    };
    let mut id: usize = HUGE as usize;
    let mut granules = GRANULES_PER_PAGE;
    // From the largest size down, so that a shared class has its largest size.
    while granules > 0 {
        let size = granules * GRANULE;
        let chain = chain_for(size);
        let objects = chain * PAGE_SIZE / size;
        // No better than one object a page: huge.
        if objects > chain {
            let shared =
                classes[id].chain as usize == chain && classes[id].objects as usize == objects;
            if !shared {
                id -= 1;
                classes[id] = SizeClass {
                    size: size as u32,
                    chain: chain as u32,
                    objects: objects as u16,
                    divisor: divisor(size),
                    group_scale: ((GROUPS << 16) / objects) as u32,
                };
            }
            class_of[granules] = id as ClassId;
        }
        granules -= 1;
    }
    (classes, class_of)
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "class sizes are at most 4096"
)]
const fn divisor(size: usize) -> NonZeroU32 {
    match NonZeroU32::new(size as u32) {
        Some(divisor) => divisor,
        None => NonZeroU32::MIN,
    }
}

#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "test arithmetic on small numbers"
)]
mod tests {
    use super::*;

    #[test]
    fn every_size_fits_its_class_and_no_class_is_much_too_large() {
        for size in 1..=PAGE_SIZE {
            let id = class_for(size).unwrap();
            let shape = class(id);
            if id == HUGE {
                assert_eq!(shape.chain, 1);
                assert!(size > 3600, "{size} B would share pages");
                continue;
            }
            assert!(id > 0);
            let need = size + OWNER;
            assert!(shape.size as usize >= need);
            assert!((2..=MAX_CHAIN as u32).contains(&shape.chain));
            assert!(u32::from(shape.objects) * shape.size <= shape.chain * PAGE_SIZE as u32);
            // What merging adds is memory that the zspage would waste anyway.
            let exact = need.next_multiple_of(GRANULE);
            let lost = shape.size as usize - exact;
            assert!(
                lost * usize::from(shape.objects) < exact.max(512),
                "{size}: {shape:?}"
            );
        }
        assert!(class_for(0).is_none());
        assert!(class_for(PAGE_SIZE + 1).is_none());
    }

    #[test]
    fn offsets_and_groups_come_out_whole() {
        for id in 1..=HUGE {
            let shape = class(id);
            if shape.size == 0 {
                continue;
            }
            for object in 0..shape.objects {
                assert_eq!(shape.object_at(u32::from(object) * shape.size), object);
            }
            let mut last = 0;
            for inuse in 1..shape.objects {
                let group = shape.group_of(inuse);
                assert!(group >= last && group < GROUPS);
                last = group;
            }
        }
    }
}
