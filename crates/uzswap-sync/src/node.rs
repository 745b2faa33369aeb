//! *What*: [`Node`]: one group of the tree of groups that have a ledger in common: where it lies,
//! and what it may have. [`Path`]: a node and all that it lies in.
//!
//! Node 0 is the root, in which everything lies. Its hard limit is not here: it is a knob.
//!
//! *Invariants*
//! - A node's number is higher than that of the node it lies in, so the nodes of a path, from the
//!   lowest number on, are those from the root downwards.
//! - A node that was made stays as long as the ledger.
//! - All-zero memory is a node without limits.
//!
//! *Locking*: none; whoever makes nodes sees to it that nobody else does. *Context*: any.

use crate::const_unless_modelled;
use crate::primitive::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// Nodes of a tree, the root included.
#[cfg(not(loom))]
pub const NR_NODES: usize = 32;
/// Nodes that a model has.
#[cfg(loom)]
pub const NR_NODES: usize = 2;
/// Nodes on a path.
pub const MAX_DEPTH: usize = if cfg!(loom) { 2 } else { 8 };

/// A node and those that it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path(u32);

impl Path {
    /// The root alone.
    pub const ROOT: Path = Path(1);
    /// The root's number.
    pub const ROOT_NODE: usize = 0;

    /// That of a node of number `nr`, a child of the last of this path.
    #[must_use]
    pub const fn child(self, nr: usize) -> Path {
        Path(self.0 | 1 << nr)
    }

    /// How many nodes it has.
    #[must_use]
    pub const fn depth(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The number of the node itself.
    #[must_use]
    pub const fn last(self) -> usize {
        (u32::BITS - 1 - (self.0 | 1).leading_zeros()) as usize
    }

    /// Whether node `nr` is on it.
    #[must_use]
    pub const fn has(self, nr: usize) -> bool {
        self.0 >> nr & 1 == 1
    }

    /// Its nodes that are not on the `other`.
    pub fn beyond(self, other: Path) -> impl Iterator<Item = usize> {
        Path(self.0 & !other.0).nodes()
    }

    /// The numbers of its nodes, from the root downwards.
    pub fn nodes(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let (any, lowest) = (left != 0, left.trailing_zeros() as usize);
            left &= left.wrapping_sub(1);
            any.then_some(lowest)
        })
    }

    /// The nodes of both.
    #[must_use]
    pub const fn or(self, other: Path) -> Path {
        Path(self.0 | other.0)
    }
}

/// A path in shared memory; all zeroes is the root.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct PathCell(AtomicU32);

impl PathCell {
    const_unless_modelled! {
        /// The root.
        pub fn new() -> Self {
            PathCell(AtomicU32::new(0))
        }
    }

    /// The path.
    pub fn load(&self) -> Path {
        Path(self.0.load(SeqCst) | 1)
    }

    /// Sets it.
    pub fn store(&self, path: Path) {
        self.0.store(path.0, SeqCst);
    }

    /// Adds the nodes of another.
    pub(crate) fn add(&self, path: Path) {
        self.0.fetch_or(path.0, SeqCst);
    }
}

/// The most bytes of something; all zeroes: as many as there are.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Most(AtomicU64);

impl Most {
    /// No limit.
    pub const NONE: u64 = u64::MAX;

    /// Bytes, or [`Most::NONE`].
    pub fn load(&self) -> u64 {
        !self.0.load(SeqCst)
    }

    /// Sets it to so many bytes, or [`Most::NONE`]. Returns what it was.
    pub fn swap(&self, bytes: u64) -> u64 {
        !self.0.swap(!bytes, SeqCst)
    }

    /// Sets it to so many bytes, or [`Most::NONE`].
    pub fn store(&self, bytes: u64) {
        self.0.store(!bytes, SeqCst);
    }

    /// Changes it from `before` to `bytes`. `false`: it is something else by now.
    pub fn change(&self, before: u64, bytes: u64) -> bool {
        let changed = self.0.compare_exchange(!before, !bytes, SeqCst, SeqCst);
        changed.is_ok()
    }
}

/// One group of a tree, and what it may have. Bytes; those of what lies in it count.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Node {
    /// Where it lies; the root's is [`Path::ROOT`].
    pub path: PathCell,
    /// 1: nothing in it is written to swap.
    pub writeback_off: AtomicU32,
    /// The most memory. Not of the root.
    pub max: Most,
    /// The same, or while it is lowered and until nobody is above it, what it was.
    pub ceiling: Most,
    /// Memory above which whoever needs more evicts for itself, and is slowed down.
    pub high: Most,
    /// Memory that others leave it.
    pub low: AtomicU64,
    /// The most memory of compressed pools.
    pub pool_max: Most,
    /// The most memory that is on swap devices, as it was before it was compressed.
    pub swap_max: Most,
    /// The most pages ever granted at once.
    pub(crate) peak: AtomicU64,
    /// The most pages ever granted and outside at once.
    pub(crate) total_peak: AtomicU64,
    /// The most pages ever outside at once.
    pub(crate) outside_peak: AtomicU64,
    /// The most pages ever needed at once.
    pub(crate) need_peak: AtomicU64,
}

impl Node {
    /// The most pages ever granted at once.
    pub fn peak(&self) -> u64 {
        self.peak.load(Relaxed)
    }

    /// The most pages ever granted and outside at once.
    pub fn total_peak(&self) -> u64 {
        self.total_peak.load(Relaxed)
    }

    /// The most pages ever outside at once.
    pub fn outside_peak(&self) -> u64 {
        self.outside_peak.load(Relaxed)
    }

    /// The most pages that were ever needed at once, as far as was noted.
    pub fn need_peak(&self) -> u64 {
        self.need_peak.load(Relaxed)
    }

    /// Takes notice of what is held, and outside, in pages, for the peaks.
    pub(crate) fn note(&self, granted: u64, outside: u64, need: u64) {
        // A peak stops rising soon; looking first keeps the write out of the common path.
        for (peak, now) in [
            (&self.peak, granted),
            (&self.total_peak, granted + outside),
            (&self.outside_peak, outside),
            (&self.need_peak, need),
        ] {
            if now > peak.load(Relaxed) {
                peak.fetch_max(now, Relaxed);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_path_knows_its_nodes_and_those_beyond_another() {
        let (a, b) = (Path::ROOT.child(1), Path::ROOT.child(2));
        let deep = a.child(3);
        assert_eq!((deep.depth(), deep.last()), (3, 3));
        assert!(deep.nodes().eq([0, 1, 3]));
        assert!(deep.beyond(b).eq([1, 3]));
        assert_eq!(Path::ROOT.last(), 0);
    }

    #[test]
    fn zeroes_are_a_node_without_limits() {
        let node = Node::default();
        assert_eq!(node.path.load(), Path::ROOT);
        for most in [&node.max, &node.high, &node.pool_max, &node.swap_max] {
            assert_eq!(most.load(), Most::NONE);
        }
        assert_eq!(node.pool_max.swap(0), Most::NONE);
        assert_eq!(node.pool_max.load(), 0, "nothing is a limit, too");
        assert!(!node.pool_max.change(5, 6) && node.pool_max.change(0, 6));
    }
}
