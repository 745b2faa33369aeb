//! *What*: what the object in a page's entry holds.
//!
//! *Invariants*: none. *Locking*: none; values. *Context*: any.

/// What the object in a page's entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The page.
    Page,
    /// A piece of the block that the page is in.
    BlockPiece,
    /// As [`Content::BlockPiece`], with the page's own contents dropped: freed with the block.
    DroppedPiece,
    /// The page, read ahead from the device and not accessed since. In the pool only.
    ReadAhead,
}

impl Content {
    /// Whether it is one whole page.
    #[inline]
    #[must_use]
    pub const fn is_page(self) -> bool {
        matches!(self, Content::Page | Content::ReadAhead)
    }
}
