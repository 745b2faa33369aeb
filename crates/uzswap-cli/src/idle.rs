//! *What*: `--idle-reclaim`: evicts what has been in RAM for long, though there is room. A dense
//! machine has more jobs than memory, and most are idle most of the time.
//!
//! The engine knows how long a folio has been on its list, not when it was last used: what is in
//! use comes back with one fault, and then counts as recently used.
//!
//! *Invariants*: a process is asked only for memory that is old enough now, and not while it serves
//! another request.
//! *Locking*: none. *Context*: the supervisor's only thread, between signals.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use uzswap_group::group::Group;
use uzswap_group::request::RequestKind;
use uzswap_sys::clock::Moment;

use crate::group_view::{Part, live_processes, tsc_hz};
use crate::request;

/// Looks for each age that memory may reach.
const LOOKS: u32 = 8;
/// Time between two looks, at least and at most.
const PERIOD: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(30)];

/// The tick before which memory is older than `age`; 0 if the group is not that old.
pub fn before(group: &Group, age: Duration) -> u64 {
    let ticks = age.as_secs_f64() * to_f64(tsc_hz(group));
    Moment::now().ticks().saturating_sub(to_u64(ticks))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "rates and times need no 53 bits"
)]
fn to_f64(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time of at most a day, which is not negative"
)]
fn to_u64(number: f64) -> u64 {
    number as u64
}

/// Evicts what is idle in one run.
#[derive(Debug)]
pub struct IdleReclaim<'a> {
    run: Part<'a>,
    age: Duration,
    next: Instant,
}

impl<'a> IdleReclaim<'a> {
    /// Of `run`, what is older than `age`.
    pub fn new(run: Part<'a>, age: Duration) -> Self {
        IdleReclaim {
            run,
            age,
            next: Instant::now(),
        }
    }

    /// Asks those that have such memory, if it is time to look. Returns the time until the next.
    pub fn tick(&mut self) -> Duration {
        let now = Instant::now();
        if now >= self.next {
            let [least, most] = PERIOD;
            self.next = now + (self.age / LOOKS).clamp(least, most);
            self.ask();
        }
        self.next.saturating_duration_since(now)
    }

    fn ask(&self) {
        let before = before(self.run.group(), self.age);
        for process in live_processes(&self.run) {
            let coldest = process.ask.coldest.load(Relaxed);
            if coldest != 0 && coldest <= before {
                // Its door is shut, or it serves another request: the next time.
                let _ = request::announce(process, RequestKind::Evict, u64::MAX, before);
            }
        }
    }
}
