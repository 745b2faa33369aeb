//! Many threads, and processes that are killed at any moment: no slot is handed out twice, none is
//! lost.
//!
//! A slot's holder writes its name into a word of shared memory that stands for the slot's data,
//! and looks whether it is still there before it puts the slot.
#![cfg(not(any(loom, miri)))]
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "test arithmetic on small numbers"
)]

mod slots_support;

use slots_support::{Ground, Random, Shared, all_alive, long, seed};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use uzswap_slots::{CLUSTER_SLOTS, Owner, Run, SUPERVISOR, Slots};

/// So few that they are full now and then, and that processes are guests in each other's clusters.
const NR_CLUSTERS: u32 = 6;
const NR_SLOTS: u32 = NR_CLUSTERS * CLUSTER_SLOTS;

/// Allocates, writes, checks and puts until `goes_on` says no.
fn work(
    slots: &Slots<'_>,
    disk: &[AtomicU32],
    owner: Owner,
    cpu: usize,
    name: u32,
    random: &mut Random,
    mut goes_on: impl FnMut() -> bool,
) {
    let mut held: Vec<Run> = Vec::new();
    while goes_on() {
        match random.below(100) {
            0..55 if held.len() < 400 => {
                let order = random.below(7) as u8;
                let counts = vec![1; 1 << order];
                if let Some(run) = slots.alloc(owner, cpu, order, &counts) {
                    for slot in run.slots() {
                        disk[slot as usize].store(name, Ordering::Relaxed);
                        held.push(Run { first: slot, nr: 1 });
                    }
                }
            }
            0..58 => {
                if let Some(run) = slots.take_discard(owner) {
                    for slot in run.slots() {
                        assert_eq!(slots.count(slot), 0);
                    }
                    slots.discarded(owner, run);
                }
            }
            _ if !held.is_empty() => {
                let run = held.swap_remove(random.below(held.len() as u64) as usize);
                let found = disk[run.first as usize].load(Ordering::Relaxed);
                assert_eq!(found, name, "slot {} has another holder", run.first);
                slots.put(owner, run);
            }
            _ => {}
        }
    }
    for run in held {
        assert_eq!(disk[run.first as usize].load(Ordering::Relaxed), name);
        slots.put(owner, run);
    }
}

fn every_slot_can_be_had(slots: &Slots<'_>, owner: Owner) {
    assert_eq!(slots.used(), 0);
    while let Some(run) = slots.take_discard(owner) {
        slots.discarded(owner, run);
    }
    let all = std::iter::from_fn(|| slots.alloc(owner, 9, 0, &[1]));
    assert_eq!(all.count(), NR_SLOTS as usize, "slots were lost");
}

#[test]
fn threads_never_share_a_slot() {
    let seed = seed();
    let ground = Ground::new(NR_SLOTS);
    let slots = ground.slots(&all_alive);
    slots.set_kind(false, true);
    let owner = slots.join(0);
    let disk = Shared::new(NR_SLOTS as usize * 4);
    let steps = if long() { 3_000_000 } else { 60_000 };
    std::thread::scope(|scope| {
        for thread in 0..12 {
            let (slots, disk) = (&slots, disk.words());
            scope.spawn(move || {
                let mut random = Random::new(seed + u64::from(thread));
                let mut left = steps;
                work(
                    slots,
                    disk,
                    owner,
                    thread as usize % 3,
                    thread + 1,
                    &mut random,
                    || {
                        left -= 1;
                        left > 0
                    },
                );
            });
        }
    });
    every_slot_can_be_had(&slots, owner);
}

/// Process indices whose words after the slots' say whether they are alive: 0 for yes.
const NR_WORKERS: usize = 3;
const DISK_LEN: usize = (NR_SLOTS as usize + NR_WORKERS) * 4;

fn is_alive(disk: &[AtomicU32], index: usize) -> bool {
    index >= NR_WORKERS || disk[NR_SLOTS as usize + index].load(Ordering::SeqCst) == 0
}

/// What a worker process is told: paths of the memories, index, name.
const WORKER: &str = "UZSWAP_SLOTS_WORKER";

/// Not a test of its own: the processes that the next test kills run it.
#[test]
fn worker() {
    let Ok(told) = std::env::var(WORKER) else {
        println!("skipped: this is what killed processes run");
        return;
    };
    let told: Vec<_> = told.split(',').collect();
    let (index, name): (usize, u32) = (told[2].parse().unwrap(), told[3].parse().unwrap());
    let ground = Ground::open(told[0], NR_SLOTS);
    let disk = Shared::open(told[1], DISK_LEN);
    let alive = |index| is_alive(disk.words(), index);
    let slots = ground.slots(&alive);
    let owner = slots.join(index);
    let mut random = Random::new(u64::from(name));
    // Two threads, so that one is in the middle of something when the other is preempted.
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (slots, disk) = (&slots, disk.words());
            let mut random = Random::new(random.below(1 << 32));
            scope.spawn(move || {
                let name = name * 2 + thread;
                let cpu = (index + thread as usize) % 3;
                work(slots, disk, owner, cpu, name, &mut random, || true);
            });
        }
    });
}

fn start_worker(ground: &Ground, disk: &Shared, index: usize, name: u32) -> Child {
    let told = format!("{},{},{index},{name}", ground.memory.path(), disk.path());
    Command::new(std::env::current_exe().unwrap())
        .args(["worker", "--exact"])
        .env(WORKER, told)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn kill(worker: &mut Child) {
    let ended = worker.try_wait().unwrap();
    assert_eq!(ended, None, "a worker found its data changed");
    worker.kill().unwrap();
    worker.wait().unwrap();
}

#[test]
fn processes_are_killed_and_the_others_never_notice() {
    let mut random = Random::new(seed());
    let ground = Ground::new(NR_SLOTS);
    let disk = Shared::new(DISK_LEN);
    let alive = |index| is_alive(disk.words(), index);
    let slots = ground.slots(&alive);
    slots.set_kind(false, true);
    let supervisor = slots.join(SUPERVISOR);
    let kills = if long() { 3000 } else { 100 };
    let mut name = 1 + random.below(1000) as u32 * 10_000;
    let mut start = |index| {
        name += 1;
        start_worker(&ground, &disk, index, name)
    };
    let mut workers: Vec<Child> = (0..NR_WORKERS).map(&mut start).collect();
    for _ in 0..kills {
        std::thread::sleep(Duration::from_micros(random.below(30_000)));
        let index = random.below(NR_WORKERS as u64) as usize;
        kill(&mut workers[index]);
        let word = &disk.words()[NR_SLOTS as usize + index];
        word.store(1, Ordering::SeqCst);
        slots.release(supervisor, index);
        slots.for_each_owned(index, |slot, _| panic!("slot {slot} was not released"));
        word.store(0, Ordering::SeqCst);
        workers[index] = start(index);
    }
    for (index, worker) in workers.iter_mut().enumerate() {
        kill(worker);
        disk.words()[NR_SLOTS as usize + index].store(1, Ordering::SeqCst);
    }
    for index in 0..NR_WORKERS {
        slots.release(supervisor, index);
    }
    println!("{kills} killed; locks waited for: {:?}", slots.lock_waits());
    every_slot_can_be_had(&slots, slots.join(NR_WORKERS));
}
