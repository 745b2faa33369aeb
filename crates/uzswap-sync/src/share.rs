//! *What*: [`Share`]: what one process holds of a limit, in 4 KiB pages, in memory that all
//! processes of its group share: pages *granted* to it, how many of them it has *used*, and what it
//! has in common with others since a fork. What all hold together:
//! [`Ledger`](crate::ledger::Ledger).
//!
//! *Invariants*
//! - `used ≤ granted`, in one word, but for [`Share::charge_unchecked`].
//! - Whoever takes from a share names its owner, whose number differs from that of the next one.
//! - All-zero memory is a share of nothing.
//!
//! *Locking*: none; modelled in `tests/loom_ledger.rs`. *Context*: signal, worker, init.

use crate::node::{Path, PathCell};
use crate::primitive::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use crate::{const_unless_modelled, strict_assert};

/// log2 of the pages that a share can count: 4 TiB.
const PAGES_BITS: u32 = 30;
pub(crate) const PAGES_MASK: u64 = (1 << PAGES_BITS) - 1;
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
    pub(crate) asking: AtomicU64,
    /// The most pages that were used at once.
    peak: AtomicU64,
    /// Of the used pages those of the compressed pool, as far as was told.
    pub(crate) pool: AtomicU64,
    /// Pages that would be used if nothing were compressed or swapped, as far as was told.
    pub(crate) need: AtomicU64,
    /// Pages that it has in common with others of its family.
    pub(crate) shared: AtomicU64,
    /// Its family's number plus one; 0: it has none.
    pub(crate) family: AtomicU32,
    /// Pages that it is taken to have outside the account, until somebody has measured them.
    presumed: AtomicU32,
    /// The node that it counts in.
    path: PathCell,
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
                presumed: AtomicU32::new(0),
                path: PathCell::new(),
            }
        }
    }

    /// A new owner begins, with nothing and in the root. Returns its number.
    pub fn begin(&self) -> u64 {
        let owner = Word(self.word.load(Relaxed)).owner() + 1;
        let empty = owner << OWNER;
        self.asking.swap(empty, SeqCst);
        self.peak.store(0, Relaxed);
        self.pool.store(0, Relaxed);
        self.need.store(0, Relaxed);
        self.shared.swap(0, SeqCst);
        self.family.store(0, SeqCst);
        self.presumed.store(0, Relaxed);
        self.path.store(Path::ROOT);
        self.word.swap(empty, SeqCst);
        Word(empty).owner()
    }

    /// Its owner, who has nothing yet, counts in that node.
    pub fn enter(&self, path: Path) {
        self.path.store(path);
    }

    /// Its owners, who have it in common, count in that node as well.
    pub fn enter_too(&self, path: Path) {
        self.path.add(path);
    }

    /// The node that it counts in. Of one that begins anew it may be the next owner's: to be read
    /// after what the share holds, which is then nothing, or that owner's.
    pub fn path(&self) -> Path {
        self.path.load()
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
            self.presumed.store(0, Relaxed);
            self.shared.swap(0, SeqCst);
        }
    }

    /// Its owner, who has nothing yet, is taken to have `nr` pages outside the account.
    pub fn presume(&self, nr: u64) {
        let nr = u32::try_from(nr).unwrap_or(u32::MAX);
        self.presumed.store(nr, Relaxed);
    }

    /// What its owner has outside the account has been measured.
    pub fn measured(&self) {
        self.presumed.store(0, Relaxed);
    }

    pub(crate) fn presumed(&self) -> u64 {
        self.presumed.load(Relaxed).into()
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

    /// `nr` of the shared pages are this process's alone from now on, whether or not they fit.
    pub fn own(&self, nr: u64) {
        self.inherit(nr);
        self.unshare(nr);
    }

    /// `nr` used pages count elsewhere from now on: they are neither used nor granted any more.
    pub(crate) fn forfeit(&self, nr: u64) {
        let forfeit = |word| {
            let word = Word(word);
            let less = word.with_granted(word.granted().saturating_sub(nr));
            Some(less.with_used(word.used().saturating_sub(nr)).0)
        };
        let _ = self.word.fetch_update(SeqCst, Relaxed, forfeit);
    }

    pub(crate) fn family(&self) -> Option<usize> {
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

    /// Pages that are granted, and those that may be in a moment.
    pub(crate) fn claimed(&self) -> (u64, u64) {
        // In this order: a page counts as asked for until it counts as granted.
        let asking = self.asking.load(SeqCst) & ASKING_MASK;
        (Word(self.word.load(SeqCst)).claimed(), asking)
    }

    /// Grants up to `nr` pages more, while `granted` stays below `most`. Returns how many.
    pub(crate) fn grant(&self, nr: u64, most: impl Fn() -> u64) -> u64 {
        let more = |word: Word| nr.min(most().min(PAGES_MASK).saturating_sub(word.granted()));
        let granted = self.word.fetch_update(SeqCst, Relaxed, |word| {
            let word = Word(word);
            Some(word.with_granted(word.granted() + more(word)).0)
        });
        granted.map_or(0, |before| more(Word(before)))
    }
}
