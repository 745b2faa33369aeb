//! Watching processes until enough is known.
//!
//! *What*: one process for a time, or a command and its descendants until its end; with samples of
//! the memory of the largest process, taken as it grows, because nothing is left at the end.
//! *Invariants*: ^C ends the watch with what is known by then.
//! *Locking*: none.

use std::collections::BTreeMap;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Result;
use uzswap_corpus::interrupt;
use uzswap_corpus::process::descendants;
use uzswap_corpus::progress::Progress;

use crate::contents::Sample;
use crate::watch::{History, Watch};
use crate::{MIB, PAGE};

/// Longest sleep, and so the delay until a new child or ^C is noticed.
const MAX_SLEEP: Duration = Duration::from_millis(30);
/// Peak below which a process is left out, pages.
const MIN_PEAK_PAGES: u64 = 1024;
/// Growth since the last sample after which a new one is taken: between two windows, and within a
/// window, which that ends.
const GROWTH_BETWEEN_WINDOWS: f64 = 1.2;
const GROWTH_WITHIN_WINDOW: f64 = 1.5;

/// What was observed.
#[derive(Debug)]
pub struct Observed {
    /// The processes with enough memory, or the largest one, by falling peak.
    pub histories: Vec<History>,
    /// A sample of the largest one.
    pub sample: Option<Sample>,
    /// Time of the watch, seconds.
    pub seconds: f64,
}

/// Watches process `pid` for `time`, or until it ends.
#[must_use]
pub fn one(pid: u32, time: Duration) -> Observed {
    let mut observer = Observer::new(Some(time));
    while observer.begin.elapsed() < time && !interrupt::happened() {
        if !observer.poll([pid]) {
            break;
        }
    }
    observer.finish()
}

/// Watches a command until it ends; ^C ends the command.
///
/// # Errors
/// If it cannot be waited for.
pub fn command(child: &mut Child) -> Result<(Observed, ExitStatus)> {
    let mut observer = Observer::new(None);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if interrupt::happened() {
            end(child);
            break child.wait()?;
        }
        observer.poll(descendants(child.id()));
    };
    Ok((observer.finish(), status))
}

/// Ends a command by SIGINT, and if that does not help, by SIGKILL.
fn end(child: &mut Child) {
    // SAFETY: the child is not waited for yet, so the number is its own.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGINT) };
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(2) {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(MAX_SLEEP);
    }
    let _ = child.kill();
}

struct Observer {
    begin: Instant,
    /// Length of the watch, if known.
    time: Option<Duration>,
    watches: BTreeMap<u32, Watch>,
    sample: Option<(Sample, Instant)>,
    progress: Progress,
}

impl Observer {
    fn new(time: Option<Duration>) -> Self {
        Self {
            begin: Instant::now(),
            time,
            watches: BTreeMap::new(),
            sample: None,
            progress: Progress::endless(),
        }
    }

    /// Reads those of `pids` that are due, then sleeps; false if none of them exists any more.
    fn poll(&mut self, pids: impl IntoIterator<Item = u32>) -> bool {
        let mut next = Instant::now() + MAX_SLEEP;
        let mut largest = None;
        for pid in pids {
            let watch = self
                .watches
                .entry(pid)
                .or_insert_with(|| Watch::new(pid, self.begin));
            if watch.tick().is_err() {
                continue;
            }
            next = next.min(watch.next());
            let anon = watch.latest().map_or(0, |reading| reading.anon);
            largest = largest.max(Some((anon, pid)));
        }
        let Some((anon, pid)) = largest else {
            return false;
        };
        self.sample_if_due(pid, anon);
        self.show(pid);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        true
    }

    /// Takes a sample as memory grows, and now and then near its peak.
    fn sample_if_due(&mut self, pid: u32, anon: u64) {
        let pausing = self.watches.get(&pid).is_some_and(Watch::is_pausing);
        let due = match &self.sample {
            None => anon > 64,
            Some((before, at)) => {
                let pause = Duration::from_secs(1).max(self.begin.elapsed() / 3);
                let n = anon as f64;
                let had = before.anon as f64;
                n >= had * GROWTH_WITHIN_WINDOW
                    || (pausing && n >= had * GROWTH_BETWEEN_WINDOWS)
                    || (pausing && n >= had * 0.95 && at.elapsed() >= pause)
            }
        };
        if !due {
            return;
        }
        // If that fails, because the process is about to end, the last sample stays.
        if let Ok(sample) = Sample::take(pid, anon)
            && !sample.is_empty()
        {
            self.sample = Some((sample, Instant::now()));
        }
        if let Some(watch) = self.watches.get_mut(&pid) {
            watch.disturb();
        }
    }

    fn show(&self, pid: u32) {
        let Some(watch) = self.watches.get(&pid) else {
            return;
        };
        let latest = watch.latest();
        let mib = |pages: u64| (pages * PAGE) as f64 / MIB;
        self.progress.at(&format!(
            "{:.0} s{}  {} has {:.0} MiB; ^C ends this with what is known",
            self.begin.elapsed().as_secs_f64(),
            self.time.map_or_else(String::new, |time| format!(
                " of {:.0} s",
                time.as_secs_f64()
            )),
            watch.history().name,
            latest.map_or(0.0, |reading| mib(reading.anon)),
        ));
    }

    fn finish(self) -> Observed {
        let mut histories: Vec<History> = self
            .watches
            .into_values()
            .map(Watch::into_history)
            .collect();
        histories.sort_by_key(|history| std::cmp::Reverse(history.peak));
        let worth = histories
            .iter()
            .filter(|history| history.peak >= MIN_PEAK_PAGES)
            .count();
        histories.truncate(worth.max(1));
        Observed {
            histories,
            sample: self.sample.map(|(sample, _)| sample),
            seconds: self.begin.elapsed().as_secs_f64(),
        }
    }
}
