//! How much slower a program would be under a limit.
//!
//! *What*: what can be resident of a limit, moment by moment, and how many pages come back then ([`rate`]), times what that costs.
//! *Invariants*: of limits that are looked at together, a smaller one is never told to be faster.
//! *Locking*: none.

mod rate;

use serde::Serialize;

use crate::PAGE;
use crate::cost::Cost;
use crate::watch::Life;
use rate::{Back, Rate, rate};

/// What uzswap itself takes of a limit: tables, buffers, the reserve.
const OWN: f64 = 3.0 * 1_048_576.0;
/// The part of the limit that the pool may take before the swap device would be used, which is not reckoned with.
const POOL: f64 = 0.75;
/// Resident pages without which nothing goes on, bytes.
const LEAST: f64 = 2.0 * 1_048_576.0;
/// What a program loses by running under uzswap at all: between nothing and twice this.
const BASE: f64 = 0.02;
/// Sequential pages come back cheaper than one by one; others wait for the engine's locks, and what they had in the processor's caches is gone. Both
/// are experience: see docs/analyze.md.
const LOW: f64 = 0.6;
const HIGH: f64 = 1.6;
/// A rate of pages coming back that takes less than this part of the time does not matter.
const MATTERS: f64 = 0.02;
/// Limits are tried in steps of this.
const STEP: f64 = 0.97;

/// A program as it was watched: the processes that have memory, and its processor time.
#[derive(Clone, Debug)]
pub struct Work<'a> {
    /// Its processes.
    pub lives: Vec<&'a Life>,
    /// Processor time of all of them, seconds.
    pub cpu_s: f64,
}

/// With which codec, and what that means here.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Bytes that a byte of memory takes in the pool.
    pub stored: f64,
    /// What the program needs under uzswap for each byte that it needs without, see [`crate::heap`].
    pub need: f64,
    /// What a page costs.
    pub cost: Cost,
    /// The least limit that uzswap runs with, bytes.
    pub least: u64,
}

/// What is expected under a limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Expected {
    /// The limit, bytes.
    pub ram: u64,
    /// Pages that come back after they were put out.
    pub refaults: f64,
    /// Pages that are put out because there are more than fit, after the watch began.
    pub overflow: f64,
    /// Additional processor time, as a part of the time without uzswap.
    pub slower: f64,
    /// At best.
    pub low: f64,
    /// At worst.
    pub high: f64,
    /// Part of the time for which curves that still rose had to be continued beyond what was seen.
    pub guessed: f64,
}

impl Work<'_> {
    /// Most memory of one process, bytes.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.lives.iter().map(|life| life.peak).max().unwrap_or(0) * PAGE
    }

    /// What `ram` bytes for each process mean; `None` if the data does not fit even compressed.
    #[must_use]
    pub fn under(&self, ram: u64, setting: &Setting) -> Option<Expected> {
        if ram < setting.least {
            return None;
        }
        let Cost { in_us, out_us } = setting.cost;
        let (mut all, mut seconds) = (Over::default(), 0.0);
        for life in &self.lives {
            let limit = Limit {
                ram: ram as f64,
                stored: setting.stored,
                need: setting.need,
                matters: MATTERS * 1e6 / (in_us + out_us),
            };
            limit.resident(life.peak)?;
            let one = limit.over(life);
            all.back.add(one.back, 1.0);
            all.overflow += one.overflow;
            all.guessed_s += one.guessed_s;
            seconds += life.seconds();
        }
        let once = all.overflow * out_us / 1e6 / self.cpu_s;
        let part = |pages: f64| pages * (in_us + out_us) / 1e6 / self.cpu_s;
        let Back {
            best,
            expected,
            worst,
        } = all.back;
        Some(Expected {
            ram,
            refaults: expected,
            overflow: all.overflow,
            slower: BASE + once + part(expected),
            low: once * 0.8 + part(best) * LOW,
            high: 2.0 * BASE + once * 1.2 + f64::max(part(expected) * HIGH, part(worst)),
            guessed: all.guessed_s / f64::max(seconds, 1e-9),
        })
    }

    /// The smallest limit under which it is at most `slower` slower by what `of` says: expected, at best or at worst.
    #[must_use]
    pub fn smallest(
        &self,
        slower: f64,
        setting: &Setting,
        of: fn(&Expected) -> f64,
    ) -> Option<Expected> {
        let most = self.peak() as f64 * setting.need + OWN;
        let down = (0..).map(|step| whole_mib(most * STEP.powi(step)));
        self.along(down, setting)
            .take_while(|expected| of(expected) <= slower)
            .last()
    }

    /// What limits mean, from the largest one down to the smallest that the data fits.
    pub fn along(
        &self,
        limits: impl Iterator<Item = u64>,
        setting: &Setting,
    ) -> impl Iterator<Item = Expected> {
        let mut larger = None;
        limits
            .map_while(|ram| self.under(ram, setting))
            .map(move |expected| {
                let expected = larger.map_or(expected, |larger| expected.after(&larger));
                larger = Some(expected);
                expected
            })
    }
}

impl Expected {
    /// Different windows tell about different limits: where they do not agree, the worse one counts.
    fn after(self, larger: &Expected) -> Self {
        Self {
            refaults: self.refaults.max(larger.refaults),
            slower: self.slower.max(larger.slower),
            low: self.low.max(larger.low),
            high: self.high.max(larger.high),
            ..self
        }
    }
}

/// Rounded up to a MiB.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, far below 2^64"
)]
fn whole_mib(bytes: f64) -> u64 {
    (bytes as u64).next_multiple_of(1 << 20)
}

/// A limit in bytes, what a byte takes in the pool, and what a program needs.
struct Limit {
    ram: f64,
    stored: f64,
    need: f64,
    /// Pages a second that are worth a doubt.
    matters: f64,
}

#[derive(Default)]
struct Over {
    /// Pages.
    back: Back,
    overflow: f64,
    guessed_s: f64,
}

impl Back {
    /// What comes back at this rate in so many seconds.
    fn add(&mut self, rate: Back, seconds: f64) {
        self.best += rate.best * seconds;
        self.expected += rate.expected * seconds;
        self.worst += rate.worst * seconds;
    }
}

impl Limit {
    /// Pages that can be resident when there are `anon` pages; `None` if they do not fit.
    fn resident(&self, anon: u64) -> Option<f64> {
        let all = (anon * PAGE) as f64 * self.need;
        if all + OWN <= self.ram {
            return Some(anon as f64);
        }
        // resident + pool + own = ram, and the pool holds what is not resident.
        let resident = (self.ram - OWN - all * self.stored) / (1.0 - self.stored).max(1e-3);
        let pool = self.ram - OWN - resident;
        (resident >= LEAST && pool <= POOL * self.ram)
            .then_some(resident.min(all) / self.need / PAGE as f64)
    }

    /// What happens over a life.
    fn over(&self, life: &Life) -> Over {
        let mut over = Over::default();
        // Of times whose window was ended before it could tell anything about this capacity, the next one tells.
        let (mut untold_s, mut known) = (0.0, Back::default());
        // What did not fit before it was watched was put out before.
        let first = life.windows.first().and_then(|w| w.readings.first());
        let before = first.map_or(0.0, |first| {
            let capacity = self.resident(first.anon);
            capacity.map_or(0.0, |capacity| first.anon as f64 - capacity)
        });
        for (window, anon, seconds) in life.slices() {
            let Some(capacity) = self.resident(anon) else {
                continue;
            };
            let overflow = anon as f64 - capacity;
            over.overflow = over.overflow.max(overflow - before);
            if overflow <= 0.0 {
                continue;
            }
            untold_s += seconds;
            let (back, guessed) = match rate(window, capacity) {
                Rate::Seen(back) => (back, false),
                Rate::Guessed(back) => (back, back.worst > self.matters),
                Rate::Untold => continue,
            };
            over.back.add(back, untold_s);
            if guessed {
                over.guessed_s += untold_s;
            }
            // What it does until the next window that tells is taken from this one as it is expected.
            known = Back {
                worst: back.expected,
                ..back
            };
            untold_s = 0.0;
        }
        // After the last window that tells: as it was in that.
        over.back.add(known, untold_s);
        over.guessed_s += untold_s;
        over
    }
}

#[cfg(test)]
mod tests;
