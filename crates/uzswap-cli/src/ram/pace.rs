//! *What*: when to look at the surroundings: the sooner, the less room there is to the limit, and
//! at once again while they change.
//!
//! *Invariants*: at rest looking takes no more than a thousandth of a CPU, and a hundredth
//! otherwise.
//! *Locking*: none. *Context*: the supervisor's only thread.

use std::time::Duration;

/// Time between two looks.
const MIN_INTERVAL: Duration = Duration::from_millis(20);
const MAX_INTERVAL: Duration = Duration::from_millis(250);
/// Bytes a second by which others are expected to grow: between two looks they use up no more than
/// a part of the room.
const GROWTH: u64 = 256 << 20;
/// One part in so many of a CPU's time is used.
const SHARE_AT_REST: u32 = 1000;
const SHARE: u32 = 100;

/// The times of looks, since the run began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    next: Duration,
    soonest: Duration,
}

impl Pace {
    /// Whether to look now; `woken`: something may have changed.
    pub fn is_due(&self, now: Duration, woken: bool) -> bool {
        now >= if woken { self.soonest } else { self.next }
    }

    /// Time until the next look.
    pub fn due_in(&self, now: Duration, woken: bool) -> Duration {
        let at = if woken { self.soonest } else { self.next };
        at.saturating_sub(now)
    }

    /// A look took `cost` of CPU time and found so many bytes of room, and whether that `changed`.
    pub fn looked(&mut self, now: Duration, cost: Duration, room: u64, changed: bool) {
        let (interval, share) = match changed {
            true => (MIN_INTERVAL, SHARE),
            false => (interval(room), SHARE_AT_REST),
        };
        self.soonest = now + MIN_INTERVAL.max(cost * SHARE);
        self.next = now + interval.max(cost * share);
    }
}

fn interval(room: u64) -> Duration {
    let time = Duration::from_millis(room.saturating_mul(1000) / GROWTH);
    time.clamp(MIN_INTERVAL, MAX_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: Duration = Duration::from_micros(1);
    const MILLI: Duration = Duration::from_millis(1);
    const MIB: u64 = 1 << 20;

    #[test]
    fn it_follows_the_room_and_the_change() {
        let mut pace = Pace::default();
        assert!(pace.is_due(Duration::ZERO, false));
        for (room, changed, ms) in [
            (u64::MAX, false, 250),
            (32 * MIB, false, 125),
            (0, false, 20),
            (u64::MAX, true, 20),
        ] {
            pace.looked(100 * MILLI, MICRO, room, changed);
            assert_eq!(pace.due_in(100 * MILLI, false), ms * MILLI);
            assert!(pace.is_due(120 * MILLI, true), "woken early");
            assert!(!pace.is_due(119 * MILLI, true), "but not too early");
        }
    }

    #[test]
    fn dear_looks_come_seldom() {
        let mut pace = Pace::default();
        pace.looked(Duration::ZERO, MILLI, 0, false);
        assert_eq!(pace.due_in(Duration::ZERO, false), 1000 * MILLI);
        pace.looked(Duration::ZERO, MILLI, 0, true);
        assert_eq!(pace.due_in(Duration::ZERO, false), 100 * MILLI);
        assert_eq!(pace.due_in(Duration::ZERO, true), 100 * MILLI);
    }
}
