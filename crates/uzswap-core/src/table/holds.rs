//! *What*: what the object in a page's entry holds, and by which dictionary it was made.
//!
//! *Invariants*: none. *Locking*: none; values. *Context*: any.

/// One of the dictionaries that objects are made by; its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DictNr(u8);

impl DictNr {
    /// How many there may be.
    pub const COUNT: usize = 4;
    /// All of them.
    pub const ALL: [DictNr; Self::COUNT] = [DictNr(0), DictNr(1), DictNr(2), DictNr(3)];

    /// The dictionary of that number.
    #[inline]
    #[must_use]
    pub const fn new(nr: u8) -> Option<DictNr> {
        if (nr as usize) < Self::COUNT {
            Some(DictNr(nr))
        } else {
            None
        }
    }

    /// The one that the lowest bits of an age stand for.
    pub(super) const fn of_bits(bits: u16) -> DictNr {
        const { assert!(Self::COUNT == 4) };
        let [low, _] = bits.to_le_bytes();
        DictNr(low & 3)
    }

    /// Its number.
    #[inline]
    #[must_use]
    pub const fn nr(self) -> u8 {
        self.0
    }
}

/// What the object in a page's entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// The page.
    Page,
    /// A piece of the block that the page is in.
    Piece,
    /// Such a piece, and the page's own contents were dropped: it goes with the rest of its block.
    Remains,
    /// The page, read from the device before it was asked for. In the pool only.
    Ahead,
    /// The page, made by that dictionary.
    By(DictNr),
    /// Such a page, read from the device before it was asked for.
    AheadBy(DictNr),
}

impl Holds {
    /// Whether it is all of one page.
    #[inline]
    #[must_use]
    pub const fn is_page(self) -> bool {
        !matches!(self, Holds::Piece | Holds::Remains)
    }

    /// The dictionary that made it.
    #[inline]
    #[must_use]
    pub const fn dictionary(self) -> Option<DictNr> {
        match self {
            Holds::By(nr) | Holds::AheadBy(nr) => Some(nr),
            _ => None,
        }
    }

    /// A page's, read before it is asked for.
    #[inline]
    #[must_use]
    pub const fn ahead(self) -> Holds {
        match self {
            Holds::Page => Holds::Ahead,
            Holds::By(nr) => Holds::AheadBy(nr),
            other => other,
        }
    }

    /// The same, as if it had been asked for.
    #[inline]
    #[must_use]
    pub const fn settled(self) -> Holds {
        match self {
            Holds::Ahead => Holds::Page,
            Holds::AheadBy(nr) => Holds::By(nr),
            other => other,
        }
    }
}
