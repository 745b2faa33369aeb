//! Start, wake and end of a helper, explored in every interleaving that loom knows:
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p uzswap-sync --test loom_presence`
#![cfg(loom)]

use loom::sync::{Arc, Mutex, Notify};
use loom::thread::{self, JoinHandle};
use uzswap_sync::presence::{Kick, Presence};
use uzswap_sync::primitive::{AtomicU32, Ordering};

/// A helper's presence, and what it works on.
#[derive(Default)]
struct Shared {
    presence: Presence,
    /// Work that was given and not done.
    given: AtomicU32,
    /// As that, by another process.
    asked: AtomicU32,
    /// Where that process rings.
    kick: Option<&'static Kick>,
    done: Option<Notify>,
    /// Helpers at work now.
    inside: AtomicU32,
    helpers: Mutex<Vec<JoinHandle<()>>>,
}

fn explore(model: impl Fn(Arc<Shared>) + Sync + Send + 'static) {
    explore_with(|| None, model);
}

fn explore_with(
    done: impl Fn() -> Option<Notify> + Sync + Send + 'static,
    model: impl Fn(Arc<Shared>) + Sync + Send + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let done = done();
        let shared = Arc::new(Shared {
            done,
            ..Shared::default()
        });
        model(shared.clone());
        let helpers: Vec<_> = shared.helpers.lock().unwrap().drain(..).collect();
        for helper in helpers {
            helper.join().unwrap();
        }
    });
}

/// The helper's life; `pauses` before it works.
fn help(shared: &Shared, pauses: bool) {
    while shared.presence.wait() {
        assert_eq!(
            shared.inside.fetch_add(1, Ordering::Relaxed),
            0,
            "two helpers"
        );
        if pauses {
            shared.presence.pause(1);
        }
        shared.given.store(0, Ordering::Release);
        shared.asked.swap(0, Ordering::AcqRel);
        if let Some(done) = &shared.done {
            done.notify();
        }
        shared.inside.fetch_sub(1, Ordering::Relaxed);
    }
    shared.presence.leave();
}

/// Gives work, as a charge that finds little room does.
fn give(shared: &Arc<Shared>, pauses: bool) {
    shared.given.store(1, Ordering::Relaxed);
    if !shared.presence.kick() || shared.presence.wake() {
        return;
    }
    shared.presence.start_with(|alive| {
        alive.store(1, Ordering::SeqCst);
        let helper = {
            let shared = shared.clone();
            thread::spawn(move || {
                help(&shared, pauses);
                // As the kernel does.
                let alive = shared.presence.alive();
                alive.store(0, Ordering::SeqCst);
                alive.wake_one();
            })
        };
        shared.helpers.lock().unwrap().push(helper);
        true
    });
}

/// Gives work, as another process does.
fn ask(shared: &Shared) {
    shared.asked.store(1, Ordering::Relaxed);
    shared.kick.unwrap().ring();
}

/// After a hold nobody is at work, and nobody comes.
fn hold(shared: &Shared) {
    shared.presence.hold();
    assert_eq!(shared.inside.load(Ordering::Relaxed), 0);
    thread::yield_now();
    assert_eq!(shared.inside.load(Ordering::Relaxed), 0);
}

#[test]
fn work_that_is_given_is_done_before_the_helper_sleeps() {
    // Loom reports a helper that sleeps over work as a deadlock.
    explore_with(
        || Some(Notify::new()),
        |shared| {
            for _ in 0..2 {
                give(&shared, false);
                // Loom's waits end early at times.
                while shared.given.load(Ordering::Acquire) != 0 {
                    shared.done.as_ref().unwrap().wait();
                }
            }
            hold(&shared);
        },
    );
}

#[test]
fn what_another_process_asks_for_is_done_before_the_helper_sleeps() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let kick: &'static Kick = Box::leak(Box::default());
        let shared = Arc::new(Shared {
            done: Some(Notify::new()),
            kick: Some(kick),
            ..Shared::default()
        });
        shared.presence.listen_at(Some(kick));
        give(&shared, false);
        let other = {
            let shared = shared.clone();
            thread::spawn(move || ask(&shared))
        };
        other.join().unwrap();
        while shared.asked.load(Ordering::Acquire) != 0 {
            shared.done.as_ref().unwrap().wait();
        }
        hold(&shared);
        for helper in shared.helpers.lock().unwrap().drain(..) {
            helper.join().unwrap();
        }
    });
}

#[test]
fn after_a_hold_none_is_there_and_none_comes() {
    explore(|shared| {
        let giver = {
            let shared = shared.clone();
            thread::spawn(move || give(&shared, false))
        };
        hold(&shared);
        giver.join().unwrap();
        assert_eq!(shared.inside.load(Ordering::Relaxed), 0);
        shared.presence.release();
    });
}

#[test]
fn a_hold_ends_a_pause() {
    explore(|shared| {
        give(&shared, true);
        hold(&shared);
    });
}

#[test]
fn one_that_starts_or_leaves_is_not_taken_for_killed() {
    explore(|shared| {
        let other = {
            let shared = shared.clone();
            thread::spawn(move || assert!(!shared.presence.was_killed()))
        };
        give(&shared, false);
        hold(&shared);
        shared.presence.release();
        other.join().unwrap();
    });
}

#[test]
fn one_that_is_gone_without_leave_was_killed() {
    explore(|shared| {
        shared.presence.start_with(|alive| {
            alive.store(1, Ordering::SeqCst);
            true
        });
        assert!(!shared.presence.was_killed());
        shared.presence.alive().store(0, Ordering::SeqCst);
        assert!(shared.presence.was_killed());
    });
}
