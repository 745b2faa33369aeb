//! # What
//! [`Charge`]: the strict memory limit, counted in 4 KiB pages, and [`Reserve`]:
//! pages charged ahead of a batch of work, so that the work cannot fail half-way
//! for lack of room.
//!
//! # Invariants
//! - Memory is charged before it is touched and uncharged after it was given
//!   back, so what is resident never exceeds `used`.
//! - [`Charge::try_charge`] never makes `used` exceed `limit`, not for an
//!   instant. Only [`Charge::charge_unchecked`] and lowering the limit do.
//! - `used` = pages of all owners together = Σ resident + Σ open reserves.
//! - All-zero memory is a valid `Charge` with limit 0: nothing can be charged
//!   until [`Charge::set_limit`].
//!
//! # Locking
//! None; leaf.
//!
//! # Context
//! Signal, worker, init.

use crate::primitive::{AtomicU64, Ordering};

/// The limit and what is used of it, in 4 KiB pages.
///
/// On a cache line of its own: every thread that reclaims writes to it.
#[derive(Debug)]
#[repr(align(64))]
pub struct Charge {
    limit: AtomicU64,
    used: AtomicU64,
    peak: AtomicU64,
}

impl Charge {
    /// Nothing used of `limit` pages.
    #[cfg(not(loom))]
    pub const fn new(limit: u64) -> Self {
        Self {
            limit: AtomicU64::new(limit),
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
        }
    }

    /// Nothing used of `limit` pages.
    #[cfg(loom)]
    pub fn new(limit: u64) -> Self {
        Self {
            limit: AtomicU64::new(limit),
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
        }
    }

    /// Charges `nr` pages if they fit under the limit, and says whether they did.
    /// No pages always fit.
    ///
    /// A concurrent [`Charge::set_limit`] counts as done after this call when
    /// this call did not see it.
    #[inline]
    #[must_use = "pages that were charged must be uncharged"]
    pub fn try_charge(&self, nr: u64) -> bool {
        // Acquire: pairs with the Release in `uncharge`, so that memory which
        // made this room was really gone before ours is touched.
        let charged = self
            .used
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |used| {
                let sum = used.checked_add(nr)?;
                (nr == 0 || sum <= self.limit.load(Ordering::Relaxed)).then_some(sum)
            });
        match charged {
            Ok(before) => {
                self.note_peak(before.wrapping_add(nr));
                true
            }
            Err(_) => false,
        }
    }

    /// Charges `nr` pages whether or not they fit: the over-limit=allow policy,
    /// and memory that exists already.
    #[inline]
    pub fn charge_unchecked(&self, nr: u64) {
        // Acquire: as in `try_charge`.
        let before = self.used.fetch_add(nr, Ordering::Acquire);
        self.note_peak(before.wrapping_add(nr));
    }

    /// Takes `nr` charged pages off again. The memory is gone already.
    #[inline]
    pub fn uncharge(&self, nr: u64) {
        // Release: pairs with the Acquire in `try_charge`.
        let before = self.used.fetch_sub(nr, Ordering::Release);
        debug_assert!(before >= nr, "uncharged more than was charged");
    }

    /// Pages that still fit; 0 when at or over the limit. A hint: another thread
    /// may charge next.
    #[inline]
    pub fn room(&self) -> u64 {
        self.limit().saturating_sub(self.used())
    }

    /// The limit in pages.
    #[inline]
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. When it falls below what is used, charging fails until
    /// reclaim has caught up.
    pub fn set_limit(&self, pages: u64) {
        self.limit.store(pages, Ordering::Relaxed);
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

    /// Sets `nr` more pages aside whether or not they fit (over-limit=allow).
    pub fn grow_unchecked(&mut self, nr: u64) {
        self.charge.charge_unchecked(nr);
        self.pages = self.pages.wrapping_add(nr);
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
        reserve.grow_unchecked(5);
        reserve.put(2);
        charge.charge_unchecked(2);
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
}
