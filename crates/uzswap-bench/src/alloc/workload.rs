//! Threads that free and allocate.

use std::fmt;
use std::str::FromStr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use uzswap_slots::Run;
use uzswap_sys::arch::prefetch;
use uzswap_sys::thread::sched_getcpu;

use super::Allocator;
use super::random::Random;

/// Which of its runs a thread frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frees {
    /// In the order in which it got them.
    Oldest,
    /// Any.
    Random,
}

impl fmt::Display for Frees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Frees::Oldest => "oldest",
            Frees::Random => "random",
        })
    }
}

impl FromStr for Frees {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = [Frees::Oldest, Frees::Random]
            .into_iter()
            .find(|frees| frees.to_string() == text);
        named.ok_or_else(|| format!("'{text}' is neither 'oldest' nor 'random'"))
    }
}

/// What is done.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub(super) threads: usize,
    pub(super) order: u8,
    pub(super) frees: Frees,
    /// Percent.
    pub(super) in_use: usize,
}

impl Setting {
    /// Runs that are in use, of a device of `nr_slots`.
    pub(super) fn nr_held(&self, nr_slots: u32) -> usize {
        let nr_runs = nr_slots as usize >> self.order;
        nr_runs - nr_runs * (100 - self.in_use) / 100
    }
}

impl fmt::Display for Setting {
    /// Without the order.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting {
            threads,
            frees,
            in_use,
            ..
        } = self;
        let s = if *threads == 1 { "" } else { "s" };
        write!(f, "{threads} thread{s}, {frees}, {in_use} % in use")
    }
}

/// What a thread holds: the first slots of its runs.
struct Holder {
    runs: Vec<u32>,
    oldest: usize,
    random: Random,
}

impl Holder {
    fn new(thread: usize) -> Self {
        Self {
            runs: Vec::new(),
            oldest: 0,
            random: Random::new(thread as u64 + 1),
        }
    }

    fn next(&mut self, frees: Frees) -> usize {
        self.oldest = (self.oldest + 1) % self.runs.len();
        match frees {
            Frees::Oldest => self.oldest,
            Frees::Random => self.random.below(self.runs.len()),
        }
    }

    /// Frees and allocates until it is told to stop; how often, or `None` if there was no run though one was freed just now.
    fn replace(
        &mut self,
        device: &dyn Allocator,
        order: u8,
        frees: Frees,
        stop: &AtomicBool,
    ) -> Option<u64> {
        let (mut nr, mut next, mut cpu) = (0, self.next(frees), 0);
        while !stop.load(Ordering::Relaxed) {
            // The choice of the next one is not what is measured: it should be in the cache by then.
            let victim = std::mem::replace(&mut next, self.next(frees));
            prefetch(&raw const self.runs[next] as usize, 4);
            // As often as a caller that allocates runs of many slots asks for it.
            cpu = if nr % 64 == 0 {
                sched_getcpu() as usize
            } else {
                cpu
            };
            device.put(Run {
                first: self.runs[victim],
                nr: 1 << order,
            });
            self.runs[victim] = device.alloc(cpu, order)?.first;
            nr += 1;
        }
        Some(nr)
    }
}

/// A device in use by threads.
pub(super) struct Workload<'d> {
    device: &'d dyn Allocator,
    order: u8,
    frees: Frees,
    holders: Vec<Holder>,
}

/// Pairs of a free and an allocation per second by all threads, and the part of the threads' time spent waiting for locks.
pub(super) struct Speed {
    pub(super) pairs_s: f64,
    pub(super) waited: f64,
}

impl<'d> Workload<'d> {
    /// Fills the device, then frees runs anywhere until it is as full as it should be.
    pub(super) fn new(device: &'d dyn Allocator, setting: &Setting, nr_slots: u32) -> Result<Self> {
        let Setting {
            threads,
            order,
            frees,
            ..
        } = *setting;
        let mut holders: Vec<_> = (0..threads).map(Holder::new).collect();
        let nr_runs = nr_slots as usize >> order;
        for number in 0..nr_runs {
            let run = device
                .alloc(0, order)
                .context("no run of slots found where nothing is in use")?;
            holders[number % threads].runs.push(run.first);
        }
        for number in 0..nr_runs - setting.nr_held(nr_slots) {
            let holder = &mut holders[number % threads];
            let victim = holder.next(Frees::Random);
            device.put(Run {
                first: holder.runs.swap_remove(victim),
                nr: 1 << order,
            });
        }
        Ok(Self {
            device,
            order,
            frees,
            holders,
        })
    }

    /// All threads free and allocate for so long.
    pub(super) fn run(&mut self, lasts: Duration) -> Result<Speed> {
        let threads = self.holders.len();
        let (start, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
        let (device, order, frees) = (self.device, self.order, self.frees);
        let (pairs, took, waited) = std::thread::scope(|scope| {
            let replacing: Vec<_> = self
                .holders
                .iter_mut()
                .map(|holder| {
                    let (start, stop) = (&start, &stop);
                    scope.spawn(move || {
                        start.wait();
                        holder.replace(device, order, frees, stop)
                    })
                })
                .collect();
            start.wait();
            let (begun, before) = (Instant::now(), device.waited_ns());
            std::thread::sleep(lasts);
            stop.store(true, Ordering::Relaxed);
            let (took, waited) = (begun.elapsed(), device.waited_ns() - before);
            let pairs: Option<u64> = replacing
                .into_iter()
                .map(|thread| thread.join().ok().flatten())
                .sum();
            (pairs, took, waited)
        });
        let pairs = pairs.context("no run of slots found though one was freed just now")?;
        Ok(Speed {
            pairs_s: pairs as f64 / took.as_secs_f64(),
            waited: waited as f64 / (took.as_nanos() as f64 * threads as f64),
        })
    }
}
