//! *What*: moments on the time stamp counter, in whose ticks managed processes count, and on the
//! clock, and from two of them the rate of the counter.
//!
//! *Locking*: none. *Context*: any.

use core::time::Duration;

use crate::arch::ticks;
use crate::thread::monotonic_ns;

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    ticks: u64,
    ns: u64,
}

impl Moment {
    /// Reads both clocks three times and takes the quickest reading: an interrupt between the two
    /// would distort the rate.
    #[must_use]
    pub fn now() -> Self {
        let look = || {
            let (before, ns, after) = (ticks(), monotonic_ns(), ticks());
            (after.wrapping_sub(before), Moment { ticks: before, ns })
        };
        let looks = [look(), look(), look()];
        looks
            .into_iter()
            .min_by_key(|(took, _)| *took)
            .map_or_else(|| look().1, |(_, moment)| moment)
    }

    /// The time stamp counter at this moment.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Time since this moment.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(monotonic_ns().saturating_sub(self.ns))
    }

    /// Ticks per second between this moment and now. The longer ago, the more exact.
    #[must_use]
    pub fn hz_since(&self) -> u64 {
        let now = Moment::now();
        let ns = u128::from(now.ns.saturating_sub(self.ns).max(1));
        let ticks = u128::from(now.ticks.saturating_sub(self.ticks));
        u64::try_from(ticks * 1_000_000_000 / ns)
            .unwrap_or(u64::MAX)
            .max(1)
    }
}
