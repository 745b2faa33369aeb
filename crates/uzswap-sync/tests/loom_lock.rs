//! The lock and the limit, explored in every interleaving that loom knows:
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p uzswap-sync --test loom_lock`
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use uzswap_sync::charge::{Charge, Reserve};
use uzswap_sync::lock::{Lock, RawLock};
use uzswap_sync::primitive::{AtomicU64, Ordering};

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Loom's cell reports two threads inside at once; a lost wake-up is a thread that
/// sleeps for ever, which loom reports as a deadlock.
#[test]
fn a_lock_lets_one_in_at_a_time_and_wakes_every_sleeper() {
    explore(|| {
        let lock = Arc::new(Lock::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let lock = lock.clone();
                thread::spawn(move || *lock.lock() += 1)
            })
            .collect();
        *lock.lock() += 1;
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*lock.lock(), 3);
    });
}

#[test]
fn a_lock_taken_twice_by_each_still_wakes_every_sleeper() {
    explore(|| {
        let lock = Arc::new(Lock::new(0));
        let other = {
            let lock = lock.clone();
            thread::spawn(move || {
                *lock.lock() += 1;
                *lock.lock() += 1;
            })
        };
        *lock.lock() += 1;
        *lock.lock() += 1;
        other.join().unwrap();
        assert_eq!(*lock.lock(), 4);
    });
}

#[test]
fn trying_takes_a_free_lock_only_and_sees_what_was_written_under_it() {
    explore(|| {
        let shared = Arc::new((RawLock::new(), AtomicU64::new(0)));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let _guard = shared.0.lock();
                shared.1.store(1, Ordering::Relaxed);
                shared.1.store(2, Ordering::Relaxed);
            })
        };
        if let Some(_guard) = shared.0.try_lock() {
            assert_ne!(shared.1.load(Ordering::Relaxed), 1, "looked inside");
        }
        other.join().unwrap();
        let guard = shared.0.try_lock();
        assert!(guard.is_some(), "nobody holds it");
        assert!(shared.0.try_lock().is_none());
        assert_eq!(shared.1.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn two_chargers_never_exceed_the_limit_even_for_a_moment() {
    explore(|| {
        let charge = Arc::new(Charge::new(5));
        let charger = |nr| {
            let charge = charge.clone();
            thread::spawn(move || {
                let charged = charge.try_charge(nr);
                assert!(charge.used() <= 5);
                if charged {
                    charge.uncharge(nr);
                }
                charged
            })
        };
        let (one, two) = (charger(3), charger(4));
        assert!(charge.used() <= 5, "over the limit for a moment");
        let charged = (one.join().unwrap(), two.join().unwrap());
        assert!(charged.0 || charged.1);
        assert_eq!(charge.used(), 0);
        assert!((3..=5).contains(&charge.peak()));
    });
}

/// Whoever is let in by the room that another made sees the other's memory gone.
#[test]
fn room_that_was_made_is_seen_as_made() {
    explore(|| {
        let charge = Arc::new(Charge::new(1));
        let resident = Arc::new(AtomicU64::new(1));
        assert!(charge.try_charge(1));
        let leaver = {
            let (charge, resident) = (charge.clone(), resident.clone());
            thread::spawn(move || {
                resident.store(0, Ordering::Relaxed);
                charge.uncharge(1);
            })
        };
        if let Some(reserve) = Reserve::charged(&charge, 1) {
            assert_eq!(resident.load(Ordering::Relaxed), 0);
            assert_eq!(reserve.pages(), 1);
        }
        leaver.join().unwrap();
        assert_eq!(charge.used(), 0);
        assert_eq!(charge.peak(), 1);
    });
}
