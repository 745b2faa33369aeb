//! The swap slot allocator against one lock around a linear scan, on a device of 16 GiB: each thread frees one run and
//! allocates another; and how often no run of 16 slots is found on a fragmented device.
//!
//!     cargo bench -p uzswap-core --bench slots [-- THREADS ORDER oldest|random PERCENT]
//!     cargo bench -p uzswap-core --bench slots -- fallbacks
//!
//! The device is filled to the last slot, then runs anywhere are freed until PERCENT of it are in use: holes of all
//! ages, as after a long life, not a fresh tail. Then a round to settle, then the rounds that count.
//!
//! Three baselines, which lie in memory that processes could share, as ours does, and have one lock each:
//! - *map* searches a map of one byte a slot from where the last search ended: the least that one lock can do. Linux
//!   did so on an SSD without a free cluster, until 6.9. It knows no processes.
//! - *owners* does the same and keeps what ours keeps: how often each process counts a slot, so that a process can
//!   fork, and be killed, and beside it the total that it searches. It need not survive a death under its lock, as ours
//!   does.
//! - *kernel* is `scan_swap_map` as it was for all devices until Linux 3.11 and for rotational ones until 6.11: after
//!   each 256 slots it looks, from the lowest free slot on and with the lock dropped, for 256 free ones in a row;
//!   where there are none it begins again at the lowest. It knows single slots alone.
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
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uzswap_core::lock::{Lock, LockGuard};
use uzswap_core::swap::{Owner, Run, Slots};
use uzswap_sys::arch::prefetch;
use uzswap_sys::thread::sched_getcpu;

/// 16 GiB.
const NR_SLOTS: u32 = 1 << 22;
/// 4 GiB, so that what is on it is replaced several times.
const NR_FALLBACK_SLOTS: u32 = 1 << 20;
const ROUND: Duration = Duration::from_millis(100);
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

/// A lock that knows how long it was waited for.
struct Waited<T> {
    lock: Lock<T>,
    ns: AtomicU64,
}

impl<T> Waited<T> {
    fn new(value: T) -> Self {
        Self {
            lock: Lock::new(value),
            ns: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> LockGuard<'_, T> {
        if let Some(guard) = self.lock.try_lock() {
            return guard;
        }
        let start = Instant::now();
        let guard = self.lock.lock();
        let waited = start.elapsed().as_nanos() as u64;
        self.ns.fetch_add(waited, Ordering::Relaxed);
        guard
    }
}

/// *map* or *owners*.
struct OneLock(Waited<Map>);

impl OneLock {
    fn new(nr_slots: u32, owners: bool) -> Self {
        Self(Waited::new(Map {
            memory: Shared::new(2 * nr_slots as usize),
            owners,
            next: 0,
        }))
    }
}

impl Allocator for OneLock {
    fn alloc(&self, _cpu: usize, order: u8) -> Option<Run> {
        let first = self.0.lock().alloc(1 << order)?;
        Some(Run {
            first: first as u32,
            nr: 1 << order,
        })
    }

    fn put(&self, run: Run) {
        let first = run.first as usize;
        self.0.lock().put(first..first + usize::from(run.nr));
    }

    fn waited_ns(&self) -> u64 {
        self.0.ns.load(Ordering::Relaxed)
    }
}

/// Slots that the kernel wanted in a row.
const SWAPFILE_CLUSTER: usize = 256;

/// What `scan_swap_map` keeps, by the kernel's names.
struct SwapInfo {
    lowest_bit: usize,
    highest_bit: usize,
    inuse_pages: usize,
    cluster_next: usize,
    cluster_nr: usize,
}

/// *kernel*.
struct Kernel {
    /// Read without the lock, too.
    swap_map: Shared,
    info: Waited<SwapInfo>,
}

impl Kernel {
    fn new(nr_slots: u32) -> Self {
        Self {
            swap_map: Shared::new(nr_slots as usize),
            info: Waited::new(SwapInfo {
                lowest_bit: 0,
                highest_bit: nr_slots as usize - 1,
                inuse_pages: 0,
                cluster_next: 0,
                cluster_nr: 0,
            }),
        }
    }

    /// The first of 256 free slots in a row.
    fn find_cluster(map: &[AtomicU8], lowest: usize, highest: usize) -> Option<usize> {
        let mut last_in_cluster = lowest + SWAPFILE_CLUSTER - 1;
        let mut offset = lowest;
        while last_in_cluster <= highest {
            if map[offset].load(Ordering::Relaxed) != 0 {
                last_in_cluster = offset + SWAPFILE_CLUSTER;
            } else if offset == last_in_cluster {
                return Some(offset + 1 - SWAPFILE_CLUSTER);
            }
            offset += 1;
        }
        None
    }

    /// Where to begin, and where to end after going round.
    fn begin<'l>(
        &'l self,
        map: &[AtomicU8],
        mut info: LockGuard<'l, SwapInfo>,
    ) -> (LockGuard<'l, SwapInfo>, usize, usize) {
        let next = info.cluster_next;
        if info.cluster_nr > 0 {
            info.cluster_nr -= 1;
            return (info, next, next);
        }
        info.cluster_nr = SWAPFILE_CLUSTER - 1;
        if map.len() - info.inuse_pages < SWAPFILE_CLUSTER {
            return (info, next, next);
        }
        let (lowest, highest) = (info.lowest_bit, info.highest_bit);
        drop(info);
        let found = Self::find_cluster(map, lowest, highest);
        (self.info.lock(), found.unwrap_or(lowest), lowest)
    }
}

impl Allocator for Kernel {
    fn alloc(&self, _cpu: usize, order: u8) -> Option<Run> {
        assert_eq!(order, 0);
        let map = self.swap_map.counts();
        let is_free = |offset: &usize| map[*offset].load(Ordering::Relaxed) == 0;
        let (mut info, mut offset, mut scan_base) = self.begin(map, self.info.lock());
        loop {
            if info.inuse_pages == map.len() {
                return None;
            }
            if offset > info.highest_bit {
                offset = info.lowest_bit;
                scan_base = offset;
            }
            if is_free(&offset) {
                break;
            }
            let (lowest, highest) = (info.lowest_bit, info.highest_bit);
            drop(info);
            let mut round = (offset + 1..=highest).chain(lowest..scan_base);
            offset = round.find(is_free)?;
            info = self.info.lock();
        }
        map[offset].store(1, Ordering::Relaxed);
        if offset == info.lowest_bit {
            info.lowest_bit += 1;
        }
        if offset == info.highest_bit {
            info.highest_bit -= 1;
        }
        info.inuse_pages += 1;
        if info.inuse_pages == map.len() {
            (info.lowest_bit, info.highest_bit) = (map.len(), 0);
        }
        info.cluster_next = offset + 1;
        Some(Run {
            first: offset as u32,
            nr: 1,
        })
    }

    fn put(&self, run: Run) {
        let offset = run.first as usize;
        let mut info = self.info.lock();
        let count = &self.swap_map.counts()[offset];
        let left = count.load(Ordering::Relaxed) - 1;
        count.store(left, Ordering::Relaxed);
        if left == 0 {
            info.lowest_bit = info.lowest_bit.min(offset);
            info.highest_bit = info.highest_bit.max(offset);
            info.inuse_pages -= 1;
        }
    }

    fn waited_ns(&self) -> u64 {
        self.info.ns.load(Ordering::Relaxed)
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
    fn new(device: &'d dyn Allocator, setting: &Setting) -> Self {
        let Setting {
            threads,
            order,
            frees,
            full_percent,
        } = *setting;
        let mut holders: Vec<_> = (0..threads).map(Holder::new).collect();
        let nr_runs = NR_SLOTS as usize >> order;
        for number in 0..nr_runs {
            let run = device.alloc(0, order).expect("there is room");
            holders[number % threads].runs.push(run.first);
        }
        for number in 0..nr_runs * (100 - full_percent) / 100 {
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

/// A row of the table.
struct Setting {
    threads: usize,
    order: u8,
    frees: Frees,
    full_percent: usize,
}

fn compare(setting: &Setting) {
    let ground = Ground::new(NR_SLOTS);
    let (ours, map, owners, kernel) = (
        Clusters::on(&ground),
        OneLock::new(NR_SLOTS, false),
        OneLock::new(NR_SLOTS, true),
        Kernel::new(NR_SLOTS),
    );
    let devices: [&dyn Allocator; 4] = [&ours, &map, &owners, &kernel];
    let nr = if setting.order == 0 { 4 } else { 3 };
    let workloads = devices.iter().take(nr);
    let mut workloads: Vec<_> = workloads
        .map(|&device| Workload::new(device, setting))
        .collect();
    let rounds: Vec<Vec<Speed>> = (0..ROUNDS)
        .map(|_| workloads.iter_mut().map(Workload::round).collect())
        .collect();
    let of = |value: &dyn Fn(&[Speed]) -> f64| median(rounds.iter().map(|r| value(r)).collect());
    let Setting {
        threads,
        order,
        frees,
        full_percent,
    } = setting;
    print!("{threads:>7} {order:>5} {frees:>6} {full_percent:>5}%");
    for which in 0..nr {
        let pairs = of(&|round| round[which].pairs) / 1e6;
        let waiting = of(&|round| round[which].waiting) * 100.0;
        print!(" {pairs:>8.3} {waiting:>5.1}%");
    }
    print!("{}", " ".repeat((devices.len() - nr) * 16));
    for which in 1..nr {
        let ratio = of(&|round| round[0].pairs / round[which].pairs);
        print!(" {ratio:>7.2}x");
    }
    println!();
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

fn fallbacks() {
    println!("64 KiB runs that were not found, half of the bytes being single slots:");
    for full_percent in [70, 80, 90, 95] {
        let ground = Ground::new(NR_FALLBACK_SLOTS);
        let ours = fallback_rate(&Clusters::on(&ground), full_percent);
        let scan = fallback_rate(&OneLock::new(NR_FALLBACK_SLOTS, false), full_percent);
        println!("  {full_percent} % in use: clusters {ours:.2} %, one lock {scan:.2} %");
    }
}

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    if wanted.first().is_some_and(|wanted| wanted == "fallbacks") {
        return fallbacks();
    }
    let is_wanted = |at: usize, value: &dyn Display| {
        wanted
            .get(at)
            .is_none_or(|wanted| *wanted == value.to_string())
    };
    println!(
        "{NR_SLOTS} slots; millions of pairs of free and alloc a second, and the share of the threads' time spent \
         waiting for locks; medians of {ROUNDS} rounds"
    );
    println!(
        "threads order  frees in use clusters           map          owners          kernel           to map    \
         owners   kernel"
    );
    for full_percent in [25, 75, 95, 99] {
        for threads in [1, 2, 8, 32] {
            for order in [0, 4, 9] {
                for frees in [Frees::Oldest, Frees::Random] {
                    let all: [&dyn Display; 4] = [&threads, &order, &frees, &full_percent];
                    if (0..).zip(all).all(|(at, value)| is_wanted(at, value)) {
                        compare(&Setting {
                            threads,
                            order,
                            frees,
                            full_percent,
                        });
                    }
                }
            }
        }
    }
    if wanted.is_empty() {
        fallbacks();
    }
}
