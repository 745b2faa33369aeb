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

use crate::primitive::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use crate::{const_unless_modelled, strict_assert};

/// Processes that a ledger tells apart.
#[cfg(not(loom))]
pub const NR_SHARES: usize = 256;
/// Processes that a model has.
#[cfg(loom)]
pub const NR_SHARES: usize = 3;

/// log2 of the pages that a share can count: 4 TiB.
const PAGES_BITS: u32 = 30;
const PAGES_MASK: u64 = (1 << PAGES_BITS) - 1;
const GRANTED: u32 = PAGES_BITS;
const OWNER: u32 = 2 * PAGES_BITS;
const ASKING_MASK: u64 = (1 << OWNER) - 1;

/// What a share's word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word(u64);

impl Word {
    const fn used(self) -> u64 {
        self.0 & PAGES_MASK
    }

    const fn granted(self) -> u64 {
        (self.0 >> GRANTED) & PAGES_MASK
    }

    const fn slack(self) -> u64 {
        self.granted().saturating_sub(self.used())
    }

    const fn owner(self) -> u64 {
        self.0 >> OWNER
    }

    /// Pages that count: those granted, or those used if they are more.
    const fn claimed(self) -> u64 {
        let (used, granted) = (self.used(), self.granted());
        if used > granted { used } else { granted }
    }

    const fn with_used(self, used: u64) -> Word {
        Word(self.0 & !PAGES_MASK | used & PAGES_MASK)
    }

    const fn with_granted(self, granted: u64) -> Word {
        Word(self.0 & !(PAGES_MASK << GRANTED) | (granted & PAGES_MASK) << GRANTED)
    }
}

/// What one process holds of the limit.
///
/// On a cache line of its own: all threads of the process write to it.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Share {
    /// Pages used, pages granted, and the owner's number.
    word: AtomicU64,
    /// Pages asked for and not decided on, and the owner's number.
    asking: AtomicU64,
    /// The most pages that were used at once.
    peak: AtomicU64,
    /// Of the used pages those of the compressed pool, as far as was told.
    pool: AtomicU64,
    /// Pages that would be used if nothing were compressed or swapped, as far as was told.
    need: AtomicU64,
    /// Pages that it has in common with others of its family.
    shared: AtomicU64,
    /// Its family's number plus one; 0: it has none.
    family: AtomicU32,
}

impl Default for Share {
    fn default() -> Self {
        Share::new(0)
    }
}

impl Share {
    const_unless_modelled! {
        /// A share of `granted` pages, of which none is used.
        pub fn new(granted: u64) -> Self {
            Share {
                word: AtomicU64::new((granted & PAGES_MASK) << GRANTED),
                asking: AtomicU64::new(0),
                peak: AtomicU64::new(0),
                pool: AtomicU64::new(0),
                need: AtomicU64::new(0),
                shared: AtomicU64::new(0),
                family: AtomicU32::new(0),
            }
        }
    }

    /// A new owner begins, with nothing. Returns its number.
    pub fn begin(&self) -> u64 {
        let owner = Word(self.word.load(Relaxed)).owner() + 1;
        let empty = owner << OWNER;
        self.asking.swap(empty, SeqCst);
        self.peak.store(0, Relaxed);
        self.pool.store(0, Relaxed);
        self.need.store(0, Relaxed);
        self.shared.swap(0, SeqCst);
        self.family.store(0, SeqCst);
        self.word.swap(empty, SeqCst);
        Word(empty).owner()
    }

    /// The owner's number. Acquire: what it wrote of itself before it began is seen.
    pub fn owner(&self) -> u64 {
        Word(self.word.load(Acquire)).owner()
    }

    /// Takes everything back from an owner that is dead. Nothing happens if it is another's by now.
    pub fn expire(&self, owner: u64) {
        let empty = owner << OWNER;
        let expires = |word: u64| (Word(word).owner() == owner).then_some(empty);
        let _ = self.asking.fetch_update(SeqCst, Relaxed, expires);
        if self.word.fetch_update(SeqCst, Relaxed, expires).is_ok() {
            self.pool.store(0, Relaxed);
            self.need.store(0, Relaxed);
            self.shared.swap(0, SeqCst);
        }
    }

    /// Pages used.
    #[inline]
    pub fn used(&self) -> u64 {
        Word(self.word.load(Relaxed)).used()
    }

    /// Pages granted, or used if that is more.
    #[inline]
    pub fn granted(&self) -> u64 {
        Word(self.word.load(Relaxed)).claimed()
    }

    /// Pages to be granted until `nr` more may be used.
    pub fn missing(&self, nr: u64) -> u64 {
        let word = Word(self.word.load(Relaxed));
        word.used()
            .saturating_add(nr)
            .saturating_sub(word.granted())
    }

    /// Pages granted and not used.
    #[inline]
    pub fn slack(&self) -> u64 {
        Word(self.word.load(Relaxed)).slack()
    }

    /// The most pages that were used at once.
    #[inline]
    pub fn peak(&self) -> u64 {
        self.peak.load(Relaxed)
    }

    /// Says how many of the used pages are the compressed pool's.
    pub fn set_pool(&self, pages: u64) {
        self.pool.store(pages, Relaxed);
    }

    /// Says how many pages would be used if nothing were compressed or swapped.
    #[inline]
    pub fn set_need(&self, pages: u64) {
        self.need.store(pages, Relaxed);
    }

    /// Uses `nr` more of the granted pages, if there are as many.
    #[inline]
    #[must_use = "pages that were charged must be uncharged"]
    pub fn try_charge(&self, nr: u64) -> bool {
        // Acquire: pairs with the Release in `uncharge`, so that memory which made this room was
        // really gone before ours is touched.
        let charged = self.word.fetch_update(Acquire, Relaxed, |word| {
            let word = Word(word);
            (nr <= word.slack()).then(|| word.with_used(word.used() + nr).0)
        });
        let Ok(before) = charged else { return false };
        self.note_peak(Word(before).used() + nr);
        true
    }

    /// Uses `nr` more pages, whether or not they were granted.
    pub fn charge_unchecked(&self, nr: u64) {
        let charge = |word| Some(Word(word).with_used(Word(word).used() + nr).0);
        // Acquire: as in `try_charge`.
        if let Ok(before) = self.word.fetch_update(Acquire, Relaxed, charge) {
            self.note_peak(Word(before).used() + nr);
        }
    }

    /// Begins with `nr` used pages, which it was not asked for: those of a fork child.
    pub fn inherit(&self, nr: u64) {
        let grant = |word| Some(Word(word).with_granted(Word(word).granted() + nr).0);
        let _ = self.word.fetch_update(SeqCst, Relaxed, grant);
        self.charge_unchecked(nr);
    }

    /// Pages that it has in common with others of its family, and that are not in `used`.
    pub fn shared(&self) -> u64 {
        self.shared.load(SeqCst)
    }

    /// `nr` of the shared pages are charged now, or gone.
    pub fn unshare(&self, nr: u64) {
        let before = self.shared.fetch_sub(nr, SeqCst);
        strict_assert!(before >= nr, "unshared more than was shared");
    }

    /// `nr` used pages count elsewhere from now on: they are neither used nor granted any more.
    fn forfeit(&self, nr: u64) {
        let forfeit = |word| {
            let word = Word(word);
            let less = word.with_granted(word.granted().saturating_sub(nr));
            Some(less.with_used(word.used().saturating_sub(nr)).0)
        };
        let _ = self.word.fetch_update(SeqCst, Relaxed, forfeit);
    }

    fn family(&self) -> Option<usize> {
        (self.family.load(SeqCst) as usize).checked_sub(1)
    }

    /// Uses `nr` pages no more. Their memory is gone already.
    #[inline]
    pub fn uncharge(&self, nr: u64) {
        // Release: pairs with the Acquire in `try_charge`. `used` is the word's lowest part and not
        // less than `nr`, so that nothing else of it changes.
        let before = self.word.fetch_sub(nr, Release);
        strict_assert!(Word(before).used() >= nr, "uncharged more than was charged");
    }

    /// Takes up to `nr` unused pages back. Returns how many.
    pub fn take_back(&self, nr: u64) -> u64 {
        // Looking first keeps the line where it is.
        if self.slack() == 0 {
            return 0;
        }
        let taken = self.word.fetch_update(SeqCst, Relaxed, |word| {
            let word = Word(word);
            let left = word.granted() - word.slack().min(nr);
            Some(word.with_granted(left).0)
        });
        taken.map_or(0, |before| Word(before).slack().min(nr))
    }

    fn note_peak(&self, now: u64) {
        // The peak stops rising soon; looking first keeps the write out of the common path.
        if now > self.peak.load(Relaxed) {
            self.peak.fetch_max(now, Relaxed);
        }
    }

    /// Pages that are granted, or may be in a moment.
    fn claimed(&self) -> u64 {
        // In this order: a page counts as asked for until it counts as granted.
        let asking = self.asking.load(SeqCst) & ASKING_MASK;
        asking + Word(self.word.load(SeqCst)).claimed()
    }

    /// Grants up to `nr` pages more, while `granted` stays below `most`. Returns how many.
    fn grant(&self, nr: u64, most: impl Fn() -> u64) -> u64 {
        let more = |word: Word| nr.min(most().min(PAGES_MASK).saturating_sub(word.granted()));
        let granted = self.word.fetch_update(SeqCst, Relaxed, |word| {
            let word = Word(word);
            Some(word.with_granted(word.granted() + more(word)).0)
        });
        granted.map_or(0, |before| more(Word(before)))
    }
}

/// What all processes of a group together hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Pages granted, or asked for.
    pub claimed: u64,
    /// Pages used.
    pub used: u64,
    /// Of those the pages of compressed pools.
    pub pool: u64,
    /// Pages that would be used if nothing were compressed or swapped.
    pub need: u64,
    /// Pages that fork left in common; they count in `claimed`, and not in `used`.
    pub shared: u64,
}

/// A family's bound: pages, and above them a round number.
const ROUND: u32 = 48;
const BOUND_MASK: u64 = (1 << ROUND) - 1;

/// The shares of a group's processes.
#[derive(Debug)]
#[repr(C)]
pub struct Ledger {
    /// The highest number of a share that was ever begun, plus one.
    nr: AtomicU32,
    /// Bytes of memory that the group uses and nobody charges: measured from outside.
    pub outside: AtomicU64,
    /// The most pages ever granted at once.
    peak: AtomicU64,
    /// The most pages ever needed at once.
    need_peak: AtomicU64,
    shares: [Share; NR_SHARES],
    /// The families' bounds.
    families: [AtomicU64; NR_SHARES],
    /// Times that pages were brought into a family.
    brought_in: AtomicU64,
}

impl Default for Ledger {
    fn default() -> Self {
        Ledger {
            nr: AtomicU32::new(0),
            outside: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            need_peak: AtomicU64::new(0),
            shares: core::array::from_fn(|_| Share::default()),
            families: core::array::from_fn(|_| AtomicU64::new(0)),
            brought_in: AtomicU64::new(0),
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

    /// What all hold.
    pub fn held(&self) -> Held {
        // Loom takes SeqCst for AcqRel.
        #[cfg(loom)]
        crate::primitive::fence(SeqCst);
        loop {
            let before = self.brought_in.load(SeqCst);
            // What is shared first: a page is charged before it leaves `shared`. What goes the other
            // way meanwhile is added up anew.
            let held = self.sum(self.shared(true));
            if self.brought_in.load(SeqCst) == before {
                return held;
            }
        }
    }

    /// As [`Ledger::held`], of a ledger that is mapped to be read only: about.
    pub fn look(&self) -> Held {
        self.sum(self.shared(false))
    }

    fn sum(&self, shared: u64) -> Held {
        let nothing = Held {
            claimed: shared,
            shared,
            ..Held::default()
        };
        self.shares().iter().fold(nothing, |sum, share| Held {
            claimed: sum.claimed + share.claimed(),
            used: sum.used + share.used(),
            pool: sum.pool + share.pool.load(Relaxed),
            need: sum.need + share.need.load(Relaxed),
            shared,
        })
    }

    /// Pages of all families. Lowers the bounds that turn out too high if it `may_write`.
    fn shared(&self, may_write: bool) -> u64 {
        // Without forks there are none.
        if self.brought_in.load(SeqCst) == 0 {
            return 0;
        }
        let bounds: [u64; NR_SHARES] =
            core::array::from_fn(|at| self.families.get(at).map_or(0, |bound| bound.load(SeqCst)));
        let mut sums = [0; NR_SHARES];
        for share in self.shares() {
            if let Some(sum) = share.family().and_then(|family| sums.get_mut(family)) {
                *sum += share.shared();
            }
        }
        let families = self.families.iter().zip(bounds).zip(sums);
        families
            .map(|((bound, seen), sum)| {
                if may_write && sum < seen & BOUND_MASK {
                    let lower = seen & !BOUND_MASK | sum;
                    let _ = bound.compare_exchange(seen, lower, SeqCst, Relaxed);
                }
                sum.min(seen & BOUND_MASK)
            })
            .sum()
    }

    /// Before a fork: process number `parent` and its `child` have `nr` used pages of the parent's in
    /// common from now on, with those that it shares already. Neither writes to one before it has
    /// charged it.
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

    /// In a child without a share when it was forked: it has `shared` pages in common with `parent`.
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

    /// The most pages ever granted at once.
    pub fn peak(&self) -> u64 {
        self.peak.load(Relaxed)
    }

    /// The most pages that were ever needed at once, as far as was noted.
    pub fn need_peak(&self) -> u64 {
        self.need_peak.load(Relaxed)
    }

    /// Takes notice of what all hold, for the peaks.
    pub fn note(&self, held: &Held) {
        // A peak stops rising soon; looking first keeps the write out of the common path.
        for (peak, now) in [(&self.peak, held.claimed), (&self.need_peak, held.need)] {
            if now > peak.load(Relaxed) {
                peak.fetch_max(now, Relaxed);
            }
        }
    }

    /// Pages that may be granted of a limit of `bytes`: without what is outside.
    pub fn grantable(&self, bytes: u64) -> u64 {
        let outside = self.outside.load(Relaxed);
        bytes.saturating_sub(outside) >> uzswap_sys::PAGE_SHIFT
    }

    /// Grants `own`, a share of this ledger, up to `wanted` pages more and at least `least`: as far
    /// as all together stay within `limit` and it alone within `own_limit`, both in pages. Returns
    /// how many; 0 if there are fewer than `least`.
    pub fn raise(
        &self,
        own: &Share,
        least: u64,
        wanted: u64,
        limit: impl Fn() -> u64,
        own_limit: impl Fn() -> u64,
    ) -> u64 {
        if least > PAGES_MASK {
            return 0;
        }
        let wanted = wanted.clamp(least, PAGES_MASK);
        // SeqCst, as all that `held` reads: either we see what another asks for, or it sees this.
        own.asking.fetch_add(wanted, SeqCst);
        let mut held = self.held();
        // The limit after the sum: whoever lowered it before has seen what we ask for.
        let granted = wanted.saturating_sub(held.claimed.saturating_sub(limit()));
        let granted = match granted >= least {
            true => own.grant(granted, own_limit),
            false => 0,
        };
        own.asking.fetch_sub(wanted, SeqCst);
        held.claimed -= wanted - granted;
        self.note(&held);
        granted
    }

    /// Takes back up to `nr` pages that others than `own` do not use. Returns how many.
    pub fn take_back(&self, own: &Share, nr: u64) -> u64 {
        let others = self
            .shares()
            .iter()
            .filter(|share| !core::ptr::eq(*share, own));
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
mod tests {
    use super::*;

    fn raise(ledger: &Ledger, own: &Share, least: u64, wanted: u64) -> u64 {
        ledger.raise(own, least, wanted, || 10, || u64::MAX)
    }

    #[test]
    fn together_they_get_what_there_is() {
        let ledger = Ledger::default();
        let (one, two) = (ledger.begin(0), ledger.begin(1));
        assert_eq!(raise(&ledger, one, 1, 6), 6);
        assert_eq!(raise(&ledger, two, 1, 6), 4, "as many as are left");
        assert_eq!(raise(&ledger, two, 1, 1), 0);
        assert!(one.try_charge(2) && !two.try_charge(5));
        assert_eq!(ledger.take_back(two, 3), 3, "which the other does not use");
        assert_eq!(raise(&ledger, two, 4, 4), 0, "all or nothing");
        assert_eq!(raise(&ledger, two, 3, 4), 3);
        assert!(two.try_charge(7));
        assert_eq!(ledger.take_back(two, 9), 1);
        let held = ledger.held();
        assert_eq!((held.claimed, held.used, ledger.peak()), (9, 9, 10));
    }

    #[test]
    fn one_alone_stays_within_its_own_limit() {
        let ledger = Ledger::default();
        let own = ledger.begin(0);
        let raise = |least, wanted| ledger.raise(own, least, wanted, || 10, || 3);
        assert_eq!(raise(1, 8), 3);
        assert_eq!(raise(1, 8), 0);
    }

    #[test]
    fn of_the_dead_nothing_is_left_and_their_heirs_lose_nothing() {
        let ledger = Ledger::default();
        let share = ledger.begin(1);
        let dead = share.owner();
        assert_eq!(raise(&ledger, share, 5, 5), 5);
        assert!(share.try_charge(4));
        share.asking.fetch_add(2, SeqCst);
        assert_eq!(ledger.held().claimed, 7);
        share.expire(dead);
        assert_eq!(ledger.held(), Held::default());
        share.charge_unchecked(1);
        ledger.begin(1);
        assert_eq!(ledger.held(), Held::default(), "a new owner has nothing");
        share.charge_unchecked(3);
        share.expire(dead);
        assert_eq!(share.used(), 3, "it is another's");
        for _ in 0..20 {
            ledger.begin(1);
        }
        assert_eq!(ledger.held(), Held::default(), "numbers go round");
    }

    #[test]
    fn what_exceeds_the_limit_counts_until_it_is_gone() {
        let ledger = Ledger::default();
        let share = ledger.begin(0);
        share.charge_unchecked(12);
        let held = ledger.held();
        assert_eq!((held.claimed, held.used, share.peak()), (12, 12, 12));
        assert_eq!(raise(&ledger, share, 1, 1), 0);
        share.uncharge(12);
        assert_eq!(share.slack(), 0, "nothing was granted");
        share.inherit(2);
        assert_eq!(raise(&ledger, share, 9, 9), 0);
        assert_eq!(raise(&ledger, share, 8, 8), 8);
        assert_eq!((share.used(), share.slack()), (2, 8));
    }

    #[test]
    fn a_page_that_parent_and_child_have_counts_once() {
        let ledger = Ledger::default();
        let (parent, child) = (ledger.begin(0), ledger.begin(1));
        assert_eq!(raise(&ledger, parent, 6, 6), 6);
        assert!(parent.try_charge(6));
        ledger.share_with_child(0, child, 4);
        assert_eq!((parent.used(), parent.shared(), child.shared()), (2, 4, 4));
        let claimed = || ledger.held().claimed;
        assert_eq!((claimed(), ledger.held().shared), (6, 4));
        // The child writes to one, the parent drops two, which the child still has.
        assert_eq!(raise(&ledger, child, 1, 1), 1);
        assert!(child.try_charge(1));
        child.unshare(1);
        parent.unshare(2);
        assert_eq!(claimed(), 2 + 1 + 4, "at most");
        // A grandchild has what the child has.
        let grandchild = ledger.begin(2);
        ledger.share_with_child(1, grandchild, 1);
        assert_eq!((child.shared(), grandchild.shared()), (4, 4));
        assert_eq!(claimed(), 2 + 5);
        assert!(!ledger.is_last_of_family(child));
        grandchild.expire(grandchild.owner());
        child.expire(child.owner());
        assert_eq!(claimed(), 2 + 2, "the parent's own");
        assert!(ledger.is_last_of_family(parent));
        parent.inherit(2);
        parent.unshare(2);
        assert_eq!(claimed(), 4);
    }
}
