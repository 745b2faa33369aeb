//! Nanoseconds to charge a folio's pages to the limit of a group and take them off again, within
//! what the process was granted and beyond: `cargo bench -p uzswap-sync`.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Instant;

use uzswap_sync::charge::{Charge, Membership};
use uzswap_sync::ledger::Ledger;

/// Pages of a folio.
const FOLIO: u64 = 32;
/// Folios of each process.
const FOLIOS: u64 = 1 << 14;
const ROUNDS: usize = 200;

/// A charge for each process of a group of `nr`, which have all `granted` that they will need, or
/// nothing yet.
fn group(nr: usize, granted: bool) -> Vec<Charge> {
    let ledger: &'static Ledger = Box::leak(Box::default());
    let limit: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(u64::MAX >> 12)));
    let own_limit: &'static AtomicU64 = Box::leak(Box::default());
    let charges = (0..nr).map(|at| {
        let charge = Charge::new(0);
        charge.follow(&Membership {
            share: ledger.begin(at),
            ledger,
            limit,
            own_limit,
            at_ceiling: false,
        });
        if granted {
            charge.keep_slack(FOLIO * FOLIOS);
        }
        charge
    });
    charges.collect()
}

/// Nanoseconds a folio, in the fastest of all rounds. What was granted is given back after each,
/// unless it is to be `kept`.
fn fastest(charge: &Charge, kept: bool) -> f64 {
    let round = |_| {
        let begin = Instant::now();
        for _ in 0..FOLIOS {
            assert!(black_box(charge).try_charge(FOLIO));
        }
        for _ in 0..FOLIOS {
            black_box(charge).uncharge(FOLIO);
        }
        let took = begin.elapsed();
        if !kept {
            charge.give_back(0);
        }
        took
    };
    let best = (0..ROUNDS).map(round).min();
    best.expect("rounds").as_secs_f64() * 1e9 / FOLIOS as f64
}

/// As [`fastest`], in two processes at once, the slower of both.
fn in_two(first: &Charge, second: &Charge, kept: bool) -> f64 {
    thread::scope(|scope| {
        let beside = scope.spawn(|| fastest(second, kept));
        fastest(first, kept).max(beside.join().expect("a round"))
    })
}

fn main() {
    let alone = Charge::new(FOLIO * FOLIOS);
    println!("ns a folio              one busy   two busy");
    println!("in no group             {:8.1}", fastest(&alone, true));
    for nr in [2, 8, 64] {
        for (name, granted) in [("granted", true), ("not granted", false)] {
            let charges = group(nr, granted);
            let one = fastest(&charges[0], granted);
            let two = in_two(&charges[0], &charges[1], granted);
            println!("{nr:2} processes, {name:11} {one:8.1}   {two:8.1}");
        }
    }
}
