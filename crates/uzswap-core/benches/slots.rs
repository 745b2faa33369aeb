//! The swap slot allocator against one lock around a linear scan: a full device on which each thread frees
//! one run and allocates another; and how often no run of 16 slots is found on a fragmented one.
//!
//! `cargo bench -p uzswap-core --bench slots`
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    reason = "benchmark arithmetic on small numbers"
)]

#[path = "../tests/slots_support/mod.rs"]
mod slots_support;

use slots_support::{Ground, Random, all_alive};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uzswap_core::lock::{Lock, LockGuard};
use uzswap_core::swap::{Owner, Run, Slots};

/// 4 GiB.
const NR_SLOTS: u32 = 1 << 20;
/// How much of the device is in use.
const FULL_PERCENT: u32 = 90;
const ROUND: Duration = Duration::from_millis(250);
const ROUNDS: usize = 3;
const ORDER_OF_64K: u8 = 4;

trait Allocator: Sync {
    fn alloc(&self, cpu: usize, order: u8) -> Option<Run>;
    fn put(&self, run: Run);
    /// Nanoseconds that all threads waited for locks.
    fn waited_ns(&self) -> u64;
}

/// Ours, as one process uses it.
struct Clusters<'m> {
    slots: Slots<'m>,
    owner: Owner,
}

impl Allocator for Clusters<'_> {
    fn alloc(&self, cpu: usize, order: u8) -> Option<Run> {
        const ONES: [u8; 512] = [1; 512];
        self.slots
            .alloc(self.owner, cpu, order, &ONES[..1 << order])
    }

    fn put(&self, run: Run) {
        self.slots.put(self.owner, run);
    }

    fn waited_ns(&self) -> u64 {
        let waits = self.slots.lock_waits();
        waits.cluster_ns + waits.device_ns
    }
}

/// A count a slot, and where the next search begins.
struct Map {
    counts: Vec<u8>,
    next: usize,
}

/// The baseline: one lock, and a search from where the last one ended.
struct OneLock {
    map: Lock<Map>,
    waited_ns: AtomicU64,
}

impl OneLock {
    fn lock(&self) -> LockGuard<'_, Map> {
        if let Some(map) = self.map.try_lock() {
            return map;
        }
        let start = Instant::now();
        let map = self.map.lock();
        let waited = start.elapsed().as_nanos() as u64;
        self.waited_ns.fetch_add(waited, Ordering::Relaxed);
        map
    }
}

impl Allocator for OneLock {
    fn alloc(&self, _cpu: usize, order: u8) -> Option<Run> {
        let (mut map, nr) = (self.lock(), 1 << order);
        let from = map.next.next_multiple_of(nr).min(map.counts.len());
        let is_free = |first: usize| {
            map.counts[first..first + nr]
                .iter()
                .all(|&count| count == 0)
        };
        let first = (from..map.counts.len())
            .step_by(nr)
            .find(|&first| is_free(first))
            .or_else(|| (0..from).step_by(nr).find(|&first| is_free(first)))?;
        map.counts[first..first + nr].fill(1);
        map.next = first + nr;
        Some(Run {
            first: first as u32,
            nr: nr as u16,
        })
    }

    fn put(&self, run: Run) {
        let mut map = self.lock();
        for slot in run.slots() {
            map.counts[slot as usize] -= 1;
        }
    }

    fn waited_ns(&self) -> u64 {
        self.waited_ns.load(Ordering::Relaxed)
    }
}

fn one_lock() -> OneLock {
    OneLock {
        map: Lock::new(Map {
            counts: vec![0; NR_SLOTS as usize],
            next: 0,
        }),
        waited_ns: AtomicU64::new(0),
    }
}

#[derive(Clone, Copy)]
enum Frees {
    Oldest,
    Random,
}

/// Pairs of a free and an allocation per second by all threads, and the share of the threads' time spent
/// waiting for locks.
fn replace(device: &dyn Allocator, threads: usize, order: u8, frees: Frees) -> (f64, f64) {
    let each = (NR_SLOTS >> order) as usize * FULL_PERCENT as usize / 100 / threads;
    let (start, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let (pairs, waited) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut took = Duration::ZERO;
    std::thread::scope(|scope| {
        for cpu in 0..threads {
            let (start, stop, pairs) = (&start, &stop, &pairs);
            scope.spawn(move || {
                let mut random = Random::new(cpu as u64 + 1);
                let mut held: Vec<Run> =
                    (0..each).filter_map(|_| device.alloc(cpu, order)).collect();
                start.wait();
                let (mut nr, mut oldest) = (0, 0);
                while !stop.load(Ordering::Relaxed) {
                    oldest = (oldest + 1) % held.len();
                    let victim = match frees {
                        Frees::Oldest => oldest,
                        Frees::Random => random.below(held.len() as u64) as usize,
                    };
                    device.put(held[victim]);
                    held[victim] = device.alloc(cpu, order).expect("a run was freed just now");
                    nr += 1;
                }
                pairs.fetch_add(nr, Ordering::Relaxed);
            });
        }
        start.wait();
        let (begun, before) = (Instant::now(), device.waited_ns());
        std::thread::sleep(ROUND);
        stop.store(true, Ordering::Relaxed);
        took = begun.elapsed();
        waited.store(device.waited_ns() - before, Ordering::Relaxed);
    });
    let rate = pairs.into_inner() as f64 / took.as_secs_f64();
    let share = waited.into_inner() as f64 / (took.as_nanos() as f64 * threads as f64);
    (rate, share)
}

fn fastest(mut round: impl FnMut() -> (f64, f64)) -> (f64, f64) {
    let rounds = (0..ROUNDS).map(|_| round());
    rounds
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .unwrap_or_default()
}

fn with_clusters<R>(f: impl FnOnce(&Clusters<'_>) -> R) -> R {
    let ground = Ground::new(NR_SLOTS);
    let slots = ground.slots(&all_alive);
    let owner = slots.join(0);
    f(&Clusters { slots, owner })
}

/// One run of 16 slots, or what it fell apart into.
type Entry = Vec<Run>;

/// Half of what is stored is 64 KiB, half 4 KiB, freed at random; how often the former finds no run.
fn fallback_rate(device: &dyn Allocator, full_percent: u64) -> f64 {
    let mut random = Random::new(11);
    let mut held: Vec<Entry> = Vec::new();
    let (mut used, mut asked, mut fell_back) = (0, 0_u32, 0_u32);
    let target = u64::from(NR_SLOTS) * full_percent / 100;
    for step in 0..2_000_000 {
        while used + 16 > target {
            let victim = random.below(held.len() as u64) as usize;
            for run in held.swap_remove(victim) {
                used -= u64::from(run.nr);
                device.put(run);
            }
        }
        // Half of the bytes: one of 16 slots to 16 of one.
        let large = random.below(17) == 0;
        let mut left: u32 = if large { 16 } else { 1 };
        let mut order = left.ilog2() as u8;
        let measured = large && step > 500_000;
        asked += u32::from(measured);
        let mut entry = Entry::new();
        while left > 0 {
            match device.alloc(step % 4, order) {
                Some(run) => {
                    left -= u32::from(run.nr);
                    used += u64::from(run.nr);
                    entry.push(run);
                }
                None if order == 0 => break,
                None => {
                    fell_back += u32::from(measured && order == ORDER_OF_64K);
                    order -= 1;
                }
            }
            while left > 0 && 1 << order > left {
                order -= 1;
            }
        }
        held.push(entry);
    }
    f64::from(fell_back) / f64::from(asked.max(1)) * 100.0
}

fn main() {
    println!(
        "{NR_SLOTS} slots, {FULL_PERCENT} % in use; pairs of free and alloc, best of {ROUNDS}"
    );
    println!("threads order frees    clusters M/s  lock wait   one lock M/s  lock wait   ratio");
    for threads in [1, 2, 8, 32] {
        for order in [0, 4, 9] {
            for (name, frees) in [("oldest", Frees::Oldest), ("random", Frees::Random)] {
                let ours =
                    fastest(|| with_clusters(|device| replace(device, threads, order, frees)));
                let scan = fastest(|| replace(&one_lock(), threads, order, frees));
                println!(
                    "{threads:>7} {order:>5} {name:>6} {:>13.3} {:>9.1}% {:>14.3} {:>9.1}% {:>6.2}x",
                    ours.0 / 1e6,
                    ours.1 * 100.0,
                    scan.0 / 1e6,
                    scan.1 * 100.0,
                    ours.0 / scan.0
                );
            }
        }
    }
    println!("64 KiB runs that were not found, half of the bytes being single slots:");
    for full_percent in [70, 80, 90] {
        let ours = with_clusters(|device| fallback_rate(device, full_percent));
        let scan = fallback_rate(&one_lock(), full_percent);
        println!("  {full_percent} % in use: clusters {ours:.2} %, one lock {scan:.2} %");
    }
}
