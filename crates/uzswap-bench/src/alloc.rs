//! The suite `alloc`: the swap slot allocator against one lock around a linear scan.
//!
//! *What*: each thread frees one run of slots and allocates another, on a device that is filled to the last slot and then freed
//! anywhere until so much of it is in use: holes of all ages, as after a long life, not a fresh tail. And how often no run of 16 slots is
//! found on a fragmented device. Ours is compared with three baselines, which lie in memory that processes could share, as ours does, and
//! have one lock each:
//! - *map* searches a map of one byte a slot from where the last search ended: the least that one lock can do. Linux did so on an SSD without
//!   a free cluster, until 6.9. It knows no processes.
//! - *owners* does the same and keeps what ours keeps: how often each process counts a slot, so that a process can fork, and be killed, and
//!   beside it the total that it searches. It need not survive a death under its lock, as ours does.
//! - *kernel* is [`scan_swap_map`].
//!
//! *Invariants*: all have the same device, filled alike; they take turns within each setting.
//! *Locking*: the baselines' own, see there.
//! *Context*: the bench command.

mod clusters;
mod fallbacks;
mod memory;
mod one_lock;
mod random;
mod scan_swap_map;
mod workload;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use uzswap_slots::{Run as Slots, Slots as Device};

use crate::compare::{Figure, Goal, Measured, Run};
use clusters::Clusters;
use memory::Shared;
use one_lock::OneLock;
use scan_swap_map::ScanSwapMap;
use uzswap_corpus::progress::Progress;
use uzswap_corpus::{Refused, interrupt};
use workload::{Setting, Speed, Workload};

pub use workload::Frees;

/// The sides: key and name.
const SIDES: [(&str, &str); 4] = [
    ("clusters", "uzswap"),
    ("map", "one lock"),
    ("owners", "one lock, owners"),
    ("kernel", "scan_swap_map"),
];
const THREADS: [usize; 4] = [1, 2, 8, 32];
const ORDERS: [u8; 3] = [0, 4, 9];
const FREES: [Frees; 2] = [Frees::Oldest, Frees::Random];
/// Who frees anywhere with so many threads shall be this many times as fast as one lock; alone, no slower.
const MANY: (usize, f64) = (32, 5.0);
const ALONE: (usize, f64) = (1, 1.0);
/// As many runs as this part of what one lock does not find may fail.
const FALLBACKS: f64 = 0.40;

/// An allocator of swap slots.
trait Allocator: Sync {
    /// A run of 2^`order` slots that nobody else has.
    fn alloc(&self, cpu: usize, order: u8) -> Option<Slots>;
    /// Frees a run.
    fn put(&self, run: Slots);
    /// Nanoseconds that all threads waited for locks.
    fn waited_ns(&self) -> u64;
}

/// What to measure; of an empty list, what is usual.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Orders of the runs.
    pub orders: Vec<u8>,
    /// Which run a thread frees.
    pub frees: Vec<Frees>,
    /// Percent of the device that are in use.
    pub in_use: Vec<usize>,
    /// Only how often no run of 16 slots is found.
    pub fallbacks: bool,
}

/// How much of everything.
struct Scale {
    nr_slots: u32,
    /// How long threads free and allocate.
    lasts: Duration,
    in_use: &'static [usize],
    fallbacks: fallbacks::Scale,
}

/// 16 GiB, and 4 GiB for what is replaced several times.
const FULL: Scale = Scale {
    nr_slots: 1 << 22,
    lasts: Duration::from_millis(100),
    in_use: &[25, 75, 95, 99],
    fallbacks: fallbacks::Scale {
        nr_slots: 1 << 20,
        nr_steps: 2_000_000,
        in_use: &[70, 80, 90, 95],
    },
};
const QUICK: Scale = Scale {
    nr_slots: 1 << 20,
    lasts: Duration::from_millis(50),
    in_use: &[75],
    fallbacks: fallbacks::Scale {
        nr_slots: 1 << 18,
        nr_steps: 500_000,
        in_use: &[90],
    },
};

/// Measures.
///
/// # Errors
/// Refuses more threads than there are runs to hold; if an allocator finds no slot where there is one, or no round was completed.
pub fn measure(wanted: &Wanted, quick: bool, rounds: usize) -> Result<Measured> {
    let scale = if quick { &QUICK } else { &FULL };
    let settings = wanted.settings(scale);
    for setting in &settings {
        let runs = setting.nr_held(scale.nr_slots);
        // Not all get the same number.
        ensure!(
            runs >= 2 * setting.threads,
            Refused(format!(
                "{setting}: {runs} runs of order {} are too few for so many threads",
                setting.order
            ))
        );
    }
    let mut measured = Measured {
        title: "Swap slots".into(),
        notes: vec![format!(
            "Threads that each free one run of slots and allocate another, on a device of {} GiB that was filled and then freed anywhere. One lock: around a linear \
             scan of a map of slots; with owners: of what each process counts, too, as uzswap keeps it; scan_swap_map: as Linux had it, for single \
             slots alone. Waiting is for locks. Not found: 64 KiB runs on a fragmented device, half of the bytes being single slots.",
            scale.nr_slots >> 18
        )],
        sides: SIDES
            .map(|(key, name)| (key.to_owned(), name.to_owned()))
            .to_vec(),
        figures: figures(&settings),
        ratios: ["map", "owners", "kernel"].map(ratio).to_vec(),
        goals: goals(&settings),
        ..Measured::default()
    };
    let fallbacks = wanted.fallbacks().then_some(&scale.fallbacks);
    let steps = settings.len() + fallbacks.map_or(0, |scale| scale.in_use.len());
    measured.fill(rounds, steps, |round, progress| {
        let mut runs = Vec::new();
        for setting in &settings {
            if interrupt::happened() {
                return Ok(runs);
            }
            progress.at(&format!("round {}, {setting}", round + 1));
            runs.extend(compare(round, setting, scale)?);
            progress.step();
        }
        if let Some(scale) = fallbacks {
            runs.extend(no_run_found(round, scale, progress)?);
        }
        Ok(runs)
    })?;
    Ok(measured)
}

fn ratio(of: &str) -> (String, String) {
    ("clusters".to_owned(), of.to_owned())
}

fn or<T: Clone>(wanted: &[T], usual: &[T]) -> Vec<T> {
    if wanted.is_empty() { usual } else { wanted }.to_vec()
}

impl Wanted {
    /// Whether it is asked how often no run is found.
    fn fallbacks(&self) -> bool {
        let chosen = !self.threads.is_empty()
            || !self.orders.is_empty()
            || !self.frees.is_empty()
            || !self.in_use.is_empty();
        self.fallbacks || !chosen
    }

    fn settings(&self, scale: &Scale) -> Vec<Setting> {
        if self.fallbacks {
            return Vec::new();
        }
        let mut settings = Vec::new();
        for in_use in or(&self.in_use, scale.in_use) {
            for threads in or(&self.threads, &THREADS) {
                for frees in or(&self.frees, &FREES) {
                    for order in or(&self.orders, &ORDERS) {
                        settings.push(Setting {
                            threads,
                            order,
                            frees,
                            in_use,
                        });
                    }
                }
            }
        }
        settings
    }
}

/// Those of each order, by which the jobs are told apart.
fn figures(settings: &[Setting]) -> Vec<Figure> {
    let mut orders: Vec<u8> = settings.iter().map(|setting| setting.order).collect();
    orders.sort_unstable();
    orders.dedup();
    let mut figures = Vec::new();
    for &order in &orders {
        let name = format!("free and alloc, order {order}");
        let chart = format!("Swap slots, order {order}");
        let mut pairs = Figure::new(&pairs(order), &name, "millions/s").in_chart(&chart);
        pairs.more_is_better = true;
        figures.push(pairs);
    }
    figures.extend(orders.iter().map(|&order| {
        let name = format!("waiting, order {order}");
        Figure::new(&waiting(order), &name, "% of the threads' time")
    }));
    figures.push(Figure::new("not_found", "not found", "% of 64 KiB runs"));
    figures
}

fn pairs(order: u8) -> String {
    format!("pairs_order_{order}")
}

fn waiting(order: u8) -> String {
    format!("waiting_order_{order}")
}

fn goals(settings: &[Setting]) -> Vec<Goal> {
    let random = settings
        .iter()
        .filter(|setting| setting.order == 0 && setting.frees == Frees::Random);
    let mut goals: Vec<Goal> = random
        .flat_map(|setting| {
            let of_it = [MANY, ALONE]
                .into_iter()
                .filter(|(threads, _)| *threads == setting.threads);
            of_it.map(|(_, bound)| Goal {
                figure: pairs(0),
                job: Some(setting.to_string()),
                ratio: ratio("map"),
                bound,
            })
        })
        .collect();
    goals.push(Goal {
        figure: "not_found".into(),
        job: None,
        ratio: ratio("map"),
        bound: FALLBACKS,
    });
    goals
}

/// All allocators in one setting, one after the other.
fn compare(round: usize, setting: &Setting, scale: &Scale) -> Result<Vec<Run>> {
    let memory = Shared::new(Device::memory_len(scale.nr_slots))?;
    let (ours, map, owners, kernel) = (
        Clusters::on(&memory, scale.nr_slots),
        OneLock::new(scale.nr_slots, false)?,
        OneLock::new(scale.nr_slots, true)?,
        ScanSwapMap::new(scale.nr_slots)?,
    );
    let devices: [&dyn Allocator; 4] = [&ours, &map, &owners, &kernel];
    let nr = if setting.order == 0 { 4 } else { 3 };
    let mut workloads = Vec::with_capacity(nr);
    for device in devices.into_iter().take(nr) {
        let mut workload = Workload::new(device, setting, scale.nr_slots)?;
        // Towards how it is in the long run.
        workload.run(scale.lasts)?;
        workloads.push(workload);
    }
    let mut runs = Vec::with_capacity(nr);
    for (workload, (side, _)) in workloads.iter_mut().zip(SIDES) {
        let Speed { pairs_s, waited } = workload.run(scale.lasts)?;
        runs.push(Run {
            round,
            job: setting.to_string(),
            side: side.into(),
            values: BTreeMap::from([
                (pairs(setting.order), pairs_s / 1e6),
                (waiting(setting.order), waited * 100.0),
            ]),
        });
    }
    Ok(runs)
}

/// How often ours and one lock find no run of 16 slots.
fn no_run_found(round: usize, scale: &fallbacks::Scale, progress: &Progress) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for &in_use in scale.in_use {
        if interrupt::happened() {
            break;
        }
        let job = format!("{in_use} % in use");
        progress.at(&format!("round {}, fragmented, {job}", round + 1));
        let memory = Shared::new(Device::memory_len(scale.nr_slots))?;
        let ours = Clusters::on(&memory, scale.nr_slots);
        let map = OneLock::new(scale.nr_slots, false)?;
        let devices: [(&str, &dyn Allocator); 2] = [("clusters", &ours), ("map", &map)];
        runs.extend(devices.map(|(side, device)| Run {
            round,
            job: job.clone(),
            side: side.into(),
            values: BTreeMap::from([(
                "not_found".to_owned(),
                fallbacks::percent(device, in_use, scale),
            )]),
        }));
        progress.step();
    }
    Ok(runs)
}

#[cfg(test)]
mod tests;
