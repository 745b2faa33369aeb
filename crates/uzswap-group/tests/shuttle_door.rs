//! The door of a process under the model checker: SIGSYS comes only to a process that handles it,
//! whoever asks, gives up or dies meanwhile, and however soon another program is executed.
//!
//!     RUSTFLAGS="--cfg loom --cfg shuttle" \
//!         cargo test --release -p uzswap-group --test shuttle_door
//!
//! The door is real. Signals are a number of those pending, and a program that is executed while
//! one is, or is sent one after that, is dead.
#![cfg(all(loom, shuttle))]

use shuttle::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Release},
};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;
use uzswap_group::request::Request;

struct Process {
    request: Request,
    /// Signals sent and not taken, and whether it has executed another program.
    signals: Mutex<(u32, bool)>,
    /// By number, who asks and is gone.
    gone: [AtomicBool; 3],
}

impl Process {
    fn new() -> Arc<Process> {
        let request = Request::default();
        request.open();
        Arc::new(Process {
            request,
            signals: Mutex::new((0, false)),
            gone: [(); 3].map(|()| AtomicBool::new(false)),
        })
    }

    /// Takes one pending signal.
    fn came(&self) -> bool {
        let mut signals = self.signals.lock().unwrap();
        let came = signals.0 > 0;
        signals.0 -= u32::from(came);
        came
    }

    /// The handler, should a signal be pending.
    fn handle(&self) {
        if self.came() {
            let taken = self.request.take();
            assert!(taken.is_some(), "a signal for which nobody rang");
            if taken == Some(true) {
                self.request.finish();
            }
        }
    }

    fn execute(&self) {
        let is_alive = |pid: u32| !self.gone[pid as usize].load(Acquire);
        self.request
            .shut(|| self.came(), is_alive, thread::yield_now);
        let mut signals = self.signals.lock().unwrap();
        assert_eq!(signals.0, 0, "a signal is left over");
        signals.1 = true;
    }

    fn send(&self) {
        let mut signals = self.signals.lock().unwrap();
        assert!(!signals.1, "sent to another program");
        signals.0 += 1;
    }

    /// Asks and waits a moment for the answer.
    fn ask(&self, pid: u32) {
        if self.request.ring(pid).is_ok() {
            self.send();
            let _ = self.request.give_up(pid);
        }
    }

    /// Asks and dies before or after the signal is sent.
    fn ask_and_die(&self, pid: u32, sends: bool) {
        if self.request.ring(pid).is_ok() && sends {
            self.send();
        }
        self.gone[pid as usize].store(true, Release);
    }
}

fn model(f: impl Fn(Arc<Process>) + Sync + Send + 'static) {
    shuttle::check_random(move || f(Process::new()), 20_000);
}

#[test]
fn a_program_is_executed_while_two_ask() {
    model(|process| {
        let askers = [1, 2].map(|pid| {
            let process = process.clone();
            thread::spawn(move || process.ask(pid))
        });
        process.handle();
        process.execute();
        for asker in askers {
            asker.join().unwrap();
        }
    });
}

/// A process dies, and another begins with its record: whoever asks signals the one whose door
/// was rung, or nobody.
#[test]
fn a_record_becomes_another_s_while_one_asks() {
    model(|process| {
        let owner = Arc::new(AtomicU32::new(10));
        let asker = {
            let (process, owner) = (process.clone(), owner.clone());
            thread::spawn(move || {
                if process.request.ring(1).is_ok() {
                    let first = owner.load(Acquire);
                    thread::yield_now();
                    assert_eq!(owner.load(Acquire), first, "signalled an heir");
                    process.gone[1].store(true, Release);
                }
            })
        };
        let is_alive = |pid: u32| !process.gone[pid as usize].load(Acquire);
        if process.request.shut_for_dead(is_alive) {
            owner.store(11, Release);
        }
        asker.join().unwrap();
    });
}

#[test]
fn who_asks_may_die_at_any_moment() {
    for sends in [false, true] {
        model(move |process| {
            let asker = {
                let process = process.clone();
                thread::spawn(move || process.ask_and_die(1, sends))
            };
            process.execute();
            asker.join().unwrap();
        });
    }
}
