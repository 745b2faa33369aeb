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
    /// Such a piece, and the page's own contents were dropped: it goes with the rest of its block.
    DroppedPiece,
    /// The page, read from the device before it was asked for. In the pool only.
    ReadAhead,
}

impl Content {
    /// Whether it is all of one page.
    #[inline]
    #[must_use]
    pub const fn is_page(self) -> bool {
        matches!(self, Content::Page | Content::ReadAhead)
    }
}
