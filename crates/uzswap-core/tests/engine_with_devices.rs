//! The engine on the real kernel with devices: two engines, which come and go and change their
//! codec, and a device that does all that a bad one may do. Every byte is what the threads wrote.

mod engine_support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use engine_support::{ENGINE, write_and_check};
use uzswap_compress::{Codec, CodecId, Compressor};
use uzswap_core::accel::{Job, Outcome, Task, WorkQueue};
use uzswap_core::{FaultMode, PAGE_SIZE};
use uzswap_group::group::Group;
use uzswap_group::knobs::{MAPPED, ON};

#[test]
fn the_engine_tells_its_stories() {
    let with_two = |group: &Group| group.knobs.accel.store(2, Relaxed);
    let Some(group) = engine_support::start_with(FaultMode::Signal, 4, false, with_two) else {
        return;
    };
    let counters = &group.processes[0].counters;
    engine_support::tell_all(group);
    assert!(counters.accel_compressed.load(Relaxed) > 1000);
    devices_come_and_go(group);
    a_bad_device_does_no_harm(group);
    println!("{counters:?}");
}

fn devices_come_and_go(group: &'static Group) {
    let counters = &group.processes[0].counters;
    let before = counters.accel_compressed.load(Relaxed);
    let asked = [0, 2, 1, 2 | MAPPED, 3, 1 | MAPPED];
    let codecs = ["zstd", "lz4", "zstd:3", "pz"];
    let mut steps = 0..;
    let change = || {
        let step: usize = steps.next().expect("there is no last one");
        group.knobs.accel.store(asked[step % asked.len()], Relaxed);
        let codec: Codec = codecs[step / 4 % codecs.len()].parse().unwrap();
        group
            .knobs
            .compressor
            .store(codec.to_bits().into(), Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(3));
    };
    engine_support::beside(change, || {
        for _ in 0..2 {
            write_and_check(4);
        }
    });
    assert!(counters.accel_compressed.load(Relaxed) > before);
    assert_eq!(
        ENGINE.workers(),
        (true, 2),
        "as many as at the start, and the same threads"
    );
}

/// What it does with each job in turn; what it makes wrong it says to be right.
const BEHAVIOURS: [Behaviour; 5] = [
    Behaviour::Right,
    Behaviour::Says(Outcome::Aborted),
    Behaviour::Wrong,
    Behaviour::Says(Outcome::Failed),
    Behaviour::Says(Outcome::Done(1 << 20)),
];

/// One in so many is said to be poor: then it is kept as it is, which takes room.
const INCOMPRESSIBLE: usize = 48;

enum Behaviour {
    Right,
    Wrong,
    Says(Outcome),
}

struct Bad {
    compressor: Mutex<Compressor>,
    lies: AtomicU64,
    turn: AtomicUsize,
}

impl Bad {
    fn perform(&self, job: &Job) -> Outcome {
        // SAFETY: taken by this device and not settled.
        let work = unsafe { job.params() }.expect("it was asked for");
        let turn = self.turn.fetch_add(1, Relaxed);
        let behaviour = match (&BEHAVIOURS[turn % BEHAVIOURS.len()], work.task) {
            (_, Task::Compress(_)) if turn.is_multiple_of(INCOMPRESSIBLE) => {
                return Outcome::Incompressible;
            }
            (behaviour, Task::Compress(_)) => behaviour,
            (Behaviour::Right, _) => return Outcome::Aborted,
            (_, _) => return Outcome::Failed,
        };
        if let Behaviour::Says(outcome) = behaviour {
            return *outcome;
        }
        // SAFETY: the job's destination, nobody else's until it is settled.
        let out = unsafe { std::slice::from_raw_parts_mut(work.dst, work.dst_len) };
        let mut compressor = self.compressor.lock().unwrap();
        // SAFETY: a page that is readable until the job is settled.
        match unsafe { compressor.compress(work.src, work.src_len, out) } {
            Ok(len) => {
                if matches!(behaviour, Behaviour::Wrong) {
                    self.lies.fetch_add(1, Relaxed);
                    out[len / 2] ^= 0x10;
                }
                Outcome::Done(len)
            }
            Err(_) => Outcome::Incompressible,
        }
    }
}

impl WorkQueue for Bad {
    fn serves(&self, op: Task) -> bool {
        matches!(
            op,
            Task::Compress(Codec::Lz4) | Task::Decompress(CodecId::Lz4)
        )
    }

    fn submit(&self, jobs: &'static [Job]) -> usize {
        let nr = jobs.len().min(7);
        for job in &jobs[..nr] {
            job.settle(self.perform(job));
        }
        nr
    }

    fn wait(&self, _: &Job) {}
}

/// Half of each batch fails, in every way; what is made wrong is found before it is kept.
fn a_bad_device_does_no_harm(group: &'static Group) {
    let codec = Codec::Lz4;
    group.knobs.accel.store(0, Relaxed);
    group
        .knobs
        .compressor
        .store(codec.to_bits().into(), Relaxed);
    group.knobs.verify_compress.store(ON, Relaxed);
    let len = Compressor::required_size(codec, PAGE_SIZE);
    let layout = std::alloc::Layout::from_size_align(len, 64).unwrap();
    // SAFETY: fresh memory for good, nobody else's.
    let compressor = unsafe { Compressor::init(std::alloc::alloc(layout), len, codec, PAGE_SIZE) };
    let bad: &Bad = Box::leak(Box::new(Bad {
        compressor: Mutex::new(compressor.unwrap()),
        lies: AtomicU64::new(0),
        turn: AtomicUsize::new(0),
    }));
    let counters = &group.processes[0].counters;
    let stored = counters.stored_pages.load(Relaxed);
    assert!(ENGINE.add_queue(bad));
    write_and_check(4);
    let (lies, found) = (
        bad.lies.load(Relaxed),
        counters.verify_compress_fail.load(Relaxed),
    );
    println!("{lies} pages made wrong, {found} found out");
    assert!(found > 100);
    assert!(
        counters.accel_decompressed.load(Relaxed) > 0 || counters.accel_fallback.load(Relaxed) > 0
    );
    assert_eq!(
        counters.decompress_fail.load(Relaxed),
        0,
        "nothing wrong was kept"
    );
    assert_eq!(
        counters.stored_pages.load(Relaxed),
        stored,
        "nothing is left behind"
    );
}
