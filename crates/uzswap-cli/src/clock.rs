//! *What*: moments on the time stamp counter, in whose ticks managed processes count, and on the
//! clock, and from two of them the rate of the counter.
//!
//! *Locking*: none. *Context*: any.

use std::time::{Duration, Instant};

use uzswap_sys::arch::ticks;

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    ticks: u64,
    at: Instant,
}

impl Moment {
    /// Reads both clocks three times and takes the quickest reading: an interrupt between the two
    /// would distort the rate.
    pub fn now() -> Self {
        let look = || {
            let (before, at, after) = (ticks(), Instant::now(), ticks());
            (after.wrapping_sub(before), Moment { ticks: before, at })
        };
        let looks = [look(), look(), look()];
        looks
            .into_iter()
            .min_by_key(|(took, _)| *took)
            .map_or_else(|| look().1, |(_, moment)| moment)
    }

    /// The time stamp counter at this moment.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Time since this moment.
    pub fn elapsed(&self) -> Duration {
        self.at.elapsed()
    }

    /// Ticks per second between this moment and now. The longer ago, the more exact.
    pub fn hz_since(&self) -> u64 {
        let now = Moment::now();
        let ns = now.at.duration_since(self.at).as_nanos().max(1);
        let ticks = u128::from(now.ticks.saturating_sub(self.ticks));
        u64::try_from(ticks * 1_000_000_000 / ns)
            .unwrap_or(u64::MAX)
            .max(1)
    }
}
