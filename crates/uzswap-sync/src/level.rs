//! *What*: [`Levels`]: what the nodes of a path hold, and what they may, as one pass over the
//! shares of a [`Ledger`](crate::ledger::Ledger) finds it.
//!
//! *Invariants*: none. *Locking*: none. *Context*: any.

use crate::node::{MAX_DEPTH, Path};

/// What all processes of a group together hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Pages granted, or asked for.
    pub claimed: u64,
    /// Pages granted.
    pub granted: u64,
    /// Pages used.
    pub used: u64,
    /// Of those the pages of compressed pools.
    pub pool: u64,
    /// Pages that would be used if nothing were compressed or swapped.
    pub need: u64,
    /// Pages that fork left in common; they count as granted, and not in `used`.
    pub shared: u64,
    /// Pages that processes are taken to have outside the account, as nobody has measured yet.
    pub presumed: u64,
}

/// What a node holds, and what it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// The node's number.
    pub node: usize,
    /// What its processes hold, and those of the nodes in it.
    pub held: Held,
    /// The limit without what is outside, pages.
    pub limit: u64,
}

impl Level {
    /// Pages that may still be granted.
    #[must_use]
    pub const fn free(&self) -> u64 {
        self.limit.saturating_sub(self.held.claimed)
    }

    /// Pages above the limit.
    #[must_use]
    pub const fn excess(&self) -> u64 {
        self.held.claimed.saturating_sub(self.limit)
    }
}

/// The nodes of a path, the root first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    nr: usize,
    levels: [Level; MAX_DEPTH],
}

impl Levels {
    /// Those of `path`, which hold nothing.
    pub(crate) fn of(path: Path) -> Self {
        let mut levels = [Level::default(); MAX_DEPTH];
        let mut nr = 0;
        for (level, node) in levels.iter_mut().zip(path.nodes()) {
            level.node = node;
            nr += 1;
        }
        Levels { nr, levels }
    }

    /// The levels.
    pub fn iter(&self) -> impl Iterator<Item = &Level> {
        self.levels.iter().take(self.nr)
    }

    /// The levels.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Level> {
        self.levels.iter_mut().take(self.nr)
    }

    /// The node itself.
    #[must_use]
    pub fn last(&self) -> Level {
        self.iter().last().copied().unwrap_or_default()
    }

    /// The node with the least free, the innermost of several.
    #[must_use]
    pub fn tightest(&self) -> Level {
        // The last of equal ones.
        let least = self
            .iter()
            .reduce(|a, b| if b.free() <= a.free() { b } else { a });
        least.copied().unwrap_or_default()
    }

    /// Pages by which the limits are exceeded.
    #[must_use]
    pub fn excess(&self) -> u64 {
        self.iter().map(Level::excess).max().unwrap_or(0)
    }

    pub(crate) fn shared(&self) -> [u64; MAX_DEPTH] {
        self.levels.map(|level| level.held.shared)
    }
}
