//! The suite `alloc`: the swap slot allocator against one lock around a linear scan.
//!
//! *What*: each thread frees one run of slots and allocates another, on a device that was filled to
//! the last slot and then freed at random down to a share in use: holes of all ages, as after a
//! long life. And how often no run of 16 slots is found on a fragmented device. Ours is compared
//! with two baselines. Like ours they are in memory that processes could share; each has one
//! lock.
//! - *map* searches a map of one byte per slot from where the last search ended: the least that one
//!   lock can do. Linux did so on an SSD without a free cluster, until 6.9. It knows no processes.
//! - *owners* does the same and keeps what ours keeps: how often each process counts a slot, so
//!   that a process can fork and be killed, and beside it the total that it searches. Unlike ours
//!   it need not survive a death under its lock.
//!
//! *Invariants*: all have the same device, filled alike, and take turns within each setting.
//! *Locking*: see the baselines.
//! *Context*: the bench command.

mod clusters;
mod fallbacks;
mod memory;
mod one_lock;
mod workload;

use std::time::Duration;

use anyhow::{Result, ensure};
use uzswap_corpus::{Refused, interrupt};
use uzswap_slots::{Run as Slots, Slots as Device};

use crate::compare::{CurrentRound, Figure, Goal, Measured, pair, values};
use clusters::Clusters;
use memory::Shared;
use one_lock::OneLock;
use workload::{Setting, Speed, Workload};

pub use workload::Frees;

/// The sides: key and name.
const SIDES: [(&str, &str); 3] = [
    ("clusters", "uzswap"),
    ("map", "one lock"),
    ("owners", "one lock, owners"),
];
const THREADS: [usize; 4] = [1, 2, 8, 32];
const ORDERS: [u8; 3] = [0, 4, 9];
const FREES: [Frees; 2] = [Frees::Oldest, Frees::Random];
/// Goals for random frees of single slots: threads, and the speed as a multiple of one lock's.
const SPEED_GOALS: [(usize, f64); 2] = [(32, 5.0), (1, 1.0)];
/// Goal for failed allocations, as a share of one lock's.
const FALLBACKS_GOAL: f64 = 0.40;

/// An allocator of swap slots.
trait Allocator: Sync {
    /// Allocates a run of 2^`order` slots.
    fn alloc(&self, cpu: usize, order: u8) -> Option<Slots>;
    /// Frees a run.
    fn put(&self, run: Slots);
    /// Time that all threads have waited for locks, ns.
    fn waited_ns(&self) -> u64;
}

/// What to measure; an empty list means the default.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Orders of the runs.
    pub orders: Vec<u8>,
    /// Which run a thread frees.
    pub frees: Vec<Frees>,
    /// Percent of the device in use.
    pub in_use: Vec<usize>,
    /// Only failed allocations of 16 slots.
    pub fallbacks: bool,
}

/// Sizes of a measurement.
struct Scale {
    nr_slots: u32,
    /// Time for which threads free and allocate.
    duration: Duration,
    in_use: &'static [usize],
    fallbacks: fallbacks::Scale,
}

/// A device of 16 GiB, and of 4 GiB for fallbacks, which replace its content several times.
const FULL: Scale = Scale {
    nr_slots: 1 << 22,
    duration: Duration::from_millis(100),
    in_use: &[25, 75, 95, 99],
    fallbacks: fallbacks::Scale {
        nr_slots: 1 << 20,
        nr_steps: 2_000_000,
        in_use: &[70, 80, 90, 95],
    },
};
const QUICK: Scale = Scale {
    nr_slots: 1 << 20,
    duration: Duration::from_millis(50),
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
/// Refuses more threads than there are runs to hold; if an allocator finds no slot where there is
/// one, or no round was completed.
pub fn measure(wanted: &Wanted, quick: bool, rounds: usize) -> Result<Measured> {
    let scale = if quick { &QUICK } else { &FULL };
    let settings = wanted.settings(scale);
    for setting in &settings {
        let runs = setting.nr_held(scale.nr_slots);
        // Runs are dealt unevenly: some threads get fewer.
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
            "Threads that each free one run of slots and allocate another, on a device of {} GiB that was \
             filled and then freed at random. One lock: around a linear scan of a map of slots; with \
             owners: of each process's counts, too, as uzswap keeps them. Waiting is for locks. Not found: \
             runs of 64 KiB on a fragmented device, half of whose bytes are single slots.",
            scale.nr_slots >> 18
        )],
        sides: SIDES.map(pair).to_vec(),
        figures: figures(&settings),
        ratios: ["map", "owners"].map(|of| pair(("clusters", of))).to_vec(),
        goals: goals(&settings),
        ..Measured::default()
    };
    let fallbacks = wanted.fallbacks().then_some(&scale.fallbacks);
    let steps = settings.len() + fallbacks.map_or(0, |scale| scale.in_use.len());
    measured.fill(rounds, steps, |round| {
        for setting in &settings {
            if interrupt::happened() {
                return Ok(());
            }
            let threads = setting.to_string();
            round.at(&threads, &format!("order {}", setting.order));
            compare(round, setting, scale)?;
            round.progress.step();
        }
        if let Some(scale) = fallbacks {
            measure_fallbacks(round, scale)?;
        }
        Ok(())
    })?;
    Ok(measured)
}

fn or<T: Clone>(wanted: &[T], default: &[T]) -> Vec<T> {
    if wanted.is_empty() { default } else { wanted }.to_vec()
}

impl Wanted {
    /// Whether to measure fallbacks.
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

/// The figures of each order.
fn figures(settings: &[Setting]) -> Vec<Figure> {
    let mut orders: Vec<u8> = settings.iter().map(|setting| setting.order).collect();
    orders.sort_unstable();
    orders.dedup();
    let mut figures = Vec::new();
    figures.extend(orders.iter().map(|&order| {
        let name = format!("free and alloc, order {order}");
        Figure::new(&pairs(order), &name, "millions/s")
            .more_is_better()
            .in_chart(&format!("Swap slots, order {order}"))
    }));
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
    let ratio = ("clusters", "map");
    let mut goals = vec![Goal::new("not_found", None, ratio, FALLBACKS_GOAL)];
    for setting in settings {
        for (threads, bound) in SPEED_GOALS {
            if (setting.order, setting.frees, setting.threads) == (0, Frees::Random, threads) {
                let job = setting.to_string();
                goals.push(Goal::new(&pairs(0), Some(&job), ratio, bound));
            }
        }
    }
    goals
}

/// Measures all allocators in one setting, one after the other.
fn compare(round: &mut CurrentRound<'_>, setting: &Setting, scale: &Scale) -> Result<()> {
    let memory = Shared::new(Device::memory_len(scale.nr_slots))?;
    let ours = Clusters::on(&memory, scale.nr_slots);
    let map = OneLock::new(scale.nr_slots, false)?;
    let owners = OneLock::new(scale.nr_slots, true)?;
    let devices: [&dyn Allocator; SIDES.len()] = [&ours, &map, &owners];
    let mut workloads = Vec::new();
    for device in devices {
        let mut workload = Workload::new(device, setting, scale.nr_slots)?;
        // Warm-up, towards the steady state.
        workload.run(scale.duration)?;
        workloads.push(workload);
    }
    for (workload, (side, _)) in workloads.iter_mut().zip(SIDES) {
        let Speed { pairs_s, waited } = workload.run(scale.duration)?;
        let figures = values([
            (&*pairs(setting.order), pairs_s / 1e6),
            (&*waiting(setting.order), waited * 100.0),
        ]);
        round.add(&setting.to_string(), side, figures);
    }
    Ok(())
}

/// Measures how often ours and one lock find no run of 16 slots.
fn measure_fallbacks(round: &mut CurrentRound<'_>, scale: &fallbacks::Scale) -> Result<()> {
    for &in_use in scale.in_use {
        if interrupt::happened() {
            break;
        }
        let job = format!("{in_use} % in use");
        round.at("fragmented", &job);
        let memory = Shared::new(Device::memory_len(scale.nr_slots))?;
        let ours = Clusters::on(&memory, scale.nr_slots);
        let map = OneLock::new(scale.nr_slots, false)?;
        let devices: [(&str, &dyn Allocator); 2] = [("clusters", &ours), ("map", &map)];
        for (side, device) in devices {
            let percent = fallbacks::percent(device, in_use, scale);
            round.add(&job, side, values([("not_found", percent)]));
        }
        round.progress.step();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
