//! *What*: [`Rule`], which codec `--compressor auto` stores with: the one by which the program
//! would lose the least time in all.
//!
//! Each window tells what the program lost to faults and on swap devices. What it would lose by
//! another codec follows from how many pages would then be resident ([`WindowStats::resident_by`]),
//! how many faults those save (the [`Curve`]), what the codec takes for each of the others, and how
//! many pages it would leave on the devices. A denser codec is taken up at once, a faster one only
//! after [`MIN_POOR_WINDOWS`] windows in a row in which it was better: with few faults left the
//! curve says little about a smaller resident set. Each time that turns out to be a mistake it
//! takes twice as many.
//!
//! *Invariants*: none; a pure function. *Locking*: none. *Context*: signal, worker.

use super::choice::Choice;
use super::curve::{Curve, ONE};
use super::samples::{Cost, Samples};
use crate::page::{PAGE_SIZE, wide};

/// The densest codec must save at least 1/5 for objects of the fast codec to be
/// [recompressed](super::super::recompress).
const MIN_GAIN_TO_RECOMPRESS: u64 = 5;

/// A denser codec must save at least 1/9 of the bytes that the fast one takes. Of less, size
/// classes and the data that are resident anyway leave too little for what it takes in addition.
const MIN_GAIN_PART: u64 = 9;

/// Everything nearly fits the pool if it exceeds the pool's limit by at most 1/8.
const NEARLY_FITS_PART: u64 = 8;

/// Windows in a row in which a faster codec was better before it is taken up: at first, and after
/// that was a mistake several times.
pub(super) const MIN_POOR_WINDOWS: u32 = 8;
const MAX_POOR_WINDOWS: u32 = 256;

/// Another codec must save at least 1/16 of the time.
const HYSTERESIS_PART: u128 = 16;

/// Assumed cost of a device read, in TSC ticks, until one has been measured. Errs low: a fast NVMe
/// disk.
const ASSUMED_READ_TICKS: u64 = 1 << 16;

/// Assumed cost of a fault, without its pages: delivery of the signal, the handler, the return.
/// Counted, not measured: on a busy machine the clock says more about others.
const FAULT_TICKS: u64 = 9_000;

/// Assumed cost of a page that is brought in, and of another that is evicted for it, without the
/// codec's.
const PAGE_TICKS: u64 = 6_000;

/// Windows over which the growth of the program's data is extrapolated.
const WINDOWS_AHEAD: u64 = 16;

/// With at most 1/64 as many pages on the device as in the pool, what reading them takes is not
/// known: two threads that wait for each other's room write a run now and then, with the pool
/// nearly empty.
const FEW_SWAPPED_PART: u64 = 64;

/// What the pool takes in addition to its objects: 1/16.
const POOL_OVERHEAD_PART: u64 = 16;

/// What one window showed.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowStats<'a> {
    /// Pages that were evicted, and that came back; the faults by which they did.
    pub evicted: u64,
    pub loaded: u64,
    pub faults: u64,
    /// TSC ticks that device reads and writes took.
    pub device: u64,
    /// At its end: pages that the pool takes, and may take.
    pub pool: u64,
    pub max_pool: u64,
    /// Pages that are resident, stored in the pool, and on the device.
    pub resident: u64,
    pub stored: u64,
    pub out: u64,
    /// Growth of the program's pages, wherever they are, since the window began.
    pub grown: u64,
    /// The pool exceeds `max_pool`, and nothing shrinks it.
    pub full: bool,
    /// What exceeds `max_pool` goes to a device.
    pub spills: bool,
    pub curve: &'a Curve,
    pub samples: &'a Samples,
}

/// `of` times `by` / `whole`.
fn scale(of: u64, by: u64, whole: u64) -> u64 {
    let scaled = u128::from(of) * u128::from(by) / u128::from(whole.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

impl WindowStats<'_> {
    /// Whether to recompress what the fast codec made, once there is time: if the result is much
    /// smaller.
    pub(super) fn gains_by_recompressing(&self, by: Choice) -> bool {
        let [fast, dense] = [Choice::FAST, by].map(|by| self.samples.page(by));
        let both = fast.zip(dense);
        both.is_some_and(|(fast, dense)| dense.is_smaller_than(fast, MIN_GAIN_TO_RECOMPRESS))
    }

    /// Whether to do so in place of writing pages back: if everything would (nearly) fit then.
    /// Otherwise the old objects leave the pool anyway, as pages are read and evicted again.
    pub(super) fn nearly_fits(&self, by: Choice) -> bool {
        let room = self.max_pool + self.max_pool / NEARLY_FITS_PART;
        let fits =
            |dense: Cost| scale(self.stored + self.out, dense.bytes, wide(PAGE_SIZE)) <= room;
        self.samples.page(by).is_some_and(fits)
    }

    /// Pages that would be resident of `data` pages, stored in objects of `bytes` bytes.
    fn resident_by(&self, data: u64, bytes: u64) -> u64 {
        let room = self.resident + self.pool;
        let pool = scale(data, bytes, wide(PAGE_SIZE));
        // Of what is resident nothing is in the pool: r = room - (data - r) * bytes / page.
        let left = wide(PAGE_SIZE).saturating_sub(bytes).max(1);
        let resident = scale(room.saturating_sub(pool), wide(PAGE_SIZE), left);
        let least = if self.spills {
            room.saturating_sub(self.max_pool)
        } else {
            0
        };
        resident.max(least).min(data)
    }

    /// Pages that would be on the device, or would have no place at all.
    fn out_by(&self, bytes: u64) -> u64 {
        let data = self.resident + self.stored + self.out + self.grown * WINDOWS_AHEAD;
        let rest = data - self.resident_by(data, bytes);
        rest.saturating_sub(scale(self.max_pool, wide(PAGE_SIZE), bytes))
    }

    /// TSC ticks that a window would take by a codec that takes so much for a page.
    fn ticks_by(&self, page: Cost) -> u128 {
        let bytes = (page.bytes + page.bytes / POOL_OVERHEAD_PART).min(wide(PAGE_SIZE));
        let evicted = self.stored + self.out;
        let resident = self.resident_by(self.resident + evicted, bytes);
        let more = resident.saturating_sub(self.resident);
        let fewer = self.resident.saturating_sub(resident);
        let part = self.curve.faults_with(more, fewer);
        // What went to make room for new data is assumed to come back once. Were all of it as
        // likely, by every page that is resident in addition one fewer would; real programs use
        // some of their data more.
        let mut new = self.evicted.saturating_sub(self.loaded);
        for _ in 0..2 {
            new = scale(new, evicted + fewer, evicted + more);
        }
        let loaded = scale(self.loaded, part, ONE) + new;
        let faults = scale(self.faults, part, ONE) + new;
        u128::from(loaded) * u128::from(page.ticks + PAGE_TICKS)
            + u128::from(faults) * u128::from(FAULT_TICKS)
            + self.device_ticks(self.out_by(bytes))
    }

    /// TSC ticks that the device would take for `out` pages on it. As many as are there now are
    /// read as often as those. For any more the rate is unknown: assume that of stored pages.
    fn device_ticks(&self, out: u64) -> u128 {
        let known = if self.out > self.stored / FEW_SWAPPED_PART {
            out.min(self.out)
        } else {
            0
        };
        u128::from(self.device) * u128::from(known) / u128::from(self.out.max(1))
            + u128::from(self.evicted) * u128::from(ASSUMED_READ_TICKS) * u128::from(out - known)
                / u128::from(self.stored.max(1))
    }

    /// The codec by which this window would have taken the least time, and whether it is so much
    /// less than by `current`.
    fn best(&self, current: Choice) -> Option<Choice> {
        let fast = self.samples.page(Choice::FAST)?;
        let codecs = Choice::all().filter_map(|choice| {
            let page = self.samples.page(choice)?;
            let gains = page.is_smaller_than(fast, MIN_GAIN_PART);
            (gains || choice == Choice::FAST).then_some((choice, page))
        });
        if self.full {
            let densest = codecs.min_by_key(|(_, page)| page.bytes);
            return densest.map(|(choice, _)| choice);
        }
        let mut now = None;
        let mut best: Option<(Choice, u128)> = None;
        for (choice, page) in codecs {
            let ticks = self.ticks_by(page);
            if choice == current {
                now = Some(ticks);
            }
            if best.is_none_or(|(_, least)| ticks < least) {
                best = Some((choice, ticks));
            }
        }
        let (best, ticks) = best?;
        match now {
            Some(now) if now - now / HYSTERESIS_PART <= ticks => Some(current),
            _ => Some(best),
        }
    }
}

/// The state that windows are judged from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// What pages are stored with.
    pub choice: Choice,
    /// Windows that may still pass in which a faster codec was better before it is taken up, and
    /// how many those are from the beginning.
    poor_windows_left: u32,
    patience: u32,
    /// The choice before was a denser one.
    relaxed: bool,
}

impl Rule {
    pub(super) const BEGIN: Rule = Rule::by(Choice::FAST);

    pub(super) const fn by(choice: Choice) -> Rule {
        Rule {
            choice,
            poor_windows_left: MIN_POOR_WINDOWS,
            patience: MIN_POOR_WINDOWS,
            relaxed: false,
        }
    }

    /// After one more window.
    pub(super) fn next(self, window: &WindowStats<'_>) -> Rule {
        // With too few samples nothing changes.
        let Some(best) = window.best(self.choice) else {
            return self;
        };
        if best < self.choice && self.poor_windows_left > 1 {
            return Rule {
                poor_windows_left: self.poor_windows_left - 1,
                ..self
            };
        }
        let denser = best > self.choice;
        // The faster codec was a mistake: the next one is twice as far.
        let patience = if denser && self.relaxed {
            (self.patience * 2).min(MAX_POOR_WINDOWS)
        } else {
            self.patience
        };
        Rule {
            choice: best,
            poor_windows_left: patience,
            patience,
            relaxed: best < self.choice || self.relaxed && !denser,
        }
    }
}
