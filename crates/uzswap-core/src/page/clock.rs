//! *What*: the eviction clock, which ages are measured by. One round is 16 times the limit in
//! evictions.
//!
//! *Invariants*: it advances with every eviction and never goes back. It counts fractions of ticks,
//! so the limit may change at any time and applies to evictions from then on.
//! *Locking*: none; one relaxed atomic. *Context*: signal, worker.

use crate::page::Age;
use crate::page::entry::AGE_BITS;
use uzswap_sync::primitive::{AtomicU64, Ordering::Relaxed};

/// log2 of a tick in the clock's units.
const TICK: u32 = 32;

/// The clock.
#[derive(Debug)]
pub(crate) struct Clock(AtomicU64);

impl Clock {
    /// A clock at zero.
    pub(crate) const fn new() -> Self {
        Clock(AtomicU64::new(0))
    }

    /// Counts `nr` evictions under a limit of `limit` pages.
    pub(crate) fn advance(&self, nr: u64, limit: u64) {
        self.0.fetch_add(nr << (TICK - tick_shift(limit)), Relaxed);
    }

    /// The time as entries store it.
    #[inline]
    pub(crate) fn now(&self) -> Age {
        Age(((self.reading() >> TICK) & ((1 << AGE_BITS) - 1)) as u16)
    }

    /// The time, for [`Clock::pages_since`].
    pub(crate) fn reading(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Pages evicted since `then`, by the tick of a limit of `limit` pages.
    pub(crate) fn pages_since(&self, then: u64, limit: u64) -> u64 {
        self.reading().wrapping_sub(then) >> (TICK - tick_shift(limit))
    }
}

/// log2 of the evictions in a tick under a limit of `limit` pages.
#[inline]
pub(crate) fn tick_shift(limit: u64) -> u32 {
    let round = limit.saturating_mul(16).max(1).ilog2() + 1;
    round.saturating_sub(AGE_BITS).min(TICK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_stay_comparable_when_the_limit_changes() {
        let clock = Clock::new();
        let limit: u64 = 1 << 18;
        clock.advance(2 * limit, limit);
        let (age, reading) = (clock.now(), clock.reading());
        assert_eq!(clock.pages_since(reading, limit), 0);
        for limit in [limit, limit / 2, limit * 3] {
            let (age, reading) = (clock.now(), clock.reading());
            // A turnover is a sixteenth of the round, whatever the limit, as far as a power of two
            // goes.
            clock.advance(limit, limit);
            let ticks = u64::from(age.distance(clock.now()));
            let pages = ticks << tick_shift(limit);
            assert!(
                (limit * 99 / 100..=limit * 101 / 100).contains(&pages),
                "{pages} of {limit}"
            );
            assert_eq!(clock.pages_since(reading, limit), limit);
        }
        assert!(age.distance(clock.now()) > 0);
    }
}
