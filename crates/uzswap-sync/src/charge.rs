//! *What*: [`Charge`]: a process's side of the strict memory limit, counted in 4 KiB pages, and
//! [`Reserve`]: pages charged ahead of a batch of work, so that the work cannot fail half-way for
//! lack of room.
//!
//! *Invariants*
//! - Memory is charged before it is touched and uncharged after it was given back, so what is
//!   resident never exceeds `used`.
//! - `used` is within what the group's [`Ledger`] has granted, and that within the limit, not only
//!   for an instant. Only [`Charge::charge_unchecked`] and lowering the limit change that.
//! - Once the limit was lowered and [`Charge::over`] has said 0, memory above it is not touched any
//!   more: a grant that was asked for before counts, and is compared with the limit as it is then.
//! - `used` = pages of all owners together = Σ resident + Σ open reserves.
//! - All-zero memory is a valid `Charge` with limit 0: nothing can be charged until
//!   [`Charge::follow`].
//!
//! *Locking*: none; leaf.
//! *Context*: signal, worker, init.

use crate::ledger::{Ledger, Level, Levels, Share};
use crate::node::Path;
use crate::primitive::{
    AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use crate::{const_unless_modelled, strict_assert};
use core::ptr::null_mut;
use uzswap_sys::PAGE_SHIFT;

/// Pages that are asked for at once, at least.
const MIN_RAISE: u64 = 32;
/// Attempts to charge what was granted before other threads of the process have used it.
const MAX_TRIES: u32 = 4;

/// Where a process's limits stand, and what others hold of them.
#[derive(Clone, Copy, Debug)]
pub struct Membership {
    /// The process's share.
    pub share: &'static Share,
    /// All shares of the group.
    pub ledger: &'static Ledger,
    /// The limit of the whole tree, bytes.
    pub limit: &'static AtomicU64,
    /// The limit of each process, bytes; 0: none.
    pub own_limit: &'static AtomicU64,
    /// The nodes' limits are those that hold while they are being lowered.
    pub at_ceiling: bool,
}

/// The limits, and what is used of them.
///
/// A charge that follows no group has a share of its own, all granted from the beginning.
#[derive(Debug)]
pub struct Charge {
    own: Share,
    share: AtomicPtr<Share>,
    ledger: AtomicPtr<Ledger>,
    limit: AtomicPtr<AtomicU64>,
    own_limit: AtomicPtr<AtomicU64>,
    /// What [`Charge::limit`] says, pages.
    known_limit: AtomicU64,
}

const fn address<T>(of: &'static T) -> *mut T {
    core::ptr::from_ref(of).cast_mut()
}

impl Charge {
    const_unless_modelled! {
        /// Nothing used of `limit` pages, in no group.
        pub fn new(limit: u64) -> Self {
            Charge {
                own: Share::new(limit),
                share: AtomicPtr::new(null_mut()),
                ledger: AtomicPtr::new(null_mut()),
                limit: AtomicPtr::new(null_mut()),
                own_limit: AtomicPtr::new(null_mut()),
                known_limit: AtomicU64::new(0),
            }
        }
    }

    /// From now on the limits are those of a group: where `to` says.
    pub fn follow(&self, to: &Membership) {
        self.ledger.store(address(to.ledger), Relaxed);
        self.limit.store(address(to.limit), Relaxed);
        self.own_limit.store(address(to.own_limit), Relaxed);
        // Release: pairs with the Acquire in `membership`.
        self.share.store(address(to.share), Release);
        self.known_limit.store(0, Relaxed);
    }

    /// Follows no group any more. Nobody charges.
    pub fn leave(&self) {
        self.share.store(null_mut(), Release);
        self.known_limit.store(0, Relaxed);
    }

    /// The group; `None`: it follows none.
    fn membership(&self) -> Option<Membership> {
        // SAFETY: null, or what `follow` was given, all of it before `share`; it lives for good.
        unsafe {
            Some(Membership {
                share: self.share.load(Acquire).as_ref()?,
                ledger: self.ledger.load(Relaxed).as_ref()?,
                limit: self.limit.load(Relaxed).as_ref()?,
                own_limit: self.own_limit.load(Relaxed).as_ref()?,
                at_ceiling: false,
            })
        }
    }

    /// What it charges to.
    #[inline]
    pub fn share(&self) -> &Share {
        // SAFETY: null, or what `follow` was given, which lives for good.
        unsafe { self.share.load(Acquire).as_ref() }.unwrap_or(&self.own)
    }

    /// Charges `nr` pages if they fit under the limits, and says whether they did. No pages always
    /// fit.
    #[inline]
    #[must_use = "pages that were charged must be uncharged"]
    pub fn try_charge(&self, nr: u64) -> bool {
        self.share().try_charge(nr) || self.try_charge_slow(nr, None)
    }

    /// As [`Charge::try_charge`], while limits are being lowered under those of before: of the tree
    /// and of each process, in bytes, and the ceilings of the nodes.
    #[must_use = "pages that were charged must be uncharged"]
    pub fn try_charge_below(
        &self,
        nr: u64,
        limit: &'static AtomicU64,
        own_limit: &'static AtomicU64,
    ) -> bool {
        self.share().try_charge(nr) || self.try_charge_slow(nr, Some((limit, own_limit)))
    }

    /// Asks for more, and charges `nr` pages of it.
    #[cold]
    fn try_charge_slow(
        &self,
        nr: u64,
        limits: Option<(&'static AtomicU64, &'static AtomicU64)>,
    ) -> bool {
        let Some(mut group) = self.membership() else {
            return false;
        };
        self.learn_limit(&group, &group.levels());
        if let Some(limits) = limits {
            (group.limit, group.own_limit) = limits;
            group.at_ceiling = true;
        }
        (0..MAX_TRIES).any(|_| {
            let missing = group.share.missing(nr);
            (missing == 0 || group.raise(missing, missing.max(MIN_RAISE)))
                && group.share.try_charge(nr)
        })
    }

    /// Has more granted, if there is and no node is above its `high`, until `nr` pages are granted
    /// and not used.
    pub fn keep_slack(&self, nr: u64) {
        let missing = self.share().missing(nr);
        if let Some(group) = self.membership().filter(|_| missing > 0) {
            group.raise_if_free(0, missing);
        }
    }

    /// Charges `nr` pages whether or not they fit: the over-limit=allow policy, and memory that
    /// exists already.
    #[inline]
    pub fn charge_unchecked(&self, nr: u64) {
        self.share().charge_unchecked(nr);
    }

    /// Takes `nr` charged pages off again. The memory is gone already.
    #[inline]
    pub fn uncharge(&self, nr: u64) {
        self.share().uncharge(nr);
    }

    /// Pages that were granted and are not used.
    #[inline]
    pub fn slack(&self) -> u64 {
        self.share().slack()
    }

    /// Gives back what was granted and is not used, but for `keep` pages.
    pub fn give_back(&self, keep: u64) {
        let surplus = self.slack().saturating_sub(keep);
        if surplus > 0 && self.membership().is_some() {
            self.share().take_back(surplus);
        }
    }

    /// Pages that still fit; 0 when at or over a limit. A hint: another thread or process may
    /// charge next.
    pub fn room(&self) -> u64 {
        let Some(group) = self.membership() else {
            return self.slack();
        };
        let levels = group.levels();
        self.learn_limit(&group, &levels);
        group.room(&levels)
    }

    /// Pages above the limits that are used. 0 after a limit was lowered: from now on it holds.
    pub fn over(&self) -> u64 {
        let Some(group) = self.membership() else {
            return 0;
        };
        // SeqCst throughout, as in a raise: either what it asks for is seen here, or it sees the
        // lowered limit.
        let excess = || {
            let levels = group.levels();
            self.learn_limit(&group, &levels);
            let own = group.share.granted().saturating_sub(group.own_limit());
            levels.excess().max(own)
        };
        match excess() {
            0 => 0,
            over => {
                group.take_unused(over);
                excess()
            }
        }
    }

    /// Brings what is granted down to the limits, as far as it is not used.
    pub fn settle(&self) {
        self.over();
    }

    /// The limit in pages for what this process alone may use, as it was when that was last looked
    /// at: what it holds, and what is free.
    #[inline]
    pub fn limit(&self) -> u64 {
        match self.known_limit.load(Relaxed) {
            0 => self.look_at_limit(),
            known => known,
        }
    }

    #[cold]
    fn look_at_limit(&self) -> u64 {
        match self.membership() {
            Some(group) => self.learn_limit(&group, &group.levels()),
            None => self.own.granted(),
        }
    }

    fn learn_limit(&self, group: &Membership, levels: &Levels) -> u64 {
        let free = levels.tightest().free();
        let limit = (group.share.granted() + free).min(group.own_limit());
        self.known_limit.store(limit, Relaxed);
        limit
    }

    /// What the nodes hold that this process counts in, and what they may. `None`: it follows no
    /// group.
    pub fn levels(&self) -> Option<Levels> {
        let group = self.membership()?;
        let levels = group.levels();
        group.ledger.note(&levels);
        Some(levels)
    }

    /// Pages by which a node that this process counts in is above its `high`, after as many of this
    /// process's unused pages were given back.
    pub fn settle_below_high(&self) -> u64 {
        let Some(group) = self.membership() else {
            return 0;
        };
        if !group
            .ledger
            .is_limited(group.share.path(), |node| &node.high)
        {
            return 0;
        }
        let above = || {
            let levels = group.ledger.held_on(group.share.path());
            let above = levels.iter().map(|level| group.ledger.above_high(level));
            above.max().unwrap_or(0)
        };
        match above() {
            0 => 0,
            nr if group.share.take_back(nr) > 0 => above(),
            nr => nr,
        }
    }

    /// Pages charged now.
    #[inline]
    pub fn used(&self) -> u64 {
        self.share().used()
    }

    /// The most pages that were ever charged at once.
    #[inline]
    pub fn peak(&self) -> u64 {
        self.share().peak()
    }
}

impl Membership {
    /// Has `wanted` pages more granted, or at least `least`: of what is free, then of what others
    /// do not use. `false`: there are fewer.
    fn raise(&self, least: u64, wanted: u64) -> bool {
        self.raise_if_free(least, wanted)
            || (self.ledger.take_back(self.share, self.scope(), wanted) > 0
                && self.raise_if_free(least, least))
    }

    /// Takes back up to `nr` pages that nobody uses.
    fn take_unused(&self, nr: u64) {
        let own = self.share.take_back(nr);
        self.ledger.take_back(self.share, self.scope(), nr - own);
    }

    /// Where unused pages make room for this process: in the node that has least.
    fn scope(&self) -> usize {
        self.levels().tightest().node
    }

    fn raise_if_free(&self, least: u64, wanted: u64) -> bool {
        let (limit, own_limit) = (|level: &Level| self.limit(level), || self.own_limit());
        self.ledger
            .raise(self.share, least, wanted, limit, own_limit)
            > 0
    }

    /// The nodes that the process counts in, what they hold, and their limits.
    fn levels(&self) -> Levels {
        let mut levels = self.ledger.held_on(self.share.path());
        // After the sum, as in a raise.
        for level in levels.iter_mut() {
            level.limit = self.limit(level);
        }
        levels
    }

    /// The limit of a node without what is outside, pages.
    fn limit(&self, level: &Level) -> u64 {
        let own = self.ledger.node(level.node);
        let bytes = match level.node {
            Path::ROOT_NODE => self.limit.load(SeqCst),
            _ if self.at_ceiling => own.ceiling.load(),
            _ => own.max.load(),
        };
        self.ledger
            .grantable(level.node, bytes, level.held.presumed)
    }

    /// The limit of this process, pages.
    fn own_limit(&self) -> u64 {
        match self.own_limit.load(SeqCst) {
            0 => u64::MAX,
            bytes => bytes >> PAGE_SHIFT,
        }
    }

    /// Pages that this process may still use.
    fn room(&self, levels: &Levels) -> u64 {
        let free = levels.tightest().free();
        let own = self.own_limit().saturating_sub(self.share.granted());
        (self.share.slack() + free.min(own)).saturating_sub(levels.excess())
    }
}

/// Pages that were charged ahead and are not in use yet. Dropping it uncharges
/// what is left.
///
/// Reclaim works at the limit: it sets pages aside first, then stores a batch out
/// of them, drops the pages that it stored, and ends with more room than before.
#[derive(Debug)]
pub struct Reserve<'a> {
    charge: &'a Charge,
    pages: u64,
}

impl<'a> Reserve<'a> {
    /// An empty reserve: what it is asked for, it tries to charge on the spot.
    #[inline]
    pub const fn empty(charge: &'a Charge) -> Self {
        Self { charge, pages: 0 }
    }

    /// Sets `nr` pages aside, or `None` when they do not fit.
    #[inline]
    pub fn charged(charge: &'a Charge, nr: u64) -> Option<Self> {
        // Not `then_some`: its argument would exist, and be dropped, in any case.
        charge.try_charge(nr).then(|| Self { charge, pages: nr })
    }

    /// The limit that the pages are charged to.
    #[inline]
    pub const fn charge(&self) -> &'a Charge {
        self.charge
    }

    /// Pages set aside and not used.
    #[inline]
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// Sets `nr` more pages aside; `false` when they do not fit.
    #[inline]
    pub fn grow(&mut self, nr: u64) -> bool {
        let fits = self.charge.try_charge(nr);
        if fits {
            self.pages = self.pages.wrapping_add(nr);
        }
        fits
    }

    /// Takes `nr` pages to use them: out of the reserve as far as it goes, the
    /// rest charged now. All or nothing. The pages stay charged; whoever uses
    /// them uncharges them one day.
    #[inline]
    #[must_use = "pages that were taken must be uncharged or put back"]
    pub fn take(&mut self, nr: u64) -> bool {
        let missing = nr.saturating_sub(self.pages);
        if missing > 0 && !self.charge.try_charge(missing) {
            return false;
        }
        self.pages = self.pages.saturating_sub(nr);
        true
    }

    /// Puts `nr` charged pages in that are not used any more.
    #[inline]
    pub fn put(&mut self, nr: u64) {
        self.pages = self.pages.wrapping_add(nr);
        strict_assert!(self.pages <= self.charge.used());
    }

    /// Uncharges all but `keep` pages.
    pub fn shrink_to(&mut self, keep: u64) {
        let surplus = self.pages.saturating_sub(keep);
        if surplus > 0 {
            self.pages = keep;
            self.charge.uncharge(surplus);
        }
    }
}

impl Drop for Reserve<'_> {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_takes_what_fits_and_gives_back_what_it_did_not_use() {
        let charge = Charge::new(10);
        assert!(Reserve::charged(&charge, 11).is_none());
        assert_eq!(charge.used(), 0, "a refusal costs nothing");
        let mut reserve = Reserve::charged(&charge, 4).unwrap();
        assert!(reserve.take(3));
        assert_eq!((reserve.pages(), charge.used()), (1, 4));
        assert!(reserve.take(6), "one of ours, five of the limit's");
        assert_eq!((reserve.pages(), charge.used()), (0, 9));
        assert!(!reserve.take(2));
        assert!(reserve.grow(1));
        assert!(!reserve.grow(1));
        assert!(!reserve.take(2), "all or nothing");
        assert_eq!((reserve.pages(), charge.used()), (1, 10));
        charge.charge_unchecked(7);
        reserve.put(7);
        assert_eq!((reserve.pages(), charge.used(), charge.room()), (8, 17, 0));
        drop(reserve);
        assert_eq!((charge.used(), charge.peak()), (9, 17));
    }

    /// A charge in a group of its own, its limit and its ledger.
    fn grouped(pages: u64) -> (Charge, &'static AtomicU64, &'static Ledger) {
        let leak = |value| -> &'static AtomicU64 { Box::leak(Box::new(AtomicU64::new(value))) };
        let ledger: &Ledger = Box::leak(Box::default());
        let (limit, own_limit) = (leak(pages << PAGE_SHIFT), leak(0));
        let charge = Charge::new(1);
        charge.follow(&Membership {
            share: ledger.begin(0),
            ledger,
            limit,
            own_limit,
            at_ceiling: false,
        });
        (charge, limit, ledger)
    }

    #[test]
    fn a_limit_lowered_below_what_is_used_stops_charging() {
        let (charge, limit, _) = grouped(8);
        assert!(charge.try_charge(8));
        limit.store(4 << PAGE_SHIFT, SeqCst);
        assert!(!charge.try_charge(1));
        assert!(charge.try_charge(0));
        assert_eq!((charge.room(), charge.over()), (0, 4));
        charge.uncharge(5);
        assert_eq!(charge.over(), 0);
        assert!(charge.try_charge(1));
        assert!(!charge.try_charge(1));
        assert!(!charge.try_charge(u64::MAX >> 1), "no overflow");
    }

    #[test]
    fn the_limit_is_where_it_is_followed_to() {
        let (charge, limit, _) = grouped(4);
        assert!(charge.try_charge(4));
        assert!(!charge.try_charge(1));
        limit.store((6 << PAGE_SHIFT) + 1, SeqCst);
        assert_eq!((charge.room(), charge.limit()), (2, 6));
        assert!(charge.try_charge(2));
        assert!(!charge.try_charge(1), "a part of a page is no page");
        limit.store(1 << PAGE_SHIFT, SeqCst);
        assert_eq!((charge.over(), charge.room()), (5, 0));
        assert!(!charge.try_charge(1));
        static BEFORE: AtomicU64 = AtomicU64::new(7 << PAGE_SHIFT);
        static NONE: AtomicU64 = AtomicU64::new(0);
        assert!(
            charge.try_charge_below(1, &BEFORE, &NONE),
            "under the limit before"
        );
        assert!(!charge.try_charge_below(1, &BEFORE, &NONE));
        charge.uncharge(6);
        assert_eq!(charge.over(), 0);
    }

    #[test]
    fn what_is_outside_leaves_less_and_what_others_do_not_use_can_be_had() {
        // Far more than what is left however much is outside.
        let (charge, _, ledger) = grouped(10_000);
        ledger.set_outside(0, Path::ROOT, 4_000 << PAGE_SHIFT);
        assert_eq!((charge.room(), charge.limit()), (6_000, 6_000));
        let other = ledger.begin(1);
        let all = |_: &Level| 6_000;
        assert_eq!(ledger.raise(other, 5_000, 5_000, all, || u64::MAX), 5_000);
        assert!(other.try_charge(3_000));
        assert_eq!(charge.room(), 1_000);
        assert!(
            charge.try_charge(2_500),
            "of 2,000 that the other has granted"
        );
        assert!(!charge.try_charge(501));
        assert!(charge.try_charge(500));
        let all = charge.levels().unwrap().last();
        let held = all.held;
        assert_eq!((held.claimed, held.used, all.limit), (6_000, 6_000, 6_000));
    }
}
