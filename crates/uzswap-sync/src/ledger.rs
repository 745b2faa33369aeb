//! *What*: [`Ledger`]: what the processes of a group hold of their common limit, in 4 KiB pages, in
//! memory that they share. Each has a [`Share`]: the pages *granted* to it, and how many of them it
//! has *used*. It charges what it touches to its own share alone, and asks for a larger one, many
//! pages at a time, only when that is used up.
//!
//! There is no common counter, which two processes would fight for, and which one that is killed
//! between two steps would leave wrong. What is granted is the sum over the shares, and a process
//! that asks for more says so in its own share *before* it adds them up. So of two that ask at the
//! same time at least one sees the other, and together they never get more than there is.
//!
//! *Invariants*
//! - `used ≤ granted` in each share, in one word, but for [`Share::charge_unchecked`]. Memory is
//!   charged before it is touched, so what is resident never exceeds what is granted.
//! - While the limit stays as it is, the sum of what is granted never exceeds it, but for
//!   [`Share::inherit`]. A page counts in `asking` until it counts in `granted`.
//! - Unused pages may be taken back by anybody; used ones by nobody but their owner, or by whoever
//!   knows that the owner is dead: [`Share::expire`], which a share's new owner cannot suffer, as
//!   its number differs.
//! - All-zero memory is a ledger in which nothing is granted.
//!
//! *Nodes.* Groups of processes form a tree, the [`Node`]s; a share names its node and all that
//! this lies in. One pass over the shares finds what each node of a path holds, and whoever asks
//! for more looks at all those that it counts in. Children of fork are in their parent's node, so
//! what a family has in common counts there.
//!
//! *After fork* parent and child have the same pages until one of them writes. Such a page is in
//! nobody's `used`: each process says in `shared` how many it has, and its *family* how many there
//! are at most: as many as were brought in, and no more than its members have together.
//! - What is brought in counts in `shared`, the child's included, before it counts in the family's
//!   bound, and there before it leaves `used`. A page that is copied is charged before it leaves
//!   `shared`.
//! - A bound is lowered only to a sum of `shared` that was made while the bound did not change;
//!   bringing in changes it in any case, by its round number.
//!
//! *Locking*: none; modelled in `tests/loom_ledger.rs`. *Context*: signal, worker, init.

pub use crate::level::{Held, Level, Levels};
use crate::node::{Most, NR_NODES, Node, Path, PathCell};
use crate::primitive::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use crate::share::PAGES_MASK;
pub use crate::share::Share;

/// Processes that a ledger tells apart.
#[cfg(not(loom))]
pub const NR_SHARES: usize = 4095;
/// Processes that a model has.
#[cfg(loom)]
pub const NR_SHARES: usize = 3;

/// Those who measure what is outside.
#[cfg(not(loom))]
pub const NR_OUTSIDE: usize = 64;
/// Those that a model has.
#[cfg(loom)]
pub const NR_OUTSIDE: usize = 1;

/// What somebody measures of memory that nobody charges.
#[derive(Debug, Default)]
#[repr(C)]
struct Outside {
    bytes: AtomicU64,
    path: PathCell,
}

/// What is left of a limit in any case: one part of so many, and bytes.
const PART_LEFT: u64 = 8;
const LEAST_LEFT: u64 = 4 << 20;

/// Sums that may turn out too high before one is taken as it is.
const MAX_TORN: u32 = if cfg!(loom) { 0 } else { 4 };

/// Families that one pass over the shares adds up: few enough for a signal stack.
const FAMILIES_A_PASS: usize = if cfg!(loom) { NR_SHARES } else { 128 };

/// A family's bound: pages, and above them a round number.
const ROUND: u32 = 48;
const BOUND_MASK: u64 = (1 << ROUND) - 1;

/// The shares of a group's processes.
#[derive(Debug)]
#[repr(C)]
pub struct Ledger {
    /// The highest number of a share that was ever begun, plus one.
    nr: AtomicU32,
    /// The highest number of those who ever measured what is outside, plus one.
    nr_outside: AtomicU32,
    nodes: [Node; NR_NODES],
    outside: [Outside; NR_OUTSIDE],
    /// Times that pages were brought into a family.
    brought_in: AtomicU64,
    /// The families' bounds.
    families: [AtomicU64; NR_SHARES],
    /// At the end: memory only as far as there are processes.
    shares: [Share; NR_SHARES],
}

impl Default for Ledger {
    fn default() -> Self {
        Ledger {
            nr: AtomicU32::new(0),
            nr_outside: AtomicU32::new(0),
            nodes: core::array::from_fn(|_| Node::default()),
            outside: core::array::from_fn(|_| Outside::default()),
            brought_in: AtomicU64::new(0),
            families: core::array::from_fn(|_| AtomicU64::new(0)),
            shares: core::array::from_fn(|_| Share::default()),
        }
    }
}

impl Ledger {
    /// The share of process number `nr`; those beyond the last have it in common.
    pub fn share(&self, nr: usize) -> &Share {
        let [.., last] = &self.shares;
        self.shares.get(nr).unwrap_or(last)
    }

    /// The share of process number `nr`, which begins.
    pub fn begin(&self, nr: usize) -> &Share {
        let share = self.share(nr);
        share.begin();
        let end = u32::try_from(nr + 1).unwrap_or(u32::MAX);
        self.nr.fetch_max(end, SeqCst);
        share
    }

    /// The shares that were ever begun.
    pub fn shares(&self) -> &[Share] {
        let nr = usize::try_from(self.nr.load(SeqCst)).unwrap_or(NR_SHARES);
        self.shares.get(..nr).unwrap_or(&self.shares)
    }

    /// The node of that number.
    pub fn node(&self, nr: usize) -> &Node {
        let [root, ..] = &self.nodes;
        self.nodes.get(nr).unwrap_or(root)
    }

    /// What all hold.
    pub fn held(&self) -> Held {
        self.held_on(Path::ROOT).last().held
    }

    /// What each node of `path` holds.
    pub fn held_on(&self, path: Path) -> Levels {
        // Loom takes SeqCst for AcqRel.
        #[cfg(loom)]
        crate::primitive::fence(SeqCst);
        let mut nr_torn = 0;
        loop {
            let before = self.brought_in.load(SeqCst);
            // What is shared first: a page is charged before it leaves `shared`. What goes the
            // other way meanwhile is added up anew.
            let held = self.sum(self.shared(path, true));
            if self.brought_in.load(SeqCst) != before {
                continue;
            }
            // What left `shared` meanwhile may have counted twice: not less than there is, but
            // more.
            let is_whole = before == 0 || held.shared() == self.shared(path, false).shared();
            if is_whole || nr_torn == MAX_TORN {
                return held;
            }
            nr_torn += 1;
        }
    }

    /// As [`Ledger::held_on`], of a ledger that is mapped to be read only: about.
    pub fn look(&self, path: Path) -> Levels {
        self.sum(self.shared(path, false))
    }

    /// Adds what the shares hold to what is `shared`.
    fn sum(&self, shared: Levels) -> Levels {
        let mut levels = shared;
        for Held {
            claimed,
            granted,
            shared,
            ..
        } in levels.iter_mut().map(|level| &mut level.held)
        {
            (*claimed, *granted) = (*shared, *shared);
        }
        for share in self.shares() {
            let (granted, asking) = share.claimed();
            let path = share.path();
            for level in levels.iter_mut().filter(|level| path.has(level.node)) {
                let sum = &mut level.held;
                sum.claimed += granted + asking;
                sum.granted += granted;
                sum.used += share.used();
                sum.pool += share.pool.load(Relaxed);
                sum.need += share.need.load(Relaxed);
                sum.presumed += share.presumed();
            }
        }
        levels
    }

    /// Pages of all families in the nodes of `path`. Lowers the bounds that turn out too high if it
    /// `may_write`.
    fn shared(&self, path: Path, may_write: bool) -> Levels {
        let mut levels = Levels::of(path);
        // Without forks there are none.
        if self.brought_in.load(SeqCst) == 0 {
            return levels;
        }
        // A family has the number of its first member.
        let nr = self.shares().len();
        let families = self.families.get(..nr).unwrap_or(&self.families);
        for (pass, families) in families.chunks(FAMILIES_A_PASS).enumerate() {
            self.add_shared(pass * FAMILIES_A_PASS, families, may_write, &mut levels);
        }
        levels
    }

    /// Adds the pages of `families`, the first of which has number `first`, to what is `shared`.
    fn add_shared(&self, first: usize, families: &[AtomicU64], may_write: bool, to: &mut Levels) {
        let mut bounds = [0; FAMILIES_A_PASS];
        for (seen, bound) in bounds.iter_mut().zip(families) {
            *seen = bound.load(SeqCst);
        }
        if bounds.iter().all(|seen| seen & BOUND_MASK == 0) {
            return;
        }
        let mut sums = [(0, Path::ROOT); FAMILIES_A_PASS];
        for share in self.shares() {
            let place = share.family().and_then(|family| family.checked_sub(first));
            if let Some(sum) = place.and_then(|place| sums.get_mut(place)) {
                sum.0 += share.shared();
                // All of one node, unless another family began under the number of one whose first
                // member has ended: then too much counts in both.
                sum.1 = sum.1.or(share.path());
            }
        }
        for ((bound, seen), (sum, path)) in families.iter().zip(bounds).zip(sums) {
            if may_write && sum < seen & BOUND_MASK {
                let lower = seen & !BOUND_MASK | sum;
                let _ = bound.compare_exchange(seen, lower, SeqCst, Relaxed);
            }
            let pages = sum.min(seen & BOUND_MASK);
            for level in to.iter_mut().filter(|level| path.has(level.node)) {
                level.held.shared += pages;
            }
        }
    }

    /// Before a fork: process number `parent` and its `child` have `nr` used pages of the parent's
    /// in common from now on, with those that it shares already. Neither writes to one before it
    /// has charged it.
    pub fn share_with_child(&self, parent: usize, child: &Share, nr: u64) {
        let own = self.share(parent);
        let family = own.family().unwrap_or(parent);
        let number = u32::try_from(family + 1).unwrap_or(0);
        own.family.store(number, SeqCst);
        child.family.store(number, SeqCst);
        let shared = own.shared.fetch_add(nr, SeqCst) + nr;
        child.shared.fetch_add(shared, SeqCst);
        self.bring_in(own, family, nr);
    }

    /// In a child without a share when it was forked: it has `shared` pages in common with
    /// `parent`.
    pub fn join(&self, parent: &Share, child: &Share, shared: u64) {
        child.family.store(parent.family.load(SeqCst), SeqCst);
        child.shared.fetch_add(shared, SeqCst);
    }

    /// `nr` used pages of `own` lie among shared ones from now on, and count with them.
    pub fn add_to_shared(&self, own: &Share, nr: u64) {
        if let Some(family) = own.family() {
            own.shared.fetch_add(nr, SeqCst);
            self.bring_in(own, family, nr);
        }
    }

    fn bring_in(&self, own: &Share, family: usize, nr: u64) {
        if let Some(bound) = self.families.get(family) {
            let add = |seen: u64| Some(seen.wrapping_add((1 << ROUND) + nr));
            let _ = bound.fetch_update(SeqCst, Relaxed, add);
        }
        self.brought_in.fetch_add(1, SeqCst);
        own.forfeit(nr);
    }

    /// Whether nobody else has any of the pages that `own` shares.
    pub fn is_last_of_family(&self, own: &Share) -> bool {
        let family = own.family();
        let others = self
            .shares()
            .iter()
            .filter(|share| !core::ptr::eq(*share, own));
        others
            .filter(|share| share.family() == family)
            .all(|share| share.shared() == 0)
    }

    /// Takes notice of what nodes hold, for the peaks.
    pub fn note(&self, levels: &Levels) {
        for Level { node, held, .. } in levels.iter() {
            let outside = self.outside_of(*node) >> uzswap_sys::PAGE_SHIFT;
            self.node(*node).note(held.granted, outside, held.need);
        }
    }

    /// Says how many bytes of memory, as number `nr` measures them, are used in `path` and charged
    /// by nobody.
    pub fn set_outside(&self, nr: usize, path: Path, bytes: u64) {
        if let Some(outside) = self.outside.get(nr) {
            outside.path.store(path);
            outside.bytes.store(bytes, SeqCst);
            let end = u32::try_from(nr + 1).unwrap_or(u32::MAX);
            self.nr_outside.fetch_max(end, SeqCst);
        }
    }

    /// Bytes that are used in a node and charged by nobody.
    pub fn outside_of(&self, node: usize) -> u64 {
        let nr = usize::try_from(self.nr_outside.load(SeqCst)).unwrap_or(NR_OUTSIDE);
        let measured = self.outside.iter().take(nr);
        let in_node = measured.filter(|outside| outside.path.load().has(node));
        in_node.map(|outside| outside.bytes.load(SeqCst)).sum()
    }

    /// Pages that may be granted to a node of a limit of `bytes`: without what is outside, and
    /// `presumed` pages that may be, but for a part that is left however much that is, as without
    /// it nothing would get on.
    pub fn grantable(&self, node: usize, bytes: u64, presumed: u64) -> u64 {
        let left = (bytes / PART_LEFT).max(LEAST_LEFT.min(bytes));
        let outside = self.outside_of(node) + (presumed << uzswap_sys::PAGE_SHIFT);
        bytes.saturating_sub(outside).max(left) >> uzswap_sys::PAGE_SHIFT
    }

    /// Pages by which a node is above its `high`.
    pub fn above_high(&self, level: &Level) -> u64 {
        match self.node(level.node).high.load() {
            Most::NONE => 0,
            high => {
                let high = high.saturating_sub(self.outside_of(level.node));
                level
                    .held
                    .claimed
                    .saturating_sub(high >> uzswap_sys::PAGE_SHIFT)
            }
        }
    }

    /// Grants `own`, a share of this ledger, up to `wanted` pages more and at least `least`: as far
    /// as all together stay within the `limit` of each node that it counts in, and it alone within
    /// `own_limit`, all in pages. Above the `high` of a node it is no more than `least`. Returns
    /// how many; 0 if there are fewer than `least`.
    pub fn raise(
        &self,
        own: &Share,
        least: u64,
        wanted: u64,
        limit: impl Fn(&Level) -> u64,
        own_limit: impl Fn() -> u64,
    ) -> u64 {
        if least > PAGES_MASK {
            return 0;
        }
        let wanted = wanted.clamp(least, PAGES_MASK);
        // SeqCst, as all that `held_on` reads: either we see what another asks for, or it sees
        // this.
        own.asking.fetch_add(wanted, SeqCst);
        let mut levels = self.held_on(own.path());
        // The limits after the sum: whoever lowered one before has seen what we ask for.
        for level in levels.iter_mut() {
            level.limit = limit(level);
        }
        let above_high = levels.iter().map(|level| self.above_high(level)).max();
        let ahead = wanted.saturating_sub(above_high.unwrap_or(0)).max(least);
        let granted = wanted.saturating_sub(levels.excess()).min(ahead);
        let granted = match granted >= least {
            true => own.grant(granted, own_limit),
            false => 0,
        };
        own.asking.fetch_sub(wanted, SeqCst);
        for level in levels.iter_mut() {
            level.held.granted += granted;
        }
        self.note(&levels);
        granted
    }

    /// Whether a node of `path` has that limit. Most have none, and to look is cheaper than to add
    /// up what they hold.
    pub fn is_limited(&self, path: Path, by: impl Fn(&Node) -> &Most) -> bool {
        path.nodes()
            .any(|node| by(self.node(node)).load() != Most::NONE)
    }

    /// Whether what is in all nodes of `path` may be written to swap devices.
    pub fn may_write_back(&self, path: Path) -> bool {
        let is_off = |node| self.node(node).writeback_off.load(Relaxed) != 0;
        !path.nodes().any(is_off)
    }

    /// Pages of `path` that those of path `other` may have: what each node that they are not in
    /// holds above its `low`.
    pub fn above_low(&self, path: Path, other: Path) -> u64 {
        let above = path.beyond(other).map(|node| self.above_low_of(node));
        above.min().unwrap_or(u64::MAX)
    }

    fn above_low_of(&self, node: usize) -> u64 {
        match self.node(node).low.load(SeqCst) {
            0 => u64::MAX,
            low => {
                let low = low.saturating_sub(self.outside_of(node));
                let low = low.div_ceil(uzswap_sys::PAGE_SIZE as u64);
                let held = self.held_on(self.node(node).path.load()).last().held;
                held.claimed.saturating_sub(low)
            }
        }
    }

    /// Takes back up to `nr` pages that others than `own`, in `node`, do not use. Returns how many.
    pub fn take_back(&self, own: &Share, node: usize, nr: u64) -> u64 {
        let others = self
            .shares()
            .iter()
            .filter(|share| !core::ptr::eq(*share, own) && share.path().has(node));
        let mut left = nr;
        for share in others {
            if left == 0 {
                break;
            }
            left -= share.take_back(left);
        }
        nr - left
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
