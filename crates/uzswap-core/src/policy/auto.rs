//! *What*: `--compressor auto`: stores with lz4, or with a denser codec while that saves more time
//! than it takes.
//!
//! A denser codec is considered when pages wait for a swap device, when the pool cannot be kept
//! below its limit, or when the program's data grow so that it soon cannot be. Otherwise it would
//! only free room that nothing uses. Once it is considered, one in [`SAMPLE_INTERVAL_PAGES`] stored
//! pages, or in [`SAMPLE_INTERVAL_PAGES_DENSER`] while that codec is in use, is compressed and
//! decoded with both codecs, and both are timed. At the end of each [window](WINDOWS_PER_TURNOVER)
//! the [rule](Rule::next) compares: the denser codec costs each page the difference of the codecs'
//! times, and saves device time in proportion to the pages that it keeps off the device.
//!
//! *Invariants*: while no denser codec is considered, a stored folio costs one relaxed load. What a
//! sample produces is discarded. An operation has the denser compressor only when the memory to
//! decode its objects is charged (see [`crate::store::codec`]).
//! *Locking*: op → [`Watch`] (only tried). *Context*: signal, worker.

use crate::account::Account;
use crate::page::{PAGE_SIZE, Pages, wide};
use crate::policy::recompress::RecompressSweep;
use uzswap_compress::Codec;
use uzswap_group::knobs::{CODEC_AUTO, Knobs, percent};
use uzswap_sync::lock::{Lock, LockGuard};
use uzswap_sync::primitive::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Windows in one turnover: in the time in which as many pages are evicted as the limit has.
const WINDOWS_PER_TURNOVER: u64 = 16;

/// Pages stored per sampled page, while samples decide.
const SAMPLE_INTERVAL_PAGES: usize = 32;

/// Pages stored per sampled page, while the denser codec is in use. At the shorter interval samples
/// would take 1/25 of the time.
const SAMPLE_INTERVAL_PAGES_DENSER: usize = 128;

/// The denser codec must save at least 1/32 of the bytes that the fast one takes.
const MIN_GAIN_PART: u64 = 32;

/// It must save at least 1/5 for objects of the fast codec to be [recompressed](super::recompress).
const MIN_GAIN_TO_RECOMPRESS: u64 = 5;

/// Everything nearly fits the pool if it exceeds the pool's limit by at most 1/8.
const NEARLY_FITS_PART: u64 = 8;

/// Windows in a row in which the denser codec did not pay before it is given up.
const MAX_POOR_WINDOWS: u32 = 8;

/// A pool that exceeds its limit by more than 1/32 of the RAM limit is full: nothing shrinks it.
const FULL_PART: u64 = 32;

/// Assumed cost of a device read, in TSC ticks, until one has been measured. Errs low: a fast NVMe
/// disk.
const ASSUMED_READ_TICKS: u64 = 1 << 16;

/// Windows over which the growth of the program's data is extrapolated.
const WINDOWS_AHEAD: u64 = 16;

/// With at most 1/64 as many pages on the device as in the pool, writeback predicts nothing: two
/// threads that wait for each other's room write a run now and then, with the pool nearly empty.
const FEW_SWAPPED_PART: u64 = 64;

/// Each window, 1/8 of the sums is forgotten. A window samples some fifty pages; their mean alone
/// is off by an eighth now and then.
const FADE_PART: u64 = 8;

/// Most TSC ticks per sampled page: a sample that took longer was interrupted, and is ignored.
const MAX_SAMPLE_TICKS: u64 = 1 << 17;

/// Whether a denser codec is considered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Phase {
    /// No: everything fits the pool.
    Fast,
    /// Samples decide.
    Sampling,
    /// Pages are stored with it.
    Denser,
}

/// What both codecs made of the sampled pages; older windows count less.
#[derive(Clone, Copy, Debug, Default)]
struct Samples {
    pages: u64,
    fast: Cost,
    dense: Cost,
}

/// What one codec needed for them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub bytes: u64,
    /// TSC ticks to compress and to decode.
    pub ticks: u64,
}

/// What one window showed.
#[derive(Clone, Copy, Debug, Default)]
struct WindowStats {
    /// Pages that were evicted.
    pages: u64,
    /// TSC ticks that device reads and writes took.
    device: u64,
    /// At its end: pages that the pool takes, and may take.
    pool: u64,
    max_pool: u64,
    /// Pages that are stored in it, and on the device.
    stored: u64,
    out: u64,
    /// Growth of the program's pages, wherever they are, since the window began.
    grown: u64,
    /// The pool exceeds `max_pool`, and nothing shrinks it.
    full: bool,
    samples: Samples,
}

impl WindowStats {
    /// Whether to recompress what the fast codec made: if the result is much smaller, and
    /// everything would (nearly) fit then. Otherwise the old objects leave the pool anyway, as
    /// pages are read and evicted again.
    fn pays_to_recompress(&self) -> bool {
        let Samples { pages, fast, dense } = self.samples;
        let needed = u128::from(self.stored + self.out) * u128::from(dense.bytes);
        let room = u128::from(self.max_pool + self.max_pool / NEARLY_FITS_PART)
            * u128::from(pages * wide(PAGE_SIZE));
        fast.bytes.saturating_sub(dense.bytes) > fast.bytes / MIN_GAIN_TO_RECOMPRESS
            && needed <= room
    }

    fn is_under_pressure(&self) -> bool {
        self.full || self.device > 0 || self.will_overflow()
    }

    /// Whether the growth of the program's data will soon fill the pool, though hardly anything has
    /// left it yet.
    fn will_overflow(&self) -> bool {
        let [grown, pool, stored] = [self.grown, self.pool, self.stored].map(u128::from);
        // A growing pool leaves less room for resident pages, which then enter the pool as well.
        let more = grown * u128::from(WINDOWS_AHEAD) * pool / stored.saturating_sub(pool).max(1);
        let hardly_any = self.out <= self.stored / FEW_SWAPPED_PART;
        hardly_any && more > 0 && pool + more > self.max_pool.into()
    }

    /// Whether the denser codec saves more time than it takes. `in_use`: the window was measured
    /// with it.
    fn pays(&self, in_use: bool) -> bool {
        let Samples { pages, fast, dense } = self.samples;
        let gain = fast.bytes.saturating_sub(dense.bytes);
        if pages == 0 || gain == 0 || gain < fast.bytes / MIN_GAIN_PART {
            return false;
        }
        let part = |of: u64, nr: u64, whole: u64| {
            u128::from(of) * u128::from(nr) / u128::from(whole.max(1))
        };
        // Pages that the denser codec keeps, or would keep, off the device.
        let fewer = if in_use {
            let by_fast = part(self.stored, fast.bytes, pages * wide(PAGE_SIZE));
            let over = by_fast.saturating_sub(self.max_pool.into());
            u128::from(self.stored) * over / by_fast.max(1)
        } else {
            part(self.stored, gain, dense.bytes).min(self.out.into())
        };
        let costs = part(self.pages, dense.ticks.saturating_sub(fast.ticks), pages);
        // As many pages as are on the device now are read as often as those. For any more the rate
        // is unknown: assume that of stored pages.
        let known = fewer.min(self.out.into());
        let saves = u128::from(self.device) * known / u128::from(self.out.max(1))
            + u128::from(self.pages * ASSUMED_READ_TICKS) * (fewer - known)
                / u128::from(self.stored.max(1));
        self.full || saves > costs || self.will_overflow()
    }
}

/// The state that windows are judged from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    phase: Phase,
    /// Windows that may still pass without gain before the denser codec is given up.
    poor_windows_left: u32,
}

impl Rule {
    const BEGIN: Rule = Rule {
        phase: Phase::Fast,
        poor_windows_left: 0,
    };

    /// After one more window.
    fn next(self, window: &WindowStats) -> Rule {
        let denser = self.phase == Phase::Denser;
        let (phase, poor_windows_left) = match self.phase {
            Phase::Fast if !window.is_under_pressure() => (Phase::Fast, 0),
            Phase::Fast => (Phase::Sampling, 0),
            // With nothing on the device the overflow was only predicted: one window decides.
            _ if window.pays(denser) => (
                Phase::Denser,
                if window.out > 0 { MAX_POOR_WINDOWS } else { 1 },
            ),
            Phase::Denser if self.poor_windows_left > 1 => {
                (Phase::Denser, self.poor_windows_left - 1)
            }
            _ if window.is_under_pressure() => (Phase::Sampling, 0),
            _ => (Phase::Fast, 0),
        };
        Rule {
            phase,
            poor_windows_left,
        }
    }
}

/// The current window.
#[derive(Debug)]
pub(crate) struct Watch {
    rule: Rule,
    /// The eviction clock when it began.
    began: u64,
    /// Ticks on the device by then.
    device: u64,
    /// Pages that the program had.
    data: u64,
    samples: Samples,
    /// Pages to be stored before the next sample.
    left: usize,
}

/// State of `--compressor auto`.
#[derive(Debug)]
pub(crate) struct Auto {
    watch: Lock<Watch>,
    /// The phase, for those who do not hold the watch.
    phase: AtomicU32,
    /// Objects of the fast codec are to be recompressed.
    recompresses: AtomicBool,
    sweep: Lock<RecompressSweep>,
}

impl Auto {
    /// Everything fits.
    pub(crate) const fn new() -> Self {
        Auto {
            watch: Lock::new(Watch {
                rule: Rule::BEGIN,
                began: 0,
                device: 0,
                // Growth is unknown before the first window.
                data: u64::MAX,
                samples: Samples {
                    pages: 0,
                    fast: Cost { bytes: 0, ticks: 0 },
                    dense: Cost { bytes: 0, ticks: 0 },
                },
                left: 0,
            }),
            phase: AtomicU32::new(Phase::Fast as u32),
            recompresses: AtomicBool::new(false),
            sweep: Lock::new(RecompressSweep::new()),
        }
    }

    /// Whether what the fast codec made is to be compressed again before it is written back.
    pub(crate) fn recompresses(&self) -> bool {
        self.recompresses.load(Relaxed)
    }

    /// The sweep by which that is done.
    pub(crate) const fn sweep(&self) -> &Lock<RecompressSweep> {
        &self.sweep
    }

    /// Whether pages are to be stored with the denser codec.
    #[inline]
    pub(crate) fn is_denser(&self) -> bool {
        self.is(Phase::Denser)
    }

    /// The denser codec, while one is considered.
    pub(crate) fn denser_codec(&self, knobs: &Knobs) -> Option<Codec> {
        let asked = !self.is(Phase::Fast) && knobs.compressor.load(Relaxed) == CODEC_AUTO;
        asked.then(|| knobs.denser_codec())
    }

    /// The current window; `None` if another thread holds it.
    pub(crate) fn try_watch(&self) -> Option<LockGuard<'_, Watch>> {
        self.watch.try_lock()
    }

    /// Pages were evicted, and the pool has `pool` pages: judges the window, if that was its end.
    pub(crate) fn watch_evictions(&self, account: &Account, pages: &Pages, pool: u64) {
        let (knobs, counters) = (account.knobs(), account.counters());
        if knobs.compressor.load(Relaxed) != CODEC_AUTO {
            return;
        }
        let Some(mut watch) = self.try_watch() else {
            return;
        };
        let limit = account.charge().limit();
        let evicted = pages.clock().pages_since(watch.began, limit);
        if evicted < limit / WINDOWS_PER_TURNOVER {
            return;
        }
        let max_pool = percent(limit, &knobs.max_pool_percent);
        let [device, stored, out] = [
            &counters.swap_ticks,
            &counters.stored_pages,
            &counters.swapped_pages,
        ]
        .map(|cell| cell.load(Relaxed));
        let data = pages.nr_resident() + stored + out;
        let window = WindowStats {
            pages: evicted,
            device: device.saturating_sub(watch.device),
            pool,
            max_pool,
            stored,
            out,
            grown: data.saturating_sub(watch.data),
            full: pool > max_pool + limit / FULL_PART,
            samples: watch.samples,
        };
        watch.rule = watch.rule.next(&window);
        watch.samples.fade();
        watch.began = pages.clock().reading();
        watch.device = device;
        watch.data = data;
        // Each window has a sample, however short the window.
        watch.left = 0;
        self.phase.store(watch.rule.phase as u32, Relaxed);
        let recompresses = watch.rule.phase == Phase::Denser && window.pays_to_recompress();
        self.recompresses.store(recompresses, Relaxed);
    }

    fn is(&self, phase: Phase) -> bool {
        self.phase.load(Relaxed) == phase as u32
    }
}

impl Watch {
    /// `nr` pages are stored: whether one of them is to be a sample.
    pub(crate) fn is_due(&mut self, nr: usize) -> bool {
        let left = self.left.checked_sub(nr);
        if let Some(left) = left {
            self.left = left;
        }
        left.is_none()
    }

    /// A sample of `nr` pages is taken.
    pub(crate) const fn took(&mut self, nr: usize, denser: bool) {
        self.left = if denser {
            SAMPLE_INTERVAL_PAGES_DENSER
        } else {
            SAMPLE_INTERVAL_PAGES
        } * nr;
    }

    /// What both codecs made of a sample of `pages`.
    pub(crate) fn add(&mut self, pages: u64, fast: Cost, dense: Cost) {
        // One that took longer was interrupted.
        if fast.ticks.max(dense.ticks) < MAX_SAMPLE_TICKS * pages {
            self.samples.add(pages, fast, dense);
        }
    }
}

impl Samples {
    /// A window has ended.
    fn fade(&mut self) {
        let Samples { pages, fast, dense } = self;
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

    fn add(&mut self, pages: u64, fast: Cost, dense: Cost) {
        self.pages += pages;
        for (sum, made) in [(&mut self.fast, fast), (&mut self.dense, dense)] {
            sum.bytes += made.bytes;
            sum.ticks += made.ticks;
        }
    }
}

#[cfg(test)]
mod tests;
