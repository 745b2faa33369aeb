//! How a process uses its memory: how much of it was touched within windows of time.
//!
//! *What*: a window begins when the marks of what was touched are cleared; readings within it, at ages that grow by half each, tell how what
//! was touched grows: its beginning tells about small capacities, its end about large ones. It ends when all was touched, or when it is old.
//! *Invariants*: reading takes at most a small part of the time, however much memory there is to walk over: after a window there is a rest.
//! *Locking*: none.

use std::io;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::process::{self, Memory};

/// The part of the memory that counts as all of it: some is never touched again.
pub const ALL: f64 = 0.98;
/// A window with its rest takes at least so many times what reading took.
const SPARING: u32 = 8;
/// Age of the first reading, and how much older each is than the one before.
const FIRST: Duration = Duration::from_millis(20);
const OLDER: f64 = 1.5;
/// No window that is younger ends, but one that can tell no more.
const YOUNG: Duration = Duration::from_secs(1);

/// What was seen at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// Seconds since the watch began.
    pub at_s: f64,
    /// Anonymous pages in memory.
    pub anon: u64,
    /// Of these touched since the window began.
    pub touched: u64,
}

/// Readings between two times that the marks were cleared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Window {
    /// At least the one that began it, at which nothing was touched.
    pub readings: Vec<Reading>,
    /// Whether it ended before it was old, and the process lived on.
    pub early: bool,
}

/// What is known about one process.
#[derive(Clone, Debug, Serialize)]
pub struct Life {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Windows in their order, one after the other.
    pub windows: Vec<Window>,
    /// Most anonymous memory, pages.
    pub peak: u64,
    /// Largest part of it that was huge pages.
    pub huge: f64,
    /// Pages on the kernel's swap, at most.
    pub swapped: u64,
    /// Processor time while it was watched, seconds.
    pub cpu_s: f64,
    /// Longest time that reading it or clearing its marks took, seconds.
    pub longest_s: f64,
    /// Whether the marks can be cleared: if not there are no windows.
    pub marks: bool,
}

impl Life {
    /// The times between readings, the rest after a window with it: the window, the anonymous pages at the end, seconds. A peak within a window so
    /// counts for as long as it lasted.
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

    /// Seconds that it was watched.
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
    life: Life,
    begin: Instant,
    /// Processor time when the watch began.
    cpu_before: f64,
    next: Instant,
    /// When the window began, the processor time that the process had used then, and what reading took since.
    began: Instant,
    cpu_at_begin: f64,
    reading: Duration,
    /// Whether a new window is due: there is none, the last one is over, or somebody else touched the memory.
    over: bool,
}

impl Watch {
    /// Begins; `zero` is the moment that readings count from.
    #[must_use]
    pub fn new(pid: u32, zero: Instant) -> Self {
        Self {
            life: Life {
                pid,
                name: String::new(),
                windows: Vec::new(),
                peak: 0,
                huge: 0.0,
                swapped: 0,
                longest_s: 0.0,
                cpu_s: 0.0,
                marks: true,
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

    /// What is known so far.
    #[must_use]
    pub fn life(&self) -> &Life {
        &self.life
    }

    /// What was learned.
    #[must_use]
    pub fn into_life(self) -> Life {
        self.life
    }

    /// Whether it rests between two windows, so that nothing is lost by reading the memory.
    #[must_use]
    pub fn rests(&self) -> bool {
        self.over
    }

    /// When the next reading is due.
    #[must_use]
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Its memory was read: what is marked as touched from now on is not the program's doing alone. One window less, if it is young.
    pub fn disturb(&mut self) {
        let ends = !std::mem::replace(&mut self.over, true);
        if let Some(window) = self.life.windows.last_mut().filter(|_| ends) {
            window.early = self.began.elapsed() < YOUNG;
        }
    }

    /// The latest reading.
    #[must_use]
    pub fn latest(&self) -> Option<Reading> {
        self.life.windows.last()?.readings.last().copied()
    }

    /// Takes a reading if one is due.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn tick(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if now < self.next {
            // A peak may fall into a rest.
            let anon = process::anonymous_pages(self.life.pid).unwrap_or(0);
            self.life.peak = self.life.peak.max(anon);
            return Ok(());
        }
        let before = process::own_cpu_time();
        let memory = process::memory(self.life.pid)?;
        self.looked(now);
        if memory.anon == 0 {
            // Ended, but not waited for yet.
            return Err(io::ErrorKind::NotFound.into());
        }
        self.note(memory);
        if self.over {
            self.begin_window(memory.anon);
            self.next = self.began + FIRST;
        } else {
            self.read(memory, now);
            let age = self.began.elapsed();
            self.next = self.began + age.mul_f64(OLDER).max(age + FIRST);
        }
        self.reading += process::own_cpu_time().saturating_sub(before);
        if self.over {
            // The rest.
            self.next = self.next.max(self.began + self.reading * SPARING);
        }
        Ok(())
    }

    /// It was looked at since `begin`.
    fn looked(&mut self, begin: Instant) {
        self.life.longest_s = self.life.longest_s.max(begin.elapsed().as_secs_f64());
    }

    fn note(&mut self, memory: Memory) {
        let life = &mut self.life;
        // After exec it is called something else.
        life.name = process::name(life.pid);
        life.peak = life.peak.max(memory.anon);
        life.swapped = life.swapped.max(memory.swapped);
        life.huge = life
            .huge
            .max(memory.huge as f64 / memory.anon.max(1) as f64);
        if let Some(cpu) = process::cpu_seconds(life.pid) {
            life.cpu_s = cpu - self.cpu_before;
        }
    }

    fn read(&mut self, memory: Memory, now: Instant) {
        let Some(window) = self.life.windows.last_mut() else {
            return;
        };
        let at = now - self.begin;
        window.readings.push(Reading {
            at_s: at.as_secs_f64(),
            anon: memory.anon,
            touched: memory.touched,
        });
        window.early = memory.touched as f64 >= ALL * memory.anon as f64;
        let spent = self.life.cpu_s - self.cpu_at_begin;
        self.over = window.early || is_old(at, now - self.began, spent);
    }

    fn begin_window(&mut self, anon: u64) {
        let now = Instant::now();
        if process::clear_touched(self.life.pid).is_err() {
            self.life.marks = false;
        }
        self.looked(now);
        self.over = false;
        self.cpu_at_begin = self.life.cpu_s;
        self.began = Instant::now();
        self.reading = Duration::ZERO;
        self.life.windows.push(Window {
            readings: vec![Reading {
                at_s: (self.began - self.begin).as_secs_f64(),
                anon,
                touched: 0,
            }],
            early: false,
        });
    }
}

/// Whether a window has nothing more to tell that is worth waiting for: `at` since the watch began, it has lasted for `age`, in which the process
/// used `spent` seconds of processor time. One that gets less than half a processor has up to four times as long: it does little in a second.
fn is_old(at: Duration, age: Duration, spent: f64) -> bool {
    let old = (at / 4).clamp(YOUNG, Duration::from_secs(15));
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
            "an idle one is looked at for four times as long"
        );
        assert!(!is_old(s(40), s(9), 9.0) && is_old(s(40), s(10), 9.0));
        assert!(is_old(s(1000), s(15), 9.0) && is_old(s(1000), s(60), 0.0));
    }
}
