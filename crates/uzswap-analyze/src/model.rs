//! How much slower a program would be under a limit.
//!
//! *What*: what fits the limit, moment by moment, and how many pages are refaulted then ([`rate`]),
//! times their cost.
//! *Invariants*: of limits that are compared, a smaller one is never predicted to be faster.
//! *Locking*: none.

mod rate;

use serde::Serialize;

use crate::cost::Cost;
use crate::watch::History;
use crate::{PAGE, whole_mib};
use rate::{Rate, Refaults, rate};

/// uzswap's own part of a limit, bytes: tables, buffers, the reserve.
const OWN_BYTES: f64 = 3.0 * 1_048_576.0;
/// Share of the limit that the pool may take; the model has no swap device.
const MAX_POOL_SHARE: f64 = 0.75;
/// Resident memory that a program needs at least, bytes.
const MIN_RESIDENT_BYTES: f64 = 2.0 * 1_048_576.0;
/// Slowdown by running under uzswap at all: between nothing and twice this.
const BASE: f64 = 0.02;
/// Cost of refaults at best, where sequential pages come in together, and at worst, with lock waits
/// and cold caches; from experience, see docs/analyze.md.
const LOW: f64 = 0.6;
const HIGH: f64 = 1.6;
/// Share of the time below which refaults do not matter.
const MIN_SHARE: f64 = 0.02;
/// Factor from one tried limit to the next.
const STEP: f64 = 0.97;

/// A program as it was observed.
#[derive(Clone, Debug)]
pub struct Workload<'a> {
    /// Its processes.
    pub histories: Vec<&'a History>,
    /// Processor time of all of them, seconds.
    pub cpu_s: f64,
}

/// A codec and its consequences here.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Bytes that a byte of memory takes in the pool.
    pub stored: f64,
    /// Bytes needed under uzswap per byte natively, see [`crate::heap`].
    pub need: f64,
    /// Cost of a page.
    pub cost: Cost,
    /// The smallest limit that uzswap accepts, bytes.
    pub min_ram: u64,
}

/// The prediction for a limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Expected {
    /// The limit, bytes.
    pub ram: u64,
    /// Refaults.
    pub refaults: f64,
    /// Pages evicted because memory grew beyond what fits, during the watch.
    pub overflow: f64,
    /// Additional processor time, as a share of the native time.
    pub slower: f64,
    /// The same at best.
    pub low: f64,
    /// The same at worst.
    pub high: f64,
    /// Share of the time for which curves had to be extrapolated.
    pub guessed: f64,
}

impl Workload<'_> {
    /// Peak memory of a process, bytes.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.histories
            .iter()
            .map(|history| history.peak)
            .max()
            .unwrap_or(0)
            * PAGE
    }

    /// The prediction for `ram` bytes per process; `None` if the data does not fit even compressed.
    #[must_use]
    pub fn under(&self, ram: u64, setting: &Setting) -> Option<Expected> {
        if ram < setting.min_ram {
            return None;
        }
        let Cost { in_us, out_us } = setting.cost;
        let (mut all, mut seconds) = (Totals::default(), 0.0);
        for history in &self.histories {
            let limit = Limit {
                ram: ram as f64,
                stored: setting.stored,
                need: setting.need,
                matters: MIN_SHARE * 1e6 / (in_us + out_us),
            };
            limit.resident(history.peak)?;
            let totals = limit.totals(history);
            all.refaults.add(totals.refaults, 1.0);
            all.overflow += totals.overflow;
            all.guessed_s += totals.guessed_s;
            seconds += history.seconds();
        }
        let once = all.overflow * out_us / 1e6 / self.cpu_s;
        let part = |pages: f64| pages * (in_us + out_us) / 1e6 / self.cpu_s;
        let Refaults {
            best,
            expected,
            worst,
        } = all.refaults;
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

    /// The smallest limit whose slowdown, selected by `of`, is at most `slower`.
    #[must_use]
    pub fn smallest(
        &self,
        slower: f64,
        setting: &Setting,
        of: fn(&Expected) -> f64,
    ) -> Option<Expected> {
        let most = self.peak() as f64 * setting.need + OWN_BYTES;
        let down = (0..).map(|step| whole_mib(most * STEP.powi(step)));
        self.along(down, setting)
            .take_while(|expected| of(expected) <= slower)
            .last()
    }

    /// The predictions for falling limits, down to the smallest that the data fits.
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
    /// Different windows describe different limits: where they disagree, the worse one counts.
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

/// A limit and the setting's figures.
struct Limit {
    ram: f64,
    stored: f64,
    need: f64,
    /// Refaults per second that matter.
    matters: f64,
}

#[derive(Default)]
struct Totals {
    /// Pages.
    refaults: Refaults,
    overflow: f64,
    guessed_s: f64,
}

impl Refaults {
    /// Adds this rate over `seconds`.
    fn add(&mut self, rate: Refaults, seconds: f64) {
        self.best += rate.best * seconds;
        self.expected += rate.expected * seconds;
        self.worst += rate.worst * seconds;
    }
}

impl Limit {
    /// Pages of `anon` that can be resident; `None` if they do not fit even compressed.
    fn resident(&self, anon: u64) -> Option<f64> {
        let all = (anon * PAGE) as f64 * self.need;
        if all + OWN_BYTES <= self.ram {
            return Some(anon as f64);
        }
        // resident + pool + own = ram, and the pool holds the rest.
        let resident = (self.ram - OWN_BYTES - all * self.stored) / (1.0 - self.stored).max(1e-3);
        let pool = self.ram - OWN_BYTES - resident;
        (resident >= MIN_RESIDENT_BYTES && pool <= MAX_POOL_SHARE * self.ram)
            .then_some(resident.min(all) / self.need / PAGE as f64)
    }

    /// The totals over a history.
    fn totals(&self, history: &History) -> Totals {
        let mut totals = Totals::default();
        // Time whose window says nothing about this capacity takes the rate of the next window.
        let (mut pending_s, mut known) = (0.0, Refaults::default());
        // What did not fit before the watch had been evicted before.
        let first = history.windows.first().and_then(|w| w.readings.first());
        let before = first.map_or(0.0, |first| {
            let capacity = self.resident(first.anon);
            capacity.map_or(0.0, |capacity| first.anon as f64 - capacity)
        });
        for (window, anon, seconds) in history.slices() {
            let Some(capacity) = self.resident(anon) else {
                continue;
            };
            let overflow = anon as f64 - capacity;
            totals.overflow = totals.overflow.max(overflow - before);
            if overflow <= 0.0 {
                continue;
            }
            pending_s += seconds;
            let (rate, guessed) = match rate(window, capacity) {
                Rate::Observed(rate) => (rate, false),
                Rate::Extrapolated(rate) => (rate, rate.worst > self.matters),
                Rate::Unknown => continue,
            };
            totals.refaults.add(rate, pending_s);
            if guessed {
                totals.guessed_s += pending_s;
            }
            // Time after the last window with a rate takes that rate as expected.
            known = Refaults {
                worst: rate.expected,
                ..rate
            };
            pending_s = 0.0;
        }
        totals.refaults.add(known, pending_s);
        totals.guessed_s += pending_s;
        totals
    }
}

#[cfg(test)]
pub(crate) mod tests;
