//! How a process uses its memory: how much of it is touched within windows of time.
//!
//! *What*: a window starts when the referenced bits are cleared. Readings in it, each half as old
//! again as the one before, show how the touched memory grows: its start says something about small
//! capacities, its end about large ones. It ends when all memory was touched, or when it is old.
//! *Invariants*: reading takes at most a small part of the time, however much memory there is: each
//! window is followed by a pause.
//! *Locking*: none.

use std::io;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::process::{self, Memory};

/// Share of the memory that counts as all of it: some is never touched again.
pub const NEARLY_ALL_SHARE: f64 = 0.98;
/// Length of a window with its pause, at least, in multiples of the time that reading took.
const MIN_PAUSE_FACTOR: u32 = 8;
/// Age of the first reading, and the factor from one reading's age to the next.
const FIRST_AGE: Duration = Duration::from_millis(20);
const AGE_FACTOR: f64 = 1.5;
/// Age below which a window ends only if all memory was touched.
const MIN_AGE: Duration = Duration::from_secs(1);

/// A reading.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// Seconds since the watch began.
    pub at_s: f64,
    /// Anonymous pages in memory.
    pub anon: u64,
    /// Those touched since the window started.
    pub touched: u64,
}

/// The readings between two clearings of the referenced bits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Window {
    /// At least the one that starts it, when nothing is touched.
    pub readings: Vec<Reading>,
    /// Whether it ended before it was old, while the process went on.
    pub early: bool,
}

/// What was observed of one process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct History {
    /// Its pid.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its windows, in order.
    pub windows: Vec<Window>,
    /// Peak of anonymous memory, pages.
    pub peak: u64,
    /// Largest share of huge pages.
    pub huge: f64,
    /// Peak of pages in the kernel's swap.
    pub swapped: u64,
    /// Processor time while it was watched, seconds.
    pub cpu_s: f64,
    /// Longest time that reading or clearing the bits took, seconds.
    pub longest_s: f64,
    /// Whether the referenced bits can be cleared; if not, the windows mean nothing.
    pub has_referenced_bits: bool,
}

impl History {
    /// The intervals between readings, pauses after windows included: the window, the anonymous
    /// pages at the end of the interval, its seconds. So a peak counts for as long as it lasted.
    pub fn slices(&self) -> impl Iterator<Item = (&Window, u64, f64)> {
        let nexts = self
            .windows
            .iter()
            .skip(1)
            .map(|window| window.readings.first());
        self.windows
            .iter()
            .zip(nexts.chain([None]))
            .flat_map(|(window, next)| {
                let ends = window.readings.iter().skip(1).chain(next);
                window
                    .readings
                    .iter()
                    .zip(ends)
                    .map(move |(begin, end)| (window, end.anon, end.at_s - begin.at_s))
            })
    }

    /// Time that it was watched, seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        let ends = self.windows.last().and_then(|w| w.readings.last());
        let begins = self.windows.first().and_then(|w| w.readings.first());
        ends.zip(begins)
            .map_or(0.0, |(end, begin)| end.at_s - begin.at_s)
    }
}

/// A watch over one process.
#[derive(Debug)]
pub struct Watch {
    history: History,
    begin: Instant,
    /// Processor time when the watch began.
    cpu_before: f64,
    next: Instant,
    /// Start of the window, processor time of the process then, and time spent reading since.
    began: Instant,
    cpu_at_begin: f64,
    reading: Duration,
    /// Whether a new window is due: there is none, the last one is over, or sampling touched the
    /// memory.
    over: bool,
}

impl Watch {
    /// Starts to watch `pid`; times of readings are since `zero`.
    #[must_use]
    pub fn new(pid: u32, zero: Instant) -> Self {
        Self {
            history: History {
                pid,
                has_referenced_bits: true,
                ..History::default()
            },
            begin: zero,
            cpu_before: process::cpu_seconds(pid).unwrap_or(0.0),
            next: zero,
            began: zero,
            cpu_at_begin: 0.0,
            reading: Duration::ZERO,
            over: true,
        }
    }

    /// What was observed so far.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// What was observed.
    #[must_use]
    pub fn into_history(self) -> History {
        self.history
    }

    /// Whether it pauses between two windows, so that sampling the memory spoils nothing.
    #[must_use]
    pub fn is_pausing(&self) -> bool {
        self.over
    }

    /// When the next reading is due.
    #[must_use]
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Ends the window because the memory was sampled, which touches it.
    pub fn disturb(&mut self) {
        let ends = !std::mem::replace(&mut self.over, true);
        if let Some(window) = self.history.windows.last_mut().filter(|_| ends) {
            window.early = self.began.elapsed() < MIN_AGE;
        }
    }

    /// The latest reading.
    #[must_use]
    pub fn latest(&self) -> Option<Reading> {
        self.history.windows.last()?.readings.last().copied()
    }

    /// Takes a reading if one is due.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn tick(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if now < self.next {
            // A peak may occur in a pause.
            let anon = process::anonymous_pages(self.history.pid).unwrap_or(0);
            self.history.peak = self.history.peak.max(anon);
            return Ok(());
        }
        let before = process::own_cpu_time();
        let memory = process::memory(self.history.pid)?;
        self.note_duration(now);
        if memory.anon == 0 {
            // A zombie.
            return Err(io::ErrorKind::NotFound.into());
        }
        self.note(memory);
        if self.over {
            self.begin_window(memory.anon);
            self.next = self.began + FIRST_AGE;
        } else {
            self.read(memory, now);
            let age = self.began.elapsed();
            self.next = self.began + age.mul_f64(AGE_FACTOR).max(age + FIRST_AGE);
        }
        self.reading += process::own_cpu_time().saturating_sub(before);
        if self.over {
            // The pause.
            self.next = self.next.max(self.began + self.reading * MIN_PAUSE_FACTOR);
        }
        Ok(())
    }

    /// Notes that reading has taken the time since `begin`.
    fn note_duration(&mut self, begin: Instant) {
        self.history.longest_s = self.history.longest_s.max(begin.elapsed().as_secs_f64());
    }

    fn note(&mut self, memory: Memory) {
        let history = &mut self.history;
        // exec changes the name.
        history.name = process::name(history.pid);
        history.peak = history.peak.max(memory.anon);
        history.swapped = history.swapped.max(memory.swapped);
        history.huge = history
            .huge
            .max(memory.huge as f64 / memory.anon.max(1) as f64);
        if let Some(cpu) = process::cpu_seconds(history.pid) {
            history.cpu_s = cpu - self.cpu_before;
        }
    }

    fn read(&mut self, memory: Memory, now: Instant) {
        let Some(window) = self.history.windows.last_mut() else {
            return;
        };
        let at = now - self.begin;
        window.readings.push(Reading {
            at_s: at.as_secs_f64(),
            anon: memory.anon,
            touched: memory.touched,
        });
        window.early = memory.touched as f64 >= NEARLY_ALL_SHARE * memory.anon as f64;
        let spent = self.history.cpu_s - self.cpu_at_begin;
        self.over = window.early || is_old(at, now - self.began, spent);
    }

    fn begin_window(&mut self, anon: u64) {
        let now = Instant::now();
        if process::clear_referenced(self.history.pid).is_err() {
            self.history.has_referenced_bits = false;
        }
        self.note_duration(now);
        self.over = false;
        self.cpu_at_begin = self.history.cpu_s;
        self.began = Instant::now();
        self.reading = Duration::ZERO;
        self.history.windows.push(Window {
            readings: vec![Reading {
                at_s: (self.began - self.begin).as_secs_f64(),
                anon,
                touched: 0,
            }],
            early: false,
        });
    }
}

/// Whether a window is old: `at` is the time since the watch started, `age` that of the window, in
/// which the process used `spent` seconds of processor time. A process that gets less than half a
/// processor has up to four times as long, because it does little in a second.
fn is_old(at: Duration, age: Duration, spent: f64) -> bool {
    let old = (at / 4).clamp(MIN_AGE, Duration::from_secs(15));
    age >= old * 4 || (age >= old && spent >= age.as_secs_f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_lasts_longer_when_the_process_gets_little_done() {
        let s = Duration::from_secs;
        assert!(!is_old(s(2), Duration::from_millis(900), 0.9));
        assert!(is_old(s(2), s(1), 0.9));
        assert!(!is_old(s(2), s(1), 0.2) && !is_old(s(2), s(3), 0.9));
        assert!(
            is_old(s(2), s(4), 0.0),
            "an idle process has windows four times as long"
        );
        assert!(!is_old(s(40), s(9), 9.0) && is_old(s(40), s(10), 9.0));
        assert!(is_old(s(1000), s(15), 9.0) && is_old(s(1000), s(60), 0.0));
    }
}
