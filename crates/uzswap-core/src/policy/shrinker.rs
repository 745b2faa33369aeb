//! *What*: the proactive shrinker (`shrinker_enabled`): writes back, ahead of need, what has not
//! been used for [`COLD_TURNOVERS`] turnovers of the resident set.
//!
//! As in the kernel, every page that comes back from the device protects one in the pool, and the
//! better the pool compresses the less is written.
//!
//! *Invariants*: none. *Locking*: the writeback lock, held by the caller. *Context*: signal,
//! worker.

use super::sweep::Ages;
use crate::account::Account;
use crate::page::Pages;
use crate::page::clock::tick_shift;
use uzswap_group::counters::add;
use uzswap_sync::primitive::Ordering::Relaxed;

/// Turnovers of the resident set after which what did not come back is cold.
const COLD_TURNOVERS: u64 = 2;
/// Scans in one turnover of the resident set: each counts the ages of everything stored.
const SCANS_PER_TURNOVER: u64 = 16;

/// State of the shrinker.
#[derive(Debug)]
pub(crate) struct Shrinker {
    /// Pages to write before the next scan.
    budget: u64,
    /// The eviction clock at the last scan.
    last_scan: u64,
    /// Pages that had come back from the device by then.
    swapped_in: u64,
    /// Pages that came back lately; halved at every scan.
    recent: u64,
}

impl Shrinker {
    /// At rest.
    pub(crate) const fn new() -> Self {
        Shrinker {
            budget: 0,
            last_scan: 0,
            swapped_in: 0,
            recent: 0,
        }
    }

    /// Whether cold pages are to be written now, with a pool of `pool` pages. Looks for them now
    /// and then.
    pub(crate) fn wants(
        &mut self,
        account: &Account,
        pages: &Pages,
        ages: &mut Ages,
        pool: u64,
    ) -> bool {
        self.budget > 0 || self.scan(account, pages, ages, pool)
    }

    /// `nr` pages were written; `None`: the chosen pages cannot be written now, so that it scans
    /// anew.
    pub(crate) fn wrote(&mut self, nr: Option<u64>) {
        self.budget = nr.map_or(0, |nr| self.budget.saturating_sub(nr));
    }

    fn scan(&mut self, account: &Account, pages: &Pages, ages: &mut Ages, pool: u64) -> bool {
        let (clock, limit) = (pages.clock(), account.charge().limit());
        if clock.pages_since(self.last_scan, limit) < (limit / SCANS_PER_TURNOVER).max(1) {
            return false;
        }
        let stored = ages.count(pages);
        let cold = ages.nr_older(cold_age(limit));
        let swapped_in = account.counters().pswpin.load(Relaxed);
        self.last_scan = clock.reading();
        self.recent = self.recent / 2 + swapped_in.saturating_sub(self.swapped_in);
        self.swapped_in = swapped_in;
        let kept = self.recent.min(cold);
        let backing = pool.min(stored);
        self.budget = ((cold - kept) * backing).checked_div(stored).unwrap_or(0);
        add(&account.counters().shrinker_protected, kept);
        self.budget > 0
    }
}

/// The age, in ticks, from which on a page has been cold for long, under a limit of `limit` pages.
pub(crate) fn cold_age(limit: u64) -> u16 {
    let ticks = (limit * COLD_TURNOVERS) >> tick_shift(limit);
    u16::try_from(ticks).unwrap_or(u16::MAX)
}
