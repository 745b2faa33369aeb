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
use crate::random::Random;

/// Which of its runs a thread frees next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frees {
    /// The oldest.
    Oldest,
    /// A random one.
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

/// A setting.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub(super) threads: usize,
    pub(super) order: u8,
    pub(super) frees: Frees,
    /// Percent of the device.
    pub(super) in_use: usize,
}

impl Setting {
    /// Number of runs in use on a device of `nr_slots`.
    pub(super) fn nr_held(&self, nr_slots: u32) -> usize {
        let nr_runs = nr_slots as usize >> self.order;
        nr_runs - nr_runs * (100 - self.in_use) / 100
    }
}

impl fmt::Display for Setting {
    /// The setting without its order, which the figures name.
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

/// The runs of a thread, by their first slots.
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

    /// Frees and allocates until `stop`; returns how often, or `None` if no run was found just
    /// after one was freed.
    fn replace(
        &mut self,
        device: &dyn Allocator,
        order: u8,
        frees: Frees,
        stop: &AtomicBool,
    ) -> Option<u64> {
        let (mut nr, mut next, mut cpu) = (0, self.next(frees), 0);
        while !stop.load(Ordering::Relaxed) {
            // Choosing the next one is not measured: it is prefetched.
            let victim = std::mem::replace(&mut next, self.next(frees));
            prefetch(&raw const self.runs[next] as usize, 4);
            // As often as a caller that allocates runs of many slots asks for its CPU.
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

/// A device that threads use.
pub(super) struct Workload<'d> {
    device: &'d dyn Allocator,
    order: u8,
    frees: Frees,
    holders: Vec<Holder>,
}

/// Pairs of a free and an allocation per second by all threads, and the share of the threads' time
/// spent waiting for locks.
pub(super) struct Speed {
    pub(super) pairs_s: f64,
    pub(super) waited: f64,
}

impl<'d> Workload<'d> {
    /// Fills the device, then frees random runs down to the setting's share in use.
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

    /// Makes all threads free and allocate for `duration`.
    pub(super) fn run(&mut self, duration: Duration) -> Result<Speed> {
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
            std::thread::sleep(duration);
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
