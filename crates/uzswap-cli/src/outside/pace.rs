//! *What*: when memory outside the account is measured, by what that costs. A *probe* reads one
//! number a process, a *look* two small files; *weighing* walks a process's page tables.
//!
//! *Invariants*: on average all three take no more than a thousandth of a CPU, and a hundredth of
//! what the program itself takes of it, beyond [`HEAD_START`] and [`OVERDRAFT`]. Memory grows by
//! work, so the program's time is a measure of how much there may be to find.
//! *Locking*: none. *Context*: the supervisor's only thread.

use std::time::Duration;

/// Time between two probes when something changes.
const MIN_INTERVAL: Duration = Duration::from_millis(20);
/// Time between two when nothing does: each wakes the supervisor. Also that between looks, which
/// are what finds new processes.
const MAX_INTERVAL: Duration = Duration::from_millis(500);
/// One part in so many of a CPU's time is used,
const SHARE: u32 = 1000;
/// and one in so many of the program's.
const PROGRAM_SHARE: u32 = 100;
/// CPU time for the beginning of a run.
const HEAD_START: Duration = Duration::from_millis(5);
/// CPU time that may be used in advance when memory grows.
const OVERDRAFT: Duration = Duration::from_millis(15);

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Probe,
    Look,
}

/// The times and costs. Times are those since the run began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    next_probe: Duration,
    next_look: Duration,
    interval: Duration,
    spent: Duration,
    /// CPU time that the program had used at the last look, and when that was.
    program: Duration,
    looked: Duration,
    /// How many CPUs the program has used of late.
    busy: f64,
}

impl Pace {
    /// What is due now.
    pub fn due(&self, now: Duration) -> Option<Due> {
        if now >= self.next_look {
            return Some(Due::Look);
        }
        (now >= self.next_probe).then_some(Due::Probe)
    }

    /// Time until anything is due.
    pub fn due_in(&self, now: Duration) -> Duration {
        self.next_look.min(self.next_probe).saturating_sub(now)
    }

    /// A probe took `cost` of CPU time. The next one comes soon if it found something changed.
    pub fn probed(&mut self, now: Duration, cost: Duration, changed: bool) {
        self.spend(cost, changed);
        self.next_probe = now + self.interval.max(self.earned_in(cost * 4));
    }

    /// A look took `cost` of CPU time, and found that the program has used `program` so far.
    pub fn looked(&mut self, now: Duration, cost: Duration, changed: bool, program: Duration) {
        let time = now.saturating_sub(self.looked).as_secs_f64();
        if time > 0.0 {
            let used = program.saturating_sub(self.program).as_secs_f64();
            self.busy = f64::midpoint(self.busy, used / time);
            (self.program, self.looked) = (program, now);
        }
        self.spend(cost, changed);
        // While memory changes, looks take half of the share and probes a quarter.
        self.next_look = now + self.interval.max(self.earned_in(cost * 2));
        self.next_probe = now + self.interval;
    }

    /// Weighing took `cost` of CPU time.
    pub fn weighed(&mut self, cost: Duration) {
        self.spent += cost;
    }

    /// Whether there is CPU time for more than what is due.
    pub fn may_spend(&self, now: Duration, urgent: bool) -> bool {
        let advance = if urgent { OVERDRAFT } else { Duration::ZERO };
        self.spent < HEAD_START + now / SHARE + self.program / PROGRAM_SHARE + advance
    }

    /// The time in which `cost` may be spent, if the program goes on as it did.
    fn earned_in(&self, cost: Duration) -> Duration {
        let rate = f64::from(SHARE).recip() + self.busy / f64::from(PROGRAM_SHARE);
        cost.div_f64(rate)
    }

    fn spend(&mut self, cost: Duration, changed: bool) {
        self.spent += cost;
        self.interval = match changed {
            true => MIN_INTERVAL,
            false => (self.interval * 2).clamp(MIN_INTERVAL, MAX_INTERVAL),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: Duration = Duration::from_micros(1);
    const MILLI: Duration = Duration::from_millis(1);
    const IDLE: Duration = Duration::ZERO;

    #[test]
    fn probes_come_soon_after_a_change_and_seldom_in_quiet_times() {
        let mut pace = Pace::default();
        assert_eq!(pace.due(Duration::ZERO), Some(Due::Look));
        pace.looked(100 * MILLI, 100 * MICRO, true, IDLE);
        assert_eq!(pace.due(100 * MILLI), None);
        assert_eq!(pace.due_in(100 * MILLI), MIN_INTERVAL);
        assert_eq!(pace.due(120 * MILLI), Some(Due::Probe));
        assert_eq!(pace.due(300 * MILLI), Some(Due::Look));
        for _ in 0..10 {
            pace.looked(400 * MILLI, 8 * MICRO, false, IDLE);
        }
        assert_eq!(pace.due_in(400 * MILLI), MAX_INTERVAL);
        pace.probed(500 * MILLI, MICRO, true);
        assert_eq!(pace.due_in(500 * MILLI), MIN_INTERVAL);
    }

    #[test]
    fn dear_looks_and_probes_come_seldom() {
        let mut pace = Pace::default();
        pace.looked(Duration::ZERO, MILLI, true, IDLE);
        pace.probed(Duration::ZERO, 100 * MICRO, true);
        assert_eq!(pace.due(399 * MILLI), None);
        assert_eq!(pace.due(400 * MILLI), Some(Due::Probe));
        assert_eq!(pace.due(2000 * MILLI), Some(Due::Look));
    }

    /// Whatever the program does, the share is kept.
    #[test]
    fn the_share_is_kept() {
        for busy in [0, 1, 2, 16] {
            share_is_kept(busy);
        }
    }

    /// Of a program that uses so many CPUs.
    fn share_is_kept(busy: u32) {
        let mut pace = Pace::default();
        let (mut now, mut used) = (Duration::ZERO, Duration::ZERO);
        let costs = [10 * MICRO, 100 * MICRO, 7 * MILLI];
        while now < Duration::from_secs(100) {
            now += pace.due_in(now);
            let due = pace.due(now).unwrap();
            if due == Due::Probe {
                pace.probed(now, costs[0], true);
                used += costs[0];
            }
            // Memory always grows.
            if due == Due::Look || pace.may_spend(now, true) {
                if pace.may_spend(now, true) {
                    pace.weighed(costs[2]);
                    used += costs[2];
                }
                pace.looked(now, costs[1], true, now * busy);
                used += costs[1];
            }
        }
        let share = now / SHARE + now * busy / PROGRAM_SHARE;
        let most = HEAD_START + OVERDRAFT + share + 8 * MILLI;
        assert!(used <= most, "{used:?} of {most:?}");
        assert!(used * 2 > share, "{used:?} of {share:?}: it is used");
    }
}
