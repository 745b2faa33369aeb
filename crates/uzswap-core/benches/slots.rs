//! The swap slot allocator against one lock around a linear scan, on a device of 16 GiB that is nearly full: each
//! thread frees one run and allocates another; and how often no run of 16 slots is found on a fragmented
//! device.
//!
//!     cargo bench -p uzswap-core --bench slots [-- THREADS ORDER oldest|random]
//!
//! Two baselines, which both search from where the last search ended, and lie in memory that processes could share,
//! as ours does:
//! - *owners* keeps what ours keeps: how often each process counts a slot, so that a process can fork, and be
//!   killed, and beside it the total that it searches. It need not survive a death under its lock, as ours does.
//! - *map* is the kernel's swap map of old: totals alone. It knows no processes.
//!
//! A round of each takes turns with the others'; the ratios are medians of the rounds' ratios.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    reason = "benchmark arithmetic on small numbers"
)]

#[path = "../tests/slots_support/mod.rs"]
mod slots_support;

use slots_support::{Ground, Random, Shared, all_alive};
use std::fmt::{Display, Formatter};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uzswap_core::lock::{Lock, LockGuard};
use uzswap_core::swap::{Owner, Run, Slots};
use uzswap_sys::arch::prefetch;
use uzswap_sys::thread::sched_getcpu;

/// 16 GiB.
const NR_SLOTS: u32 = 1 << 22;
/// 4 GiB, so that what is on it is replaced several times.
const NR_FALLBACK_SLOTS: u32 = 1 << 20;
/// How much of the device is in use.
const FULL_PERCENT: usize = 95;
const ROUND: Duration = Duration::from_millis(250);
const ROUNDS: usize = 5;
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

impl<'m> Clusters<'m> {
    fn on(ground: &'m Ground) -> Self {
        let slots = ground.slots(&all_alive);
        let owner = slots.join(0);
        Self { slots, owner }
    }
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

/// What the baselines' lock guards.
struct Map {
    memory: Shared,
    /// Whether the process's own counts follow the totals.
    owners: bool,
    /// Where the next search begins.
    next: usize,
}

impl Map {
    /// The totals; the own counts.
    fn counts(&mut self) -> (&mut [u8], &mut [u8]) {
        let bytes = self.memory.bytes();
        bytes.split_at_mut(bytes.len() / 2)
    }

    fn alloc(&mut self, nr: usize) -> Option<usize> {
        let (owners, next) = (self.owners, self.next);
        let (totals, own) = self.counts();
        let from = next.next_multiple_of(nr).min(totals.len());
        let is_free = |first: &usize| totals[*first..first + nr].iter().all(|&count| count == 0);
        let first = (from..totals.len())
            .step_by(nr)
            .find(is_free)
            .or_else(|| (0..from).step_by(nr).find(is_free))?;
        totals[first..first + nr].fill(1);
        if owners {
            own[first..first + nr].fill(1);
        }
        self.next = first + nr;
        Some(first)
    }

    fn put(&mut self, slots: std::ops::Range<usize>) {
        let owners = self.owners;
        let (totals, own) = self.counts();
        let minus_one = |count: &mut u8| *count -= 1;
        if owners {
            own[slots.clone()].iter_mut().for_each(minus_one);
        }
        totals[slots].iter_mut().for_each(minus_one);
    }
}

/// A baseline.
struct OneLock {
    map: Lock<Map>,
    waited_ns: AtomicU64,
}

impl OneLock {
    fn new(nr_slots: u32, owners: bool) -> Self {
        let map = Map {
            memory: Shared::new(2 * nr_slots as usize),
            owners,
            next: 0,
        };
        Self {
            map: Lock::new(map),
            waited_ns: AtomicU64::new(0),
        }
    }

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
        let first = self.lock().alloc(1 << order)?;
        Some(Run {
            first: first as u32,
            nr: 1 << order,
        })
    }

    fn put(&self, run: Run) {
        let first = run.first as usize;
        self.lock().put(first..first + usize::from(run.nr));
    }

    fn waited_ns(&self) -> u64 {
        self.waited_ns.load(Ordering::Relaxed)
    }
}

#[derive(Clone, Copy)]
enum Frees {
    Oldest,
    Random,
}

impl Display for Frees {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Frees::Oldest => "oldest",
            Frees::Random => "random",
        })
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
            Frees::Random => self.random.below(self.runs.len() as u64) as usize,
        }
    }

    /// Frees and allocates until it is told to stop; how often.
    fn replace(
        &mut self,
        device: &dyn Allocator,
        order: u8,
        frees: Frees,
        stop: &AtomicBool,
    ) -> u64 {
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
            let run = device.alloc(cpu, order).expect("a run was freed just now");
            self.runs[victim] = run.first;
            nr += 1;
        }
        nr
    }
}

/// A device in use by threads.
struct Workload<'d> {
    device: &'d dyn Allocator,
    order: u8,
    frees: Frees,
    holders: Vec<Holder>,
}

/// Pairs of a free and an allocation per second by all threads, and the share of the threads' time spent
/// waiting for locks.
#[derive(Clone, Copy)]
struct Speed {
    pairs: f64,
    waiting: f64,
}

impl<'d> Workload<'d> {
    /// Fills the device, then frees runs anywhere until it is as full as it should be.
    fn new(device: &'d dyn Allocator, threads: usize, order: u8, frees: Frees) -> Self {
        let mut holders: Vec<_> = (0..threads).map(Holder::new).collect();
        let nr_runs = NR_SLOTS as usize >> order;
        for number in 0..nr_runs {
            let run = device.alloc(0, order).expect("there is room");
            holders[number % threads].runs.push(run.first);
        }
        for number in 0..nr_runs * (100 - FULL_PERCENT) / 100 {
            let holder = &mut holders[number % threads];
            let victim = holder.next(Frees::Random);
            device.put(Run {
                first: holder.runs.swap_remove(victim),
                nr: 1 << order,
            });
        }
        let mut workload = Self {
            device,
            order,
            frees,
            holders,
        };
        // Towards how it is in the long run.
        workload.round();
        workload
    }

    fn round(&mut self) -> Speed {
        let threads = self.holders.len();
        let (start, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
        let pairs = AtomicU64::new(0);
        let (device, order, frees) = (self.device, self.order, self.frees);
        let (took, waited) = std::thread::scope(|scope| {
            for holder in &mut self.holders {
                let (start, stop, pairs) = (&start, &stop, &pairs);
                scope.spawn(move || {
                    start.wait();
                    let nr = holder.replace(device, order, frees, stop);
                    pairs.fetch_add(nr, Ordering::Relaxed);
                });
            }
            start.wait();
            let (begun, before) = (Instant::now(), device.waited_ns());
            std::thread::sleep(ROUND);
            stop.store(true, Ordering::Relaxed);
            (begun.elapsed(), device.waited_ns() - before)
        });
        Speed {
            pairs: pairs.into_inner() as f64 / took.as_secs_f64(),
            waiting: waited as f64 / (took.as_nanos() as f64 * threads as f64),
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn compare(threads: usize, order: u8, frees: Frees) {
    let ground = Ground::new(NR_SLOTS);
    let (ours, owners, map) = (
        Clusters::on(&ground),
        OneLock::new(NR_SLOTS, true),
        OneLock::new(NR_SLOTS, false),
    );
    let devices: [&dyn Allocator; 3] = [&ours, &owners, &map];
    let mut workloads = devices.map(|device| Workload::new(device, threads, order, frees));
    let rounds: Vec<[Speed; 3]> = (0..ROUNDS)
        .map(|_| workloads.each_mut().map(Workload::round))
        .collect();
    let of = |value: &dyn Fn(&[Speed; 3]) -> f64| median(rounds.iter().map(value).collect());
    print!("{threads:>7} {order:>5} {frees:>6}");
    for which in 0..3 {
        let pairs = of(&|round| round[which].pairs) / 1e6;
        let waiting = of(&|round| round[which].waiting) * 100.0;
        print!(" {pairs:>9.3} {waiting:>5.1}%");
    }
    let ratio = |which: usize| of(&|round| round[0].pairs / round[which].pairs);
    println!(" {:>8.2}x {:>8.2}x", ratio(1), ratio(2));
}

/// One run of 16 slots, or what it fell apart into.
type Entry = Vec<Run>;

/// Half of what is stored is 64 KiB, half 4 KiB, freed at random; how often the former finds no run.
fn fallback_rate(device: &dyn Allocator, full_percent: u64) -> f64 {
    let mut random = Random::new(11);
    let mut held: Vec<Entry> = Vec::new();
    let (mut used, mut asked, mut fell_back) = (0, 0_u32, 0_u32);
    let target = u64::from(NR_FALLBACK_SLOTS) * full_percent / 100;
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
            match device.alloc(0, order) {
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
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let is_wanted = |at: usize, value: &dyn Display| {
        wanted
            .get(at)
            .is_none_or(|wanted| *wanted == value.to_string())
    };
    println!(
        "{NR_SLOTS} slots, {FULL_PERCENT} % in use; millions of pairs of free and alloc a second, share of the time \
         that was spent waiting for locks; medians of {ROUNDS} rounds"
    );
    println!(
        "threads order  frees  clusters        owners           map          to owners    to map"
    );
    for threads in [1, 2, 8, 32] {
        for order in [0, 4, 9] {
            for frees in [Frees::Oldest, Frees::Random] {
                if is_wanted(0, &threads) && is_wanted(1, &order) && is_wanted(2, &frees) {
                    compare(threads, order, frees);
                }
            }
        }
    }
    if !wanted.is_empty() {
        return;
    }
    println!("64 KiB runs that were not found, half of the bytes being single slots:");
    for full_percent in [70, 80, 90, 95] {
        let ground = Ground::new(NR_FALLBACK_SLOTS);
        let ours = fallback_rate(&Clusters::on(&ground), full_percent);
        let scan = fallback_rate(&OneLock::new(NR_FALLBACK_SLOTS, false), full_percent);
        println!("  {full_percent} % in use: clusters {ours:.2} %, one lock {scan:.2} %");
    }
}
