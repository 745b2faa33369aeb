//! *What*: address ranges as the kernel rounds and checks them, and their parts inside and outside
//! the arena.
//!
//! *Invariants*: a [`Span`] is page aligned and does not wrap. *Locking*: none. *Context*: any.

use uzswap_core::{ARENA_BASE, ARENA_LEN, PAGE_SIZE, arena_part};

const ARENA_END: usize = ARENA_BASE + ARENA_LEN;

/// A page-aligned range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First address.
    pub addr: usize,
    /// Bytes.
    pub len: usize,
}

/// Whether `addr` is the first of a page.
pub const fn aligned(addr: usize) -> bool {
    addr.is_multiple_of(PAGE_SIZE)
}

impl Span {
    /// `[addr, addr + len)` with `len` rounded up to pages; `None` if `addr` is not aligned or the
    /// range wraps.
    pub fn new(addr: usize, len: usize) -> Option<Span> {
        let len = len.checked_next_multiple_of(PAGE_SIZE)?;
        addr.checked_add(len)?;
        aligned(addr).then_some(Span { addr, len })
    }

    /// The pages of `[addr, addr + len)`; `None` if they wrap. mlock rounds so; madvise does not.
    pub fn covering(addr: usize, len: usize) -> Option<Span> {
        let start = addr & !(PAGE_SIZE - 1);
        Span::new(start, len.saturating_add(addr - start))
    }

    /// First address after it.
    pub const fn end(self) -> usize {
        self.addr + self.len
    }

    fn between(self, from: usize, to: usize) -> Option<Span> {
        let (start, end) = (self.addr.max(from), self.end().min(to));
        (start < end).then(|| Span {
            addr: start,
            len: end - start,
        })
    }

    /// Its part in the arena.
    pub fn inside(self) -> Option<Span> {
        let (addr, len) = arena_part(self.addr, self.len)?;
        Some(Span { addr, len })
    }

    /// Its part below the arena, and that above.
    pub fn beside(self) -> (Option<Span>, Option<Span>) {
        let below = self.between(0, ARENA_BASE);
        let above = self.between(ARENA_END, usize::MAX);
        (below, above)
    }

    /// Its parts below and above the arena.
    pub fn outside(self) -> impl Iterator<Item = Span> {
        let (below, above) = self.beside();
        below.into_iter().chain(above)
    }

    /// Whether any of it is in the arena.
    pub fn touches_arena(self) -> bool {
        self.inside().is_some()
    }
}
