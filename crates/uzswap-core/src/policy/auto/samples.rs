//! *What*: [`Samples`], what the codecs make of the program's own pages: bytes and time.
//!
//! A sample is compressed and decoded by the fast codec and by one denser codec, in turns. A denser
//! codec's figures are its proportion to the fast one's on the same pages, times the fast one's on
//! all, so that codecs sampled on different pages compare.
//!
//! *Invariants*: older windows count less. *Locking*: the watch's. *Context*: signal, worker.

use super::choice::Choice;
use crate::page::{PAGE_SIZE, wide};
use uzswap_group::knobs::MAX_DENSER_CODECS;

/// Each window, 1/8 of what is more than enough is forgotten. A window samples some thirty pages;
/// their mean alone is off by an eighth now and then.
const FADE_PART: u64 = 8;

/// Pages that a denser codec must have been tried on before it is chosen.
const MIN_PAGES: u64 = 8;

/// Pages per denser codec that are enough to tell, and sampled at the shortest interval.
const ENOUGH_PAGES: u64 = 32;

/// Most TSC ticks per sampled page: a sample that took longer was interrupted, and is ignored.
const MAX_SAMPLE_TICKS: u64 = 1 << 17;

/// One that took more than three times as long as usual counts as that: a shorter interruption.
const MAX_TIMES_USUAL: u64 = 3;

/// What one codec needs for some pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    pub bytes: u64,
    /// TSC ticks to compress and to decode.
    pub ticks: u64,
}

impl Cost {
    /// Whether it takes less by more than 1/`part` of the other's bytes.
    pub(super) fn is_smaller_than(self, other: Cost, part: u64) -> bool {
        other.bytes.saturating_sub(self.bytes) > other.bytes / part
    }
}

/// Pages that a denser codec was tried on, beside the fast one.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    pages: u64,
    fast: Cost,
    dense: Cost,
}

/// What the codecs made of the sampled pages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Samples {
    trials: [Trial; MAX_DENSER_CODECS],
    /// The trial that is next.
    next: usize,
}

impl Samples {
    pub(super) const NONE: Samples = Samples {
        trials: [Trial {
            pages: 0,
            fast: Cost { bytes: 0, ticks: 0 },
            dense: Cost { bytes: 0, ticks: 0 },
        }; MAX_DENSER_CODECS],
        next: 0,
    };

    /// Which of `nr` denser codecs is tried next.
    pub(super) fn take_turn(&mut self, nr: usize) -> Choice {
        self.next = if self.next < nr { self.next + 1 } else { 1 };
        Choice::of(self.next)
    }

    /// What `pages` pages took by the fast codec and by `choice`.
    pub(super) fn add(&mut self, choice: Choice, pages: u64, fast: Cost, dense: Cost) {
        // One that took longer was interrupted.
        if fast.ticks.max(dense.ticks) >= MAX_SAMPLE_TICKS * pages {
            return;
        }
        if let Some(trial) = choice.denser().and_then(|at| self.trials.get_mut(at)) {
            for (sum, made) in [(&mut trial.fast, fast), (&mut trial.dense, dense)] {
                let usual = match trial.pages {
                    ..MIN_PAGES => made.ticks,
                    before => sum.ticks * pages / before,
                };
                sum.bytes += made.bytes;
                sum.ticks += made.ticks.min(usual * MAX_TIMES_USUAL);
            }
            trial.pages += pages;
        }
    }

    /// A window has ended.
    pub(super) fn fade(&mut self) {
        let many = self
            .trials
            .iter_mut()
            .filter(|trial| trial.pages > ENOUGH_PAGES);
        for Trial { pages, fast, dense } in many {
            let sums = [
                pages,
                &mut fast.bytes,
                &mut fast.ticks,
                &mut dense.bytes,
                &mut dense.ticks,
            ];
            for sum in sums {
                *sum -= sum.div_ceil(FADE_PART);
            }
        }
    }

    /// Whether there are too few yet of any of `nr` denser codecs.
    pub(super) fn are_few(&self, nr: usize) -> bool {
        let trials = self.trials.iter().take(nr);
        trials.into_iter().any(|trial| trial.pages < ENOUGH_PAGES)
    }

    /// What a page takes by `choice`; `None`: it was hardly tried.
    pub(super) fn page(&self, choice: Choice) -> Option<Cost> {
        let pages: u64 = self.trials.iter().map(|trial| trial.pages).sum();
        if pages < MIN_PAGES {
            return None;
        }
        let sum = |of: fn(&Trial) -> u64| self.trials.iter().map(of).sum::<u64>() / pages;
        let fast = Cost {
            bytes: sum(|trial| trial.fast.bytes).clamp(1, wide(PAGE_SIZE)),
            ticks: sum(|trial| trial.fast.ticks),
        };
        let Some(at) = choice.denser() else {
            return Some(fast);
        };
        let trial = self.trials.get(at)?;
        let scaled = |fast: u64, by: u64, of: u64| {
            let scaled = u128::from(fast) * u128::from(by) / u128::from(of.max(1));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        (trial.pages >= MIN_PAGES).then(|| Cost {
            bytes: scaled(fast.bytes, trial.dense.bytes, trial.fast.bytes)
                .clamp(1, wide(PAGE_SIZE)),
            ticks: scaled(fast.ticks, trial.dense.ticks, trial.fast.ticks),
        })
    }
}
