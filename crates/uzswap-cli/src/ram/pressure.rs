//! *What*: memory pressure of a cgroup (PSI, cgroup v2): while its tasks stall because hot page
//! cache, such as the programs' code, has to be read again and again, we leave it more room.
//!
//! Stalls alone do not count: who reads large files stalls in reclaim, too, though nothing of that
//! comes back. What does is counted as restored (`workingset_restore_file`).
//!
//! *Locking*: none. *Context*: `uzswap run`.

use std::time::Duration;

/// Time over which stalls are measured at least.
const PERIOD: Duration = Duration::from_secs(1);
/// Part of the time that some task must have stalled for.
const MIN_STALL_PERCENT: u128 = 10;
/// Pages that must have been restored in a second.
const MIN_RESTORED: u64 = 64;
/// A step is so small a part of the limit. Each period under pressure adds one.
const STEP_PART: u64 = 64;
const MAX_STEPS: u64 = 8;
/// Periods without pressure after which one is given back.
const CALM_PERIODS: u32 = 10;

/// What the kernel has counted so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Time that some task stalled for.
    pub stalled: Duration,
    /// Pages of hot page cache that were read again.
    pub restored: u64,
}

/// The pressure of one cgroup.
#[derive(Debug, Default)]
pub struct Pressure {
    last: Option<(Duration, Counted)>,
    steps: u64,
    calm: u32,
}

impl Pressure {
    /// What to leave of `limit` bytes, as what is counted `now` says.
    pub fn squeeze(&mut self, now: Duration, counted: Counted, limit: u64) -> u64 {
        let &mut (at, before) = self.last.get_or_insert((now, counted));
        let passed = now.saturating_sub(at);
        if passed >= PERIOD {
            self.last = Some((now, counted));
            let stalled = counted.stalled.saturating_sub(before.stalled);
            let restored = counted.restored.saturating_sub(before.restored);
            let felt = stalled.as_micros() * 100 >= passed.as_micros() * MIN_STALL_PERCENT
                && restored >= MIN_RESTORED * passed.as_secs();
            self.step(felt);
        }
        limit / STEP_PART * self.steps
    }

    fn step(&mut self, felt: bool) {
        if felt {
            self.steps = MAX_STEPS.min(self.steps + 1);
            self.calm = 0;
            return;
        }
        self.calm += 1;
        if self.calm >= CALM_PERIODS {
            self.steps = self.steps.saturating_sub(1);
            self.calm = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 64 << 20;
    const STEP: u64 = 1 << 20;

    /// Squeezes of a cgroup whose tasks stall and whose pages are restored so much each second.
    fn each_second(stalled_ms: u64, restored: u64, seconds: u64) -> (Pressure, u64) {
        let (mut pressure, mut squeezed) = (Pressure::default(), 0);
        for second in 0..=seconds {
            squeezed = look(
                &mut pressure,
                second,
                second * stalled_ms,
                second * restored,
            );
        }
        (pressure, squeezed)
    }

    fn look(pressure: &mut Pressure, second: u64, stalled_ms: u64, restored: u64) -> u64 {
        let counted = Counted {
            stalled: Duration::from_millis(stalled_ms),
            restored,
        };
        pressure.squeeze(Duration::from_secs(second), counted, LIMIT)
    }

    #[test]
    fn pressure_takes_step_after_step_and_gives_back_slowly() {
        assert_eq!(each_second(150, 1000, 3).1, 3 * STEP);
        let (mut pressure, squeezed) = each_second(150, 1000, 100);
        assert_eq!(squeezed, 8 * STEP, "an eighth at most");
        let calm = (101..=110).map(|at| look(&mut pressure, at, 15_000, 100_000));
        assert_eq!(calm.last(), Some(7 * STEP));
    }

    #[test]
    fn stalls_of_who_reads_large_files_and_reads_of_who_does_not_stall_are_no_pressure() {
        assert_eq!(each_second(500, 0, 10).1, 0);
        assert_eq!(each_second(20, 10_000, 10).1, 0);
    }
}
