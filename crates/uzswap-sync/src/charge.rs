//! *What*: [`Charge`]: the strict memory limit, counted in 4 KiB pages, and [`Reserve`]:
//! pages charged ahead of a batch of work, so that the work cannot fail half-way
//! for lack of room.
//!
//! *Invariants*
//! - Memory is charged before it is touched and uncharged after it was given
//!   back, so what is resident never exceeds `used`.
//! - While the limit stays as it is, [`Charge::try_charge`] never makes `used`
//!   exceed it, not for an instant. Only [`Charge::charge_unchecked`] and lowering
//!   the limit do.
//! - Once the limit was lowered and [`Charge::over`] has said 0, memory above it
//!   is not touched any more: a charge that began before is compared with the limit
//!   once more after it was made, and taken back if it is too much.
//! - `used` = pages of all owners together = Σ resident + Σ open reserves.
//! - All-zero memory is a valid `Charge` with limit 0: nothing can be charged
//!   until [`Charge::follow`] or [`Charge::set_limit`].
//!
//! *Locking*: none; leaf.
//! *Context*: signal, worker, init.

#[cfg(loom)]
use crate::primitive::fence;
use crate::primitive::{AtomicPtr, AtomicU64, Ordering};
use crate::{const_unless_modelled, strict_assert};
use uzswap_sys::PAGE_SHIFT;

/// The limit and what is used of it, in 4 KiB pages.
///
/// On a cache line of its own: every thread that reclaims writes to it.
#[derive(Debug)]
#[repr(align(64))]
pub struct Charge {
    /// Where the limit stands; null: in `own`.
    followed: AtomicPtr<AtomicU64>,
    /// The limit of a charge that follows none, bytes.
    own: AtomicU64,
    used: AtomicU64,
    peak: AtomicU64,
}

impl Charge {
    const_unless_modelled! {
        /// Nothing used of `limit` pages.
        pub fn new(limit: u64) -> Self {
            Self {
                followed: AtomicPtr::new(core::ptr::null_mut()),
                own: AtomicU64::new(limit << PAGE_SHIFT),
                used: AtomicU64::new(0),
                peak: AtomicU64::new(0),
            }
        }
    }

    /// From now on the limit is what `bytes` says, whoever changes it: the group's knob.
    pub fn follow(&self, bytes: &'static AtomicU64) {
        let bytes = core::ptr::from_ref(bytes).cast_mut();
        self.followed.store(bytes, Ordering::Release);
    }

    /// Charges `nr` pages if they fit under the limit, and says whether they did.
    /// No pages always fit.
    #[inline]
    #[must_use = "pages that were charged must be uncharged"]
    pub fn try_charge(&self, nr: u64) -> bool {
        self.try_charge_below(nr, || self.limit())
    }

    /// As [`Charge::try_charge`], under another limit, in pages.
    #[inline]
    #[must_use = "pages that were charged must be uncharged"]
    pub fn try_charge_below(&self, nr: u64, limit: impl Fn() -> u64) -> bool {
        // Acquire: pairs with the Release in `uncharge`, so that memory which
        // made this room was really gone before ours is touched. SeqCst: see `over`.
        let charged = self
            .used
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, |used| {
                let sum = used.checked_add(nr)?;
                (nr == 0 || sum <= limit()).then_some(sum)
            });
        let Ok(before) = charged else { return false };
        // Loom takes SeqCst for AcqRel.
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        let sum = before.wrapping_add(nr);
        if nr > 0 && sum > limit() {
            self.uncharge(nr);
            return false;
        }
        self.note_peak(sum);
        true
    }

    /// Charges `nr` pages whether or not they fit: the over-limit=allow policy,
    /// and memory that exists already.
    #[inline]
    pub fn charge_unchecked(&self, nr: u64) {
        // Acquire: as in `try_charge`.
        let before = self.used.fetch_add(nr, Ordering::Acquire);
        strict_assert!(before.checked_add(nr).is_some());
        self.note_peak(before.wrapping_add(nr));
    }

    /// Takes `nr` charged pages off again. The memory is gone already.
    #[inline]
    pub fn uncharge(&self, nr: u64) {
        // Release: pairs with the Acquire in `try_charge`.
        let before = self.used.fetch_sub(nr, Ordering::Release);
        strict_assert!(before >= nr, "uncharged more than was charged");
    }

    /// Pages that still fit; 0 when at or over the limit. A hint: another thread
    /// may charge next.
    #[inline]
    pub fn room(&self) -> u64 {
        self.limit().saturating_sub(self.used())
    }

    /// Pages used above the limit. 0 after the limit was lowered: from now on it holds.
    pub fn over(&self) -> u64 {
        // SeqCst, as the charge, the look at the limit after it and the change of the limit: either
        // a charge is seen here, or it sees the lowered limit.
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        let used = self.used.load(Ordering::SeqCst);
        used.saturating_sub(self.limit())
    }

    /// The limit in pages, as it is now.
    #[inline]
    pub fn limit(&self) -> u64 {
        // SAFETY: null, or what `follow` was given, which lives for good.
        let followed = unsafe { self.followed.load(Ordering::Acquire).as_ref() };
        followed.unwrap_or(&self.own).load(Ordering::SeqCst) >> PAGE_SHIFT
    }

    /// Changes the limit of a charge that follows none. When it falls below what is used,
    /// charging fails until reclaim has caught up.
    pub fn set_limit(&self, pages: u64) {
        self.own.store(pages << PAGE_SHIFT, Ordering::SeqCst);
    }

    /// Pages charged now.
    #[inline]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The most pages that were ever charged at once.
    #[inline]
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    #[inline]
    fn note_peak(&self, now: u64) {
        // The peak stops rising soon; looking first keeps the write out of the
        // common path.
        if now > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
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

    #[test]
    fn a_limit_lowered_below_what_is_used_stops_charging() {
        let charge = Charge::new(8);
        assert!(charge.try_charge(8));
        charge.set_limit(4);
        assert!(!charge.try_charge(1));
        assert!(charge.try_charge(0));
        assert_eq!(charge.room(), 0);
        charge.uncharge(5);
        assert!(charge.try_charge(1));
        assert!(!charge.try_charge(1));
        assert!(!charge.try_charge(u64::MAX), "no overflow");
    }

    #[test]
    fn the_limit_is_where_it_is_followed_to() {
        static LIMIT: AtomicU64 = AtomicU64::new(4 << PAGE_SHIFT);
        let charge = Charge::new(1);
        charge.follow(&LIMIT);
        assert!(charge.try_charge(4));
        assert!(!charge.try_charge(1));
        LIMIT.store((6 << PAGE_SHIFT) + 1, Ordering::SeqCst);
        assert!(charge.try_charge(2));
        assert!(!charge.try_charge(1), "a part of a page is no page");
        LIMIT.store(1 << PAGE_SHIFT, Ordering::SeqCst);
        assert_eq!((charge.over(), charge.room()), (5, 0));
        assert!(!charge.try_charge(1));
        assert!(charge.try_charge_below(1, || 7), "under the limit before");
        assert!(!charge.try_charge_below(1, || 7));
        charge.uncharge(6);
        assert_eq!(charge.over(), 0);
    }
}
