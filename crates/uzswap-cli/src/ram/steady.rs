//! *What*: keeps the limit from fluttering: it is lowered at once and raised slowly, half of the
//! way after every two seconds in which there was room.
//!
//! *Locking*: none. *Context*: `uzswap run`.

use std::time::Duration;

/// Time for which there must be room before the limit is raised.
const RAISE_AFTER: Duration = Duration::from_secs(2);
/// Changes that are not followed: a part, and no less than that.
const PART: u64 = 256;
const MIN_CHANGE: u64 = 1 << 20;

/// What is aimed at, steadied. Bytes; negative where there is less than nothing.
#[derive(Clone, Copy, Debug)]
pub struct Steady {
    value: i64,
    /// The least that was aimed at since.
    least: i64,
    since: Duration,
}

impl Steady {
    /// Begins with `value` at time `now`.
    pub fn new(value: i64, now: Duration) -> Self {
        Steady {
            value,
            least: value,
            since: now,
        }
    }

    /// The steadied value.
    pub fn value(&self) -> i64 {
        self.value
    }

    /// Aims at `target`. Whether much has changed, be it followed or not yet.
    pub fn aim(&mut self, target: i64, now: Duration) -> bool {
        let change = MIN_CHANGE
            .max(self.value.unsigned_abs() / PART)
            .cast_signed();
        if target < self.value - change {
            *self = Steady::new(target, now);
            return true;
        }
        let moved = self.least.abs_diff(target) > change.unsigned_abs();
        self.least = self.least.min(target);
        if now.saturating_sub(self.since) >= RAISE_AFTER {
            let room = self.least - self.value;
            if room > change {
                self.value += if room > 4 * change { room / 2 } else { room };
            }
            (self.least, self.since) = (target, now);
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i64 = 1 << 20;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn it_falls_at_once_and_rises_by_halves() {
        let mut steady = Steady::new(1000 * MIB, at(0));
        assert!(steady.aim(600 * MIB, at(10)));
        assert_eq!(steady.value(), 600 * MIB);
        let mut seen = Vec::new();
        for ms in (110..20_000).step_by(100) {
            steady.aim(1000 * MIB, at(ms));
            if seen.last() != Some(&(steady.value() / MIB)) {
                seen.push(steady.value() / MIB);
            }
        }
        assert_eq!(seen[0], 600, "not before two seconds");
        // The first period knows of the fall itself.
        assert_eq!(seen[1..3], [800, 900]);
        assert_eq!(seen.last(), Some(&1000));
        assert!(seen.len() <= 10, "{seen:?}");
    }

    #[test]
    fn what_goes_up_and_down_stays_down() {
        let mut steady = Steady::new(100 * MIB, at(0));
        for round in 0..100 {
            steady.aim(if round % 2 == 0 { 90 } else { 100 } * MIB, at(round * 500));
            assert_eq!(steady.value(), 90 * MIB);
        }
    }

    #[test]
    fn small_changes_are_not_followed() {
        let mut steady = Steady::new(100 * MIB, at(0));
        for round in 0..100_u64 {
            let noise = (round % 3).cast_signed() * MIB / 2;
            assert!(!steady.aim(100 * MIB - noise, at(round * 300)));
            assert_eq!(steady.value(), 100 * MIB);
        }
    }
}
