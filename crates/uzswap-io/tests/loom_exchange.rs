//! The exchange with the broker, explored in every interleaving that loom knows:
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p uzswap-io --test loom_exchange`
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use uzswap_io::exchange::{Claim, Exchange, Lost, Op, Request};

fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn request(op: Op, offset: u64) -> Request {
    let len = 1;
    Request { op, offset, len }
}

/// The broker's loop, until it has served `nr` requests: answers a read with its offset.
fn serve(exchange: &Exchange, nr: usize) {
    let mut served = 0;
    while served < nr {
        let mut all = Vec::new();
        served += exchange.take(2, false, |taken| all.push(taken));
        let is_empty = all.is_empty();
        for taken in all {
            let byte = taken.request.offset as u8;
            // SAFETY: the cell is the broker's, and has one byte.
            exchange.with_taken(&taken, |data| unsafe { *data = byte });
            exchange.complete(taken, 0);
        }
        if is_empty && served < nr {
            exchange.sleep(false, 1);
        }
    }
}

fn read(exchange: &Exchange, owner: u32) -> u8 {
    let claim = exchange.claim_waiting(owner, 1, || true).expect("waits");
    let asked = request(Op::Read, owner.into());
    exchange.submit(core::iter::once((claim, asked)));
    assert_eq!(exchange.wait(&claim, 1, || true), Ok(0));
    // SAFETY: the cell is this thread's, and has one byte.
    let byte = exchange.with_data(&claim, |data| unsafe { *data });
    assert!(exchange.release(&claim));
    byte.expect("a cell")
}

/// Loom's cell reports two sides at the data at once; a lost wake-up is a deadlock.
#[test]
fn each_reads_what_it_asked_for_and_no_wake_up_is_lost() {
    explore(2, || {
        let exchange = Arc::new(Exchange::new());
        let programs: Vec<_> = (1..=2)
            .map(|owner| {
                let exchange = exchange.clone();
                thread::spawn(move || assert_eq!(u32::from(read(&exchange, owner)), owner))
            })
            .collect();
        serve(&exchange, 2);
        for program in programs {
            program.join().unwrap();
        }
        assert!(exchange.is_idle());
    });
}

/// A thread that finds no free cell waits until one is released, and is woken.
#[test]
fn who_waits_for_a_cell_gets_one_that_is_released() {
    explore(3, || {
        let exchange = Arc::new(Exchange::new());
        let held: [Claim; 2] = [1, 2].map(|owner| exchange.claim(owner).expect("free"));
        let waiter = {
            let exchange = exchange.clone();
            thread::spawn(move || exchange.claim_waiting(3, 1, || true).expect("waits"))
        };
        assert!(exchange.release(&held[0]));
        let claim = waiter.join().unwrap();
        assert!(exchange.release(&held[1]) && exchange.release(&claim));
        assert!(exchange.is_idle());
    });
}

/// A program gives up while the broker takes and completes: one of them frees the cell, never both,
/// and never nobody.
#[test]
fn an_abandoned_cell_is_freed_once() {
    explore(3, || {
        let exchange = Arc::new(Exchange::new());
        let claim = exchange.claim(1).expect("free");
        exchange.submit(core::iter::once((claim, request(Op::Write, 7))));
        let broker = {
            let exchange = exchange.clone();
            thread::spawn(move || {
                let mut all = Vec::new();
                exchange.take(2, false, |taken| all.push(taken));
                for taken in all {
                    exchange.complete(taken, 0);
                }
            })
        };
        match exchange.wait(&claim, 1, || false) {
            Ok(error) => {
                assert_eq!(error, 0);
                assert!(exchange.release(&claim));
            }
            Err(lost) => assert_eq!(lost, Lost::Late),
        }
        broker.join().unwrap();
        // It was abandoned after it was completed or taken, or its bit is still there.
        exchange.take(2, false, |_| unreachable!("nobody waits for it"));
        assert!(exchange.is_idle());
    });
}

/// A broker that dies between any two of its steps: its successor answers a read; a write fails.
#[test]
fn a_new_broker_answers_what_the_old_one_had_taken() {
    for op in [Op::Read, Op::Write] {
        explore(3, move || {
            let exchange = Arc::new(Exchange::new());
            let claim = exchange.claim(5).expect("free");
            exchange.submit(core::iter::once((claim, request(op, 5))));
            let program = {
                let exchange = exchange.clone();
                thread::spawn(move || {
                    let error = exchange.wait(&claim, 1, || true);
                    assert!(exchange.release(&claim));
                    error
                })
            };
            // The old one takes it, and is killed.
            exchange.take(1, false, |_| {});
            exchange.recover(5);
            if op == Op::Read {
                serve(&exchange, 1);
            }
            let expected = if op == Op::Read { 0 } else { 5 };
            assert_eq!(program.join().unwrap(), Ok(expected));
            assert!(exchange.is_idle());
        });
    }
}
