//! How fast the time stamp counter ticks: the counters that managed processes keep are in ticks.

use std::time::{Duration, Instant};

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    ticks: u64,
    at: Instant,
}

impl Moment {
    pub fn now() -> Self {
        // SAFETY: RDTSC reads a register; every x86-64 CPU has it.
        let ticks = unsafe { core::arch::x86_64::_rdtsc() };
        Moment {
            ticks,
            at: Instant::now(),
        }
    }

    /// The time stamp counter at this moment.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Time since this moment.
    pub fn elapsed(&self) -> Duration {
        self.at.elapsed()
    }

    /// Ticks per second between this moment and now: the longer ago, the more exact.
    pub fn hz_since(&self) -> u64 {
        let now = Moment::now();
        let ns = now.at.duration_since(self.at).as_nanos().max(1);
        let ticks = u128::from(now.ticks.saturating_sub(self.ticks));
        u64::try_from(ticks * 1_000_000_000 / ns)
            .unwrap_or(u64::MAX)
            .max(1)
    }
}

/// Ticks per second, measured for two milliseconds: exact to about 1 in 10,000.
pub fn calibrate() -> u64 {
    let start = Moment::now();
    while start.elapsed() < Duration::from_millis(2) {
        std::hint::spin_loop();
    }
    start.hz_since()
}
