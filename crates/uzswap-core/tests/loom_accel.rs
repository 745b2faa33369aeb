//! A device's descriptors under the model checker: askers hand over, the device comes, goes in the
//! middle and comes back. Whatever the order, every job that was taken is settled exactly once,
//! none is done that was not asked for, nobody sleeps for ever, and what the device works with is
//! changed only while it is away.
//!
//!     RUSTFLAGS="--cfg loom" cargo test --release -p uzswap-core --test loom_accel
#![cfg(loom)]

use std::ptr::{null, null_mut};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::thread;
use uzswap_core::accel::ring::Ring;
use uzswap_core::accel::{Job, Outcome, Params, Task};

/// A device, and what it works with, which only it may touch while it is there.
struct Device {
    ring: Ring,
    context: UnsafeCell<u32>,
    performed: AtomicU32,
}

impl Device {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            ring: Ring::new(),
            context: UnsafeCell::new(0),
            performed: AtomicU32::new(0),
        })
    }

    /// Its thread: from being there to being away.
    fn run(device: &Arc<Self>) -> thread::JoinHandle<()> {
        let device = Arc::clone(device);
        thread::spawn(move || {
            device.ring.serve(|work| {
                // SAFETY: the model checks it.
                device.context.with_mut(|context| unsafe { *context += 1 });
                device.performed.fetch_add(1, Relaxed);
                Outcome::Done(work.src_len + 1)
            });
        })
    }
}

fn jobs(nr: usize) -> &'static [Job] {
    Box::leak((0..nr).map(|_| Job::new()).collect())
}

/// Asks for all, hands over what is taken, does the rest itself, and waits. Returns how many the
/// device did.
fn prepare(device: &Device, jobs: &'static [Job], base: usize) -> u32 {
    for (nr, job) in jobs.iter().enumerate() {
        let work = Params {
            task: Task::Decompress(uzswap_compress::CodecId::Lz4),
            src: null(),
            src_len: base + nr,
            dst: null_mut(),
            dst_len: 0,
        };
        // SAFETY: settled, and nobody follows the pointers.
        unsafe { job.prepare(work) };
    }
    let taken = device.ring.submit(jobs);
    assert!(taken <= jobs.len());
    for job in &jobs[taken..] {
        assert_eq!(job.outcome(), None, "nobody took it");
        job.settle(Outcome::Aborted);
    }
    let mut made = 0;
    for (nr, job) in jobs.iter().enumerate().take(taken) {
        while job.outcome().is_none() {
            job.sleep();
        }
        match job.outcome() {
            Some(Outcome::Done(len)) => {
                assert_eq!(len, base + nr + 1, "another's outcome");
                made += 1;
            }
            outcome => assert_eq!(outcome, Some(Outcome::Aborted)),
        }
    }
    made
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

#[test]
fn what_is_handed_over_is_done_or_given_back_when_the_device_goes() {
    check(2, || {
        let device = Device::new();
        let thread = Device::run(&device);
        assert!(device.ring.open());
        let asker = {
            let device = Arc::clone(&device);
            thread::spawn(move || prepare(&device, jobs(1), 10))
        };
        device.ring.close();
        let made = asker.join().unwrap();
        thread.join().unwrap();
        assert!(device.ring.is_away());
        assert_eq!(device.performed.load(Relaxed), made);
    });
}

#[test]
fn two_askers_share_the_descriptors() {
    check(2, || {
        let device = Device::new();
        let thread = Device::run(&device);
        assert!(device.ring.open());
        let other = {
            let device = Arc::clone(&device);
            thread::spawn(move || prepare(&device, jobs(2), 20))
        };
        let made = prepare(&device, jobs(1), 10) + other.join().unwrap();
        device.ring.close();
        thread.join().unwrap();
        assert_eq!(device.performed.load(Relaxed), made);
    });
}

#[test]
fn a_device_that_comes_back_works_with_what_it_was_given_meanwhile() {
    check(2, || {
        let device = Device::new();
        let first = Device::run(&device);
        assert!(device.ring.open());
        let asker = {
            let device = Arc::clone(&device);
            thread::spawn(move || prepare(&device, jobs(1), 10))
        };
        device.ring.close();
        let mut second = None;
        if device.ring.is_away() {
            // SAFETY: away: the model checks it.
            device.context.with_mut(|context| unsafe { *context = 100 });
            // Not while an asker finds out that it is away.
            if device.ring.open() {
                second = Some(Device::run(&device));
            }
        }
        asker.join().unwrap();
        device.ring.close();
        first.join().unwrap();
        second.map(|second| second.join().unwrap());
        assert!(device.ring.is_away());
    });
}
