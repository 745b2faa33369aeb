//! *What*: [`ProcessState`]: whose a record is, in one word.
//!
//! ```text
//! Free ─claim─▸ Busy ─begin─▸ Live ─the process is dead─▸ Busy ─▸ Free
//! Free ─fork─▸ Reserved ─▸ Born ─begin─▸ Busy ─▸ Live
//! ```
//!
//! *Invariants*
//! - Whoever finds out that a record is nobody's reads its state first and turns that very state: a
//!   record that became another process's meanwhile is in another state, as [`Live`] counts its
//!   owners.
//! - Only the process that made a record [`Busy`] writes to it. If that process is killed, another
//!   takes the record over and finishes the work, every step of which may be done twice.
//!
//! *Locking*: none. *Context*: as [`crate::process`].
//!
//! [`Live`]: ProcessState::Live
//! [`Busy`]: ProcessState::Busy

use crate::shared::Encoded;

/// Whose a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// Nobody's.
    Free,
    /// Being filled in or folded into the sums of those that ended.
    Busy {
        /// The process id of whoever does that; 0 if that says nothing to others.
        by: u32,
    },
    /// Its process counts into it.
    Live {
        /// The number of that process among all that have had the record, as far as 24 bits hold
        /// it.
        owner: u32,
    },
    /// For the child that process `parent` is about to make.
    Reserved {
        /// A process id.
        parent: u32,
    },
    /// For process `child`, which has not begun.
    Born {
        /// A process id.
        child: u32,
    },
}

/// Bits of the number that a state has with it. Process ids have 22.
const NUMBER_BITS: u32 = 24;

impl ProcessState {
    pub(crate) const fn live(owner: u32) -> Self {
        Self::Live {
            owner: owner & ((1 << NUMBER_BITS) - 1),
        }
    }

    /// Whether a process counts into the record.
    #[must_use]
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Live { .. })
    }
}

impl Encoded for ProcessState {
    fn encode(self) -> u32 {
        let (kind, number) = match self {
            Self::Free => (0, 0),
            Self::Busy { by } => (1, by),
            Self::Live { owner } => (2, owner),
            Self::Reserved { parent } => (3, parent),
            Self::Born { child } => (4, child),
        };
        kind | number << (u32::BITS - NUMBER_BITS)
    }

    fn decode(word: u32) -> Self {
        let number = word >> (u32::BITS - NUMBER_BITS);
        match word & 0xff {
            1 => Self::Busy { by: number },
            2 => Self::Live { owner: number },
            3 => Self::Reserved { parent: number },
            4 => Self::Born { child: number },
            _ => Self::Free,
        }
    }
}
