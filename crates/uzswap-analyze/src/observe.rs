//! Watching until there is enough to tell.
//!
//! *What*: one process for a time, or a command and all that comes from it until its end; samples of the memory of the largest
//! process, taken as it grows, since at the end nothing is left to look at.
//! *Invariants*: ^C ends the watch with what is known by then.
//! *Locking*: none.

use std::collections::BTreeMap;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Result;
use uzswap_corpus::interrupt;
use uzswap_corpus::progress::Progress;

use crate::contents::Sample;
use crate::process;
use crate::watch::{Life, Watch};
use crate::{MIB, PAGE};

/// Longest sleep: so much later at most a new child, or ^C, is noticed.
const PAUSE: Duration = Duration::from_millis(30);
/// Processes that never have more are left out, pages.
const SMALL: u64 = 1024;
/// A new sample is worth its time when there is so many times the memory; a window, when there is not yet so much more.
const GROWTH: f64 = 1.2;
const MUCH: f64 = 1.5;

/// What was seen.
#[derive(Debug)]
pub struct Seen {
    /// The processes that had memory worth the name, or the largest one.
    pub lives: Vec<Life>,
    /// Of the largest one.
    pub sample: Option<Sample>,
    /// Seconds of watching.
    pub seconds: f64,
}

/// Watches process `pid` for a while, or until it ends.
#[must_use]
pub fn one(pid: u32, time: Duration) -> Seen {
    let mut eyes = Eyes::new(Some(time));
    while eyes.begin.elapsed() < time && !interrupt::happened() {
        if !eyes.look([pid]) {
            break;
        }
    }
    eyes.close()
}

/// Watches a command until it ends; ^C ends it, too.
///
/// # Errors
/// If it cannot be waited for.
pub fn command(child: &mut Child) -> Result<(Seen, ExitStatus)> {
    let mut eyes = Eyes::new(None);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if interrupt::happened() {
            end(child);
            break child.wait()?;
        }
        eyes.look(process::family(child.id()));
    };
    Ok((eyes.close(), status))
}

/// Ends a command as ^C does, and if that does not help, surely.
fn end(child: &mut Child) {
    // SAFETY: the child is not waited for yet, so the number is its own.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGINT) };
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(2) {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    let _ = child.kill();
}

struct Eyes {
    begin: Instant,
    /// How long it is going to be, if that is known.
    time: Option<Duration>,
    watches: BTreeMap<u32, Watch>,
    sample: Option<(Sample, Instant)>,
    progress: Progress,
}

impl Eyes {
    fn new(time: Option<Duration>) -> Self {
        Self {
            begin: Instant::now(),
            time,
            watches: BTreeMap::new(),
            sample: None,
            progress: Progress::endless(),
        }
    }

    /// Looks at those of `pids` that are due, then sleeps a little; false if none of them is there any more.
    fn look(&mut self, pids: impl IntoIterator<Item = u32>) -> bool {
        let mut next = Instant::now() + PAUSE;
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
        self.tell(pid);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        true
    }

    /// Samples as memory grows, and near its peak now and then.
    fn sample_if_due(&mut self, pid: u32, anon: u64) {
        let rests = self.watches.get(&pid).is_some_and(Watch::rests);
        let due = match &self.sample {
            None => anon > 64,
            Some((before, at)) => {
                let pause = Duration::from_secs(1).max(self.begin.elapsed() / 3);
                let n = anon as f64;
                let had = before.anon as f64;
                n >= had * MUCH
                    || (rests && n >= had * GROWTH)
                    || (rests && n >= had * 0.95 && at.elapsed() >= pause)
            }
        };
        if !due {
            return;
        }
        // One that cannot be taken, because the process is about to end, is no loss: there is the last one.
        if let Ok(sample) = Sample::take(pid, anon)
            && !sample.is_empty()
        {
            self.sample = Some((sample, Instant::now()));
        }
        if let Some(watch) = self.watches.get_mut(&pid) {
            watch.disturb();
        }
    }

    fn tell(&self, pid: u32) {
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
            watch.life().name,
            latest.map_or(0.0, |reading| mib(reading.anon)),
        ));
    }

    fn close(self) -> Seen {
        let mut lives: Vec<Life> = self.watches.into_values().map(Watch::into_life).collect();
        lives.sort_by_key(|life| std::cmp::Reverse(life.peak));
        let worth = lives.iter().filter(|life| life.peak >= SMALL).count();
        lives.truncate(worth.max(1));
        Seen {
            lives,
            sample: self.sample.map(|(sample, _)| sample),
            seconds: self.begin.elapsed().as_secs_f64(),
        }
    }
}
