//! *What*: the arena, the one address range that uzswap manages, and how addresses, pages and
//! folios number each other in it.
//!
//! *Invariants*: a [`Page`] is below [`NR_PAGES`], so its address lies in the arena and its entry
//! in the page table; only the constructors make one.
//! *Locking*: none. *Context*: any.

pub use uzswap_sys::{PAGE_SHIFT, PAGE_SIZE};

/// First address of the arena: one that neither the kernel nor allocators choose by themselves, and
/// the same in every process, because an inherited seccomp filter tests for it.
pub const ARENA_BASE: usize = 0x1000_0000_0000;
/// Bytes of address space that the arena reserves. Small under Miri, which has no lazy memory.
pub const ARENA_LEN: usize = if cfg!(miri) { 64 << 20 } else { 4 << 40 };
/// Pages in the arena.
pub const NR_PAGES: usize = ARENA_LEN >> PAGE_SHIFT;

const _: () = assert!(usize::BITS == 64, "the arena needs 64-bit addresses");
const _: () = assert!(NR_PAGES <= 1 << 30, "a page number fits 30 bits");

/// The part of the arena that one engine manages: all of it, or one of [`Partition::COUNT`], so
/// that a process can have several engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    start: usize,
    len: usize,
}

impl Partition {
    /// All of the arena.
    pub const WHOLE: Partition = Partition {
        start: ARENA_BASE,
        len: ARENA_LEN,
    };
    /// Engines that a process can have.
    pub const COUNT: usize = 16;
    const LEN: usize = ARENA_LEN / Self::COUNT;

    /// Partition number `number`; `None`: there is none.
    #[must_use]
    pub const fn numbered(number: usize) -> Option<Partition> {
        if number < Self::COUNT {
            Some(Partition {
                start: ARENA_BASE + number * Self::LEN,
                len: Self::LEN,
            })
        } else {
            None
        }
    }

    /// The number of the partition that holds `addr`; `None`: that is not in the arena.
    #[inline]
    #[must_use]
    pub const fn number_of(addr: usize) -> Option<usize> {
        if in_arena(addr) {
            Some((addr - ARENA_BASE) / Self::LEN)
        } else {
            None
        }
    }

    /// Its first byte.
    #[must_use]
    pub const fn start(self) -> usize {
        self.start
    }

    /// Bytes of address space.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    pub const fn len(self) -> usize {
        self.len
    }

    /// The address after its last byte.
    #[must_use]
    pub const fn end(self) -> usize {
        self.start + self.len
    }

    /// Its pages.
    #[must_use]
    pub fn pages(self) -> PageRange {
        PageRange::covering(self.start, self.len)
    }
}

const _: () = assert!(ARENA_LEN.is_multiple_of(Partition::COUNT * PAGE_SIZE));

/// Whether `addr` lies in the arena.
#[inline]
#[must_use]
pub const fn in_arena(addr: usize) -> bool {
    addr.wrapping_sub(ARENA_BASE) < ARENA_LEN
}

/// The part of `[addr, addr + len)` in the arena: its address and length.
#[inline]
#[must_use]
pub fn arena_part(addr: usize, len: usize) -> Option<(usize, usize)> {
    let end = addr.saturating_add(len).min(ARENA_BASE + ARENA_LEN);
    let addr = addr.max(ARENA_BASE);
    (addr < end).then(|| (addr, end - addr))
}

/// A `usize` as the kernel's and the counters' 64-bit number.
#[inline]
#[must_use]
pub const fn wide(n: usize) -> u64 {
    n as u64
}

/// A 64-bit number that fits memory, as `usize`.
#[inline]
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits: asserted above"
)]
pub const fn narrow(n: u64) -> usize {
    n as usize
}

/// Number of a page in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Page(u32);

impl Page {
    /// The page that holds `addr`, if that is in the arena.
    #[inline]
    #[must_use]
    pub const fn containing(addr: usize) -> Option<Page> {
        if in_arena(addr) {
            Some(Page::from_index((addr - ARENA_BASE) >> PAGE_SHIFT))
        } else {
            None
        }
    }

    /// The page of number `index`, modulo [`NR_PAGES`].
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "below 2^30 by the mask")]
    pub const fn from_index(index: usize) -> Page {
        Page((index & (NR_PAGES - 1)) as u32)
    }

    /// Its number.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Its number as pool objects carry it.
    #[inline]
    #[must_use]
    pub const fn owner(self) -> u32 {
        self.0
    }

    /// Its first byte.
    #[inline]
    #[must_use]
    pub const fn addr(self) -> usize {
        ARENA_BASE + (self.index() << PAGE_SHIFT)
    }
}

/// Pages from `start` to `end` exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRange {
    /// Number of the first page.
    pub start: usize,
    /// Number after the last page.
    pub end: usize,
}

impl PageRange {
    /// The range of one page.
    #[inline]
    #[must_use]
    pub const fn one(page: Page) -> PageRange {
        PageRange {
            start: page.index(),
            end: page.index() + 1,
        }
    }

    /// The pages that `[addr, addr + len)` touches, cut to the arena.
    #[must_use]
    pub fn covering(addr: usize, len: usize) -> PageRange {
        let arena_end = ARENA_BASE + ARENA_LEN;
        let from = addr.clamp(ARENA_BASE, arena_end);
        let to = addr.saturating_add(len).clamp(from, arena_end);
        PageRange {
            start: (from - ARENA_BASE) >> PAGE_SHIFT,
            end: (to - ARENA_BASE).div_ceil(PAGE_SIZE),
        }
    }

    /// Number of pages.
    #[inline]
    #[must_use]
    pub const fn len(self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// Whether it has no page.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// The intersection.
    #[must_use]
    pub fn and(self, other: PageRange) -> PageRange {
        let start = self.start.max(other.start);
        PageRange {
            start,
            end: self.end.min(other.end).max(start),
        }
    }

    /// Its pages.
    pub fn pages(self) -> impl DoubleEndedIterator<Item = Page> {
        (self.start..self.end).map(Page::from_index)
    }

    /// Its first byte.
    #[must_use]
    pub const fn addr(self) -> usize {
        ARENA_BASE + (self.start << PAGE_SHIFT)
    }

    /// Its length in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.len() << PAGE_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_in_the_arena_is_cut_at_both_ends() {
        let end = ARENA_BASE + ARENA_LEN;
        assert_eq!(arena_part(ARENA_BASE - 8, 9), Some((ARENA_BASE, 1)));
        assert_eq!(arena_part(end - 1, usize::MAX), Some((end - 1, 1)));
        assert_eq!(arena_part(0, usize::MAX), Some((ARENA_BASE, ARENA_LEN)));
        for (addr, len) in [(ARENA_BASE - 8, 8), (ARENA_BASE, 0), (end, 1)] {
            assert_eq!(arena_part(addr, len), None, "{addr:#x}");
        }
    }

    #[test]
    fn partitions_cover_the_arena_without_gaps() {
        let mut at = ARENA_BASE;
        for number in 0..Partition::COUNT {
            let partition = Partition::numbered(number).unwrap();
            assert_eq!(partition.start(), at);
            at = partition.end();
            for addr in [partition.start(), at - 1] {
                assert_eq!(Partition::number_of(addr), Some(number), "{addr:#x}");
            }
        }
        assert_eq!(at, ARENA_BASE + ARENA_LEN);
        assert_eq!(Partition::numbered(Partition::COUNT), None);
        assert_eq!(Partition::number_of(ARENA_BASE - 1), None);
        assert_eq!(Partition::number_of(at), None);
    }

    #[test]
    fn a_page_and_its_address_tell_each_other() {
        let page = Page::containing(ARENA_BASE + 5 * PAGE_SIZE + 17).unwrap();
        assert_eq!(page.index(), 5);
        assert_eq!(page.addr(), ARENA_BASE + 5 * PAGE_SIZE);
        assert_eq!(Page::containing(ARENA_BASE - 1), None);
        assert_eq!(Page::containing(ARENA_BASE + ARENA_LEN), None);
    }

    #[test]
    fn a_range_covers_every_page_that_it_touches_and_ends_with_the_arena() {
        let r = PageRange::covering(ARENA_BASE + 4095, 2);
        assert_eq!((r.start, r.end), (0, 2));
        assert!(PageRange::covering(ARENA_BASE - 4096, 4096).is_empty());
        let tail = PageRange::covering(ARENA_BASE + ARENA_LEN - 1, usize::MAX);
        assert_eq!((tail.start, tail.end), (NR_PAGES - 1, NR_PAGES));
        assert!(PageRange::covering(ARENA_BASE, 0).is_empty());
    }
}
