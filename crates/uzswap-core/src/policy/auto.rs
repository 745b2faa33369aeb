//! *What*: `--compressor auto`: pages are stored with lz4, and with a denser codec while that saves more time than it takes.
//!
//! A denser codec saves nothing as long as what it frees would only be room to spare. It is looked at when pages wait for a
//! swap device, when the pool cannot be kept below what it may take, and when the program's data grow so that it soon will not: what the fast
//! codec made is too large for as long as it is not used, and whatever leaves the pool for that is read again at many times the cost. From then on one in [`EVERY`] pages,
//! or in [`EVERY_DENSER`] where that codec is in use,
//! is compressed and decoded by both codecs and both times are taken. At the end of each [window](WINDOWS) the
//! [rule](Rule::next) compares: the denser codec costs each page the difference of the codecs' times, and saves so much of the time that was spent on
//! the device as it makes fewer pages be there.
//!
//! *Invariants*: while nothing is looked at, a folio that is stored pays for one relaxed load. What a sample made is thrown away. A slot has
//! the denser compressor only when the memory to decode what it makes is charged (see `compressor`).
//! *Locking*: slot → [`Watch`] (tried, but by nobody waited for). *Context*: signal, worker.

use crate::account::Account;
use crate::page::{PAGE_SIZE, Pages, wide};
use crate::policy::recompress::RecompressSweep;
use uzswap_compress::Codec;
use uzswap_group::knobs::{CODEC_AUTO, Knobs, percent};
use uzswap_sync::lock::{Lock, LockGuard};
use uzswap_sync::primitive::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Windows in the time in which as many pages are evicted as the limit has.
const WINDOWS: u64 = 16;

/// Pages stored for each that is a sample: while it is in question, and once it is known what comes of it, when samples would take a
/// twenty-fifth of the time.
const EVERY: usize = 32;

const EVERY_DENSER: usize = 128;

/// The denser codec must save this part of what the fast one takes.
const MIN_GAIN_PART: u64 = 32;

/// It must save this part of it for what the fast codec made before to be [made anew](super::recompress).
const MIN_GAIN_TO_RECOMPRESS: u64 = 5;

/// Everything nearly fits the pool if that is too small by this part of it.
const NEARLY_FITS_PART: u64 = 8;

/// Windows in a row in which it was not worth it before the denser codec is left.
const PATIENCE: u32 = 8;

/// How far above what it may take the pool is when nothing brings it down, as a part of the limit.
const FULL_PART: u64 = 32;

/// Assumed cost of a device read, in TSC ticks, until one has been measured. Errs low: a fast NVMe disk.
const ASSUMED_READ_TICKS: u64 = 1 << 16;

/// Windows that it looks ahead, while the program's data grow.
const WINDOWS_AHEAD: u64 = 16;

/// Where it is no more than this part of what is stored that is on the device, it does not tell what will be: two threads that wait for
/// each other's room write a run now and then, with the pool nearly empty.
const HARDLY_ANY_PART: u64 = 64;

/// Part of the samples that is forgotten with each window. A window has some fifty pages, whose mean is an eighth off now and then.
const FADE_PART: u64 = 8;

/// Ticks a page that a sample takes at most: one that took longer was interrupted.
const MAX_TICKS: u64 = 1 << 17;

/// Whether a denser codec is in question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Phase {
    /// No: everything fits.
    Fast,
    /// It may be, which samples will tell.
    Looking,
    /// It is what pages are stored with.
    Denser,
}

/// What both codecs made of some pages, those of the last windows counting most.
#[derive(Clone, Copy, Debug, Default)]
struct Samples {
    pages: u64,
    fast: Trial,
    dense: Trial,
}

/// What one codec made of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trial {
    pub bytes: u64,
    /// To compress and to decode.
    pub ticks: u64,
}

/// What was seen in a window.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Pages that were evicted.
    pages: u64,
    /// Ticks that reading from the device and writing to it took.
    device: u64,
    /// At its end: pages that the pool takes, and may take.
    pool: u64,
    max_pool: u64,
    /// Pages that are stored in it, and on the device.
    stored: u64,
    out: u64,
    /// Pages that the program has more than at its beginning, wherever they are.
    grown: u64,
    /// The pool is above that, and nothing brings it down.
    full: bool,
    samples: Samples,
}

impl Seen {
    /// Whether it is worth having what the fast codec made compressed twice: if that is much smaller, and everything would (nearly) fit
    /// then. Where it does not, what is left of it goes by itself in the time in which as much is read and evicted again.
    fn is_worth_twice(&self) -> bool {
        let Samples { pages, fast, dense } = self.samples;
        let needed = u128::from(self.stored + self.out) * u128::from(dense.bytes);
        let room = u128::from(self.max_pool + self.max_pool / NEARLY_FITS_PART)
            * u128::from(pages * wide(PAGE_SIZE));
        fast.bytes.saturating_sub(dense.bytes) > fast.bytes / MIN_GAIN_TO_RECOMPRESS
            && needed <= room
    }

    fn is_tight(&self) -> bool {
        self.full || self.device > 0 || self.is_coming()
    }

    /// Whether what the program has more and more of will soon fill the pool, though hardly anything had to leave it yet.
    fn is_coming(&self) -> bool {
        let [grown, pool, stored] = [self.grown, self.pool, self.stored].map(u128::from);
        // What the pool takes is taken from what is resident, which therefore goes there as well.
        let more = grown * u128::from(WINDOWS_AHEAD) * pool / stored.saturating_sub(pool).max(1);
        let hardly_any = self.out <= self.stored / HARDLY_ANY_PART;
        hardly_any && more > 0 && pool + more > self.max_pool.into()
    }

    /// Whether the denser codec is worth what it takes; `in_use`: and this is what was seen with it.
    fn is_worth(&self, in_use: bool) -> bool {
        let Samples { pages, fast, dense } = self.samples;
        let gain = fast.bytes.saturating_sub(dense.bytes);
        if pages == 0 || gain == 0 || gain < fast.bytes / MIN_GAIN_PART {
            return false;
        }
        let part = |of: u64, nr: u64, whole: u64| {
            u128::from(of) * u128::from(nr) / u128::from(whole.max(1))
        };
        // Pages that are not on the device, or would not be, thanks to the denser codec.
        let fewer = if in_use {
            let by_fast = part(self.stored, fast.bytes, pages * wide(PAGE_SIZE));
            let over = by_fast.saturating_sub(self.max_pool.into());
            u128::from(self.stored) * over / by_fast.max(1)
        } else {
            part(self.stored, gain, dense.bytes).min(self.out.into())
        };
        let costs = part(self.pages, dense.ticks.saturating_sub(fast.ticks), pages);
        // As many as are there now would be asked for as often as those; of more nobody knows, so like what is stored.
        let known = fewer.min(self.out.into());
        let saves = u128::from(self.device) * known / u128::from(self.out.max(1))
            + u128::from(self.pages * ASSUMED_READ_TICKS) * (fewer - known)
                / u128::from(self.stored.max(1));
        self.full || saves > costs || self.is_coming()
    }
}

/// The state that windows are judged from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    phase: Phase,
    /// Windows that may still not be worth it.
    patience: u32,
}

impl Rule {
    const BEGIN: Rule = Rule {
        phase: Phase::Fast,
        patience: 0,
    };

    /// After one more window.
    fn next(self, seen: &Seen) -> Rule {
        let denser = self.phase == Phase::Denser;
        let (phase, patience) = match self.phase {
            Phase::Fast if !seen.is_tight() => (Phase::Fast, 0),
            Phase::Fast => (Phase::Looking, 0),
            // What was only to be feared needs no patience.
            _ if seen.is_worth(denser) => (Phase::Denser, if seen.out > 0 { PATIENCE } else { 1 }),
            Phase::Denser if self.patience > 1 => (Phase::Denser, self.patience - 1),
            _ if seen.is_tight() => (Phase::Looking, 0),
            _ => (Phase::Fast, 0),
        };
        Rule { phase, patience }
    }
}

/// What is known of the current window.
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

/// What `auto` keeps in mind.
#[derive(Debug)]
pub(crate) struct Auto {
    watch: Lock<Watch>,
    /// The phase, for those who do not hold the watch.
    phase: AtomicU32,
    /// What the fast codec made is to be made anew.
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
                // Before the first window nobody knows whether they grow.
                data: u64::MAX,
                samples: Samples {
                    pages: 0,
                    fast: Trial { bytes: 0, ticks: 0 },
                    dense: Trial { bytes: 0, ticks: 0 },
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

    /// The denser codec that is in question, for blocks as they are asked for.
    pub(crate) fn denser_codec(&self, knobs: &Knobs) -> Option<Codec> {
        let asked = !self.is(Phase::Fast) && knobs.compressor.load(Relaxed) == CODEC_AUTO;
        asked.then(|| knobs.denser_codec())
    }

    /// What is known of the current window, unless another thread is at it.
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
        if evicted < limit / WINDOWS {
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
        let seen = Seen {
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
        watch.rule = watch.rule.next(&seen);
        watch.samples.fade();
        watch.began = pages.clock().reading();
        watch.device = device;
        watch.data = data;
        // Each window has a sample, however short it is.
        watch.left = 0;
        self.phase.store(watch.rule.phase as u32, Relaxed);
        let recompresses = watch.rule.phase == Phase::Denser && seen.is_worth_twice();
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
        self.left = if denser { EVERY_DENSER } else { EVERY } * nr;
    }

    /// What both codecs made of a sample of `pages`.
    pub(crate) fn add(&mut self, pages: u64, fast: Trial, dense: Trial) {
        // One that took longer was interrupted.
        if fast.ticks.max(dense.ticks) < MAX_TICKS * pages {
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

    fn add(&mut self, pages: u64, fast: Trial, dense: Trial) {
        self.pages += pages;
        for (sum, made) in [(&mut self.fast, fast), (&mut self.dense, dense)] {
            sum.bytes += made.bytes;
            sum.ticks += made.ticks;
        }
    }
}

#[cfg(test)]
mod tests;
