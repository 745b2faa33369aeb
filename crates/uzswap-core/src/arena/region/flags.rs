//! *What*: the properties of a region: its protection, what a fork child gets of it, and whose it is.
//! *Invariants*: none. *Locking*: none. *Context*: any.

/// Properties of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Flags(u32);

impl Flags {
    /// No access, inherited at fork.
    pub const NONE: Self = Self(0);
    /// `PROT_READ`.
    pub const READ: Self = Self(1);
    /// `PROT_WRITE`.
    pub const WRITE: Self = Self(2);
    /// `PROT_EXEC`.
    pub const EXEC: Self = Self(4);
    /// The three protection bits.
    pub const PROT: Self = Self(7);
    /// A mapping of the program's own lies here: pages are not ours to touch.
    pub const FOREIGN: Self = Self(1 << 3);
    /// `MADV_DONTFORK`: absent in a fork child.
    pub const DONT_FORK: Self = Self(1 << 4);
    /// `MADV_WIPEONFORK`: zero in a fork child.
    pub const WIPE_ON_FORK: Self = Self(1 << 5);
    /// `mlock`: never evicted.
    pub const LOCKED: Self = Self(1 << 6);
    /// Being unmapped: no longer the program's, not yet free.
    pub const DYING: Self = Self(1 << 7);
    /// Not mapped, and not by the kernel either: a touch of it became SIGSEGV (thread mode). Free to
    /// the program; the arena's own mapping comes back before it is given away.
    pub const HOLE: Self = Self(1 << 8);

    /// The flags of a region with `PROT_` bits `prot`; other bits are dropped.
    #[must_use]
    pub const fn from_prot(prot: u32) -> Self {
        Self(prot & Self::PROT.0)
    }

    /// The `PROT_` bits.
    #[must_use]
    pub const fn prot(self) -> u32 {
        self.0 & Self::PROT.0
    }

    /// Whether every flag of `other` is set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the program has something mapped there.
    pub(super) const fn is_live(self) -> bool {
        self.0 & (Self::DYING.0 | Self::HOLE.0) == 0
    }

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in both sets.
    pub(super) const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// This set less `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}
