//! *What*: `--compressor auto`: stores with the codec by which the program loses the least time in
//! all: to compressing, to faults, which a denser pool makes fewer, and on swap devices.
//!
//! While everything fits, nothing is looked at. From the first eviction on some stored pages are
//! also compressed and decoded by lz4 and one denser codec, and both are timed ([`Samples`]). At
//! the end of each [window](WINDOWS_PER_TURNOVER) the [`Rule`] compares what the window would have
//! taken by each codec.
//!
//! *Invariants*: before the first eviction nothing is done. What a sample produces is discarded. An
//! operation has the denser compressor only when the memory to decode its objects is charged (see
//! [`crate::store::codec`]).
//! *Locking*: op → [`Watch`] (only tried). *Context*: signal, worker.

use crate::account::Account;
use crate::page::Pages;
use crate::policy::recompress::RecompressSweep;
use curve::Curve;
use rule::{Rule, WindowStats};
use samples::Samples;
use uzswap_compress::Codec;
use uzswap_group::knobs::{CODEC_AUTO, Knobs, percent};
use uzswap_sync::lock::{Lock, LockGuard};
use uzswap_sync::primitive::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

pub(crate) use choice::Choice;
pub(crate) use samples::Cost;

mod choice;
mod curve;
mod rule;
mod samples;

/// Windows in one turnover: in the time in which as many pages are evicted as the limit has.
const WINDOWS_PER_TURNOVER: u64 = 16;

/// The first window is a quarter as long: what is stored until it ends is stored by chance.
const FIRST_WINDOW_PART: u64 = 4;

/// Pages stored per sampled page, while samples are few.
const SAMPLE_INTERVAL_PAGES: u64 = 8;

/// Later at least so many. A sampled page takes about as long as two that are stored.
const SAMPLE_INTERVAL_PAGES_LATER: u64 = 64;

/// And later at most so many samples a window.
const SAMPLED_PAGES_PER_WINDOW: u64 = 32;

/// A pool that exceeds its limit by more than 1/32 of the RAM limit is full: nothing shrinks it.
const FULL_PART: u64 = 32;

/// What was counted when the window began.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// Pages that came back, and faults.
    loaded: u64,
    faults: u64,
    /// Ticks on the device.
    device: u64,
    /// Pages that the program had.
    data: u64,
}

/// The current window.
#[derive(Debug)]
pub(crate) struct Watch {
    rule: Rule,
    /// The eviction clock when it began.
    began: u64,
    counted: Counted,
    /// Faults by distance, of windows that have ended, and all that had been counted then.
    curve: Curve,
    seen: Curve,
    samples: Samples,
    /// Pages stored per sampled page.
    interval: u64,
    /// Pages to be stored before the next sample.
    left: u64,
}

/// State of `--compressor auto`.
#[derive(Debug)]
pub(crate) struct Auto {
    watch: Lock<Watch>,
    /// Something was evicted.
    looks: AtomicBool,
    /// What pages are stored with, for those who do not hold the watch.
    choice: AtomicU32,
    /// Objects of less dense codecs are to be recompressed: once there is time, and in place of
    /// writing them back.
    recompresses_ahead: AtomicBool,
    recompresses: AtomicBool,
    /// The eviction clock when the codec last became denser.
    denser_since: AtomicU64,
    sweep: Lock<RecompressSweep>,
}

impl Auto {
    /// Everything fits.
    pub(crate) const fn new() -> Self {
        Auto {
            watch: Lock::new(Watch {
                rule: Rule::BEGIN,
                began: 0,
                counted: Counted {
                    loaded: 0,
                    faults: 0,
                    device: 0,
                    // Growth is unknown before the first window.
                    data: u64::MAX,
                },
                curve: Curve::NONE,
                seen: Curve::NONE,
                samples: Samples::NONE,
                interval: SAMPLE_INTERVAL_PAGES,
                left: 0,
            }),
            looks: AtomicBool::new(false),
            choice: AtomicU32::new(Choice::FAST.bits()),
            recompresses_ahead: AtomicBool::new(false),
            recompresses: AtomicBool::new(false),
            denser_since: AtomicU64::new(0),
            sweep: Lock::new(RecompressSweep::new()),
        }
    }

    /// Whether what less dense codecs made is to be compressed again before it is written back.
    pub(crate) fn recompresses(&self) -> bool {
        self.recompresses.load(Relaxed)
    }

    /// Whether that is to be done ahead, by the reclaimer.
    pub(crate) fn recompresses_ahead(&self) -> bool {
        self.recompresses_ahead.load(Relaxed)
    }

    /// The eviction clock when the codec last became denser.
    pub(crate) fn denser_since(&self) -> u64 {
        self.denser_since.load(Relaxed)
    }

    /// The sweep by which that is done.
    pub(crate) const fn sweep(&self) -> &Lock<RecompressSweep> {
        &self.sweep
    }

    /// The denser codec that pages are to be stored with, if not with the fast one.
    #[inline]
    pub(crate) fn denser_codec(&self, knobs: &Knobs) -> Option<Codec> {
        let choice = Choice::from_bits(self.choice.load(Relaxed));
        knobs.denser_codecs().get(choice.denser()?).copied()
    }

    /// What operations are to have a compressor for beside the fast one, once something was
    /// evicted.
    pub(crate) fn denser_compressor(&self, knobs: &Knobs) -> Option<Codec> {
        let asked = self.looks.load(Relaxed) && knobs.compressor.load(Relaxed) == CODEC_AUTO;
        knobs.denser_codecs().last().filter(|_| asked).copied()
    }

    /// The current window; `None` if another thread holds it.
    pub(crate) fn try_watch(&self) -> Option<LockGuard<'_, Watch>> {
        self.watch.try_lock()
    }

    /// Pages were evicted, and the pool has `pool` pages: judges the window, if that was its end.
    /// `spills`: there is a device.
    pub(crate) fn watch_evictions(
        &self,
        account: &Account,
        pages: &Pages,
        pool: u64,
        spills: bool,
    ) {
        let (knobs, process) = (account.knobs(), account.process());
        if knobs.compressor.load(Relaxed) != CODEC_AUTO {
            return;
        }
        let Some(mut watch) = self.try_watch() else {
            return;
        };
        let limit = account.charge().limit();
        let evicted = pages.clock().pages_since(watch.began, limit);
        if evicted > 0 {
            self.looks.store(true, Relaxed);
        }
        let window = limit / WINDOWS_PER_TURNOVER;
        let first = watch.began == 0;
        if evicted < window / if first { FIRST_WINDOW_PART } else { 1 } {
            return;
        }
        let max_pool = percent(limit, &knobs.max_pool_percent);
        let counters = &process.counters;
        let [loaded, swapped_in, faults, device, stored, out] = [
            &counters.zswpin,
            &counters.pswpin,
            &counters.refaults,
            &counters.swap_ticks,
            &counters.stored_pages,
            &counters.swapped_pages,
        ]
        .map(|cell| cell.load(Relaxed));
        let resident = pages.nr_resident();
        let now = Counted {
            loaded: loaded + swapped_in,
            faults,
            device,
            data: resident + stored + out,
        };
        let then = core::mem::replace(&mut watch.counted, now);
        let watch = &mut *watch;
        watch.curve.take(&process.refault_distance, &mut watch.seen);
        let stats = WindowStats {
            evicted,
            loaded: now.loaded.saturating_sub(then.loaded),
            faults: now.faults.saturating_sub(then.faults),
            device: device.saturating_sub(then.device),
            pool,
            max_pool,
            resident,
            stored,
            out,
            grown: now.data.saturating_sub(then.data),
            full: pool > max_pool + limit / FULL_PART,
            spills,
            curve: &watch.curve,
            samples: &watch.samples,
        };
        let rule = watch.rule.next(&stats);
        let gains = rule.choice != Choice::FAST && stats.gains_by_recompressing(rule.choice);
        let recompresses = gains && stats.nearly_fits(rule.choice);
        let denser = rule.choice > watch.rule.choice;
        watch.rule = rule;
        watch.samples.fade();
        watch.began = pages.clock().reading();
        if denser {
            self.denser_since.store(watch.began, Relaxed);
        }
        let later = SAMPLE_INTERVAL_PAGES_LATER.max(window / SAMPLED_PAGES_PER_WINDOW);
        watch.interval = if watch.samples.are_few(knobs.denser_codecs().len()) {
            SAMPLE_INTERVAL_PAGES
        } else {
            later
        };
        // Each window has a sample, however short the window.
        watch.left = 0;
        self.choice.store(rule.choice.bits(), Relaxed);
        self.recompresses_ahead.store(gains, Relaxed);
        self.recompresses.store(recompresses, Relaxed);
    }
}

impl Watch {
    /// `nr` pages are stored: whether a sample of them is due.
    pub(crate) fn is_due(&mut self, nr: u64) -> bool {
        let left = self.left.checked_sub(nr);
        if let Some(left) = left {
            self.left = left;
        }
        left.is_none()
    }

    /// A sample of `nr` pages is taken: by which of `codecs` denser ones?
    pub(crate) fn take_turn(&mut self, nr: u64, codecs: usize) -> Choice {
        self.left = self.interval * nr;
        self.samples.take_turn(codecs)
    }

    /// What `pages` sampled pages took by the fast codec and by `choice`.
    pub(crate) fn add(&mut self, choice: Choice, pages: u64, fast: Cost, dense: Cost) {
        self.samples.add(choice, pages, fast, dense);
    }
}

#[cfg(test)]
mod tests;
