//! What the pool costs: nanoseconds for an allocation and a free, on one and two
//! threads, with a warm zspage and with fresh memory, and how well it packs.
//!
//! `cargo bench -p uzswap-pool --bench pool`
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "benchmark arithmetic on small numbers"
)]

#[path = "../tests/pool_support/mod.rs"]
mod pool_support;

use pool_support::{Random, Stored, Table, TestPool};
use std::hint::black_box;
use std::time::Instant;
use uzswap_sync::charge::Reserve;

const ROUNDS: u32 = 2_000_000;
const STORED: u32 = 100_000;

fn main() {
    for round in 0..3 {
        println!("round {round}");
        ping_pong();
        for threads in [1, 2] {
            replace(threads);
        }
        fill_and_empty();
    }
    packing();
}

fn report(what: &str, start: Instant, operations: u32) {
    let ns = start.elapsed().as_nanos() as f64 / f64::from(operations);
    println!("  {what}: {ns:.1} ns");
}

/// One object of one class again and again: the fixed cost.
fn ping_pong() {
    let test = TestPool::new(1 << 30, u64::MAX);
    let mut reserve = Reserve::empty(&test.charge);
    // Another object keeps the zspage alive.
    test.alloc(1200, 0).unwrap();
    let start = Instant::now();
    for owner in 0..ROUNDS {
        let loc = test
            .pool
            .alloc(black_box(1200), owner, &mut reserve)
            .unwrap();
        // SAFETY: allocated just now.
        unsafe { test.pool.free(black_box(loc), &test.charge) };
    }
    report("alloc + free, same object", start, ROUNDS);
}

/// A full pool in which random objects are replaced by others, from all threads:
/// what a program that refaults at random does. Most of it is cache misses.
fn replace(threads: u32) {
    let test = &TestPool::new(1 << 30, u64::MAX);
    let each = STORED / threads;
    let start = std::sync::Barrier::new(threads as usize);
    let start = &start;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut random = Random::new(u64::from(thread) + 1);
                let mut reserve = Reserve::empty(&test.charge);
                let mut stored: Vec<_> = (0..each)
                    .map(|owner| test.alloc(random.compressed_size(), owner).unwrap())
                    .collect();
                // Sizes and victims are drawn beforehand.
                let plan: Vec<_> = (0..ROUNDS / 2)
                    .map(|_| {
                        (
                            random.below(u64::from(each)) as usize,
                            random.compressed_size(),
                        )
                    })
                    .collect();
                start.wait();
                let start = Instant::now();
                for &(victim, size) in &plan {
                    // SAFETY: stored, and freed once.
                    unsafe { test.pool.free(stored[victim], &test.charge) };
                    stored[victim] = test.pool.alloc(size, 7, &mut reserve).unwrap();
                }
                report(
                    &format!("free + alloc, random of {STORED}, thread {thread} of {threads}"),
                    start,
                    ROUNDS / 2,
                );
            });
        }
    });
}

/// A pool that grows from nothing and goes back to nothing: the kernel's share.
fn fill_and_empty() {
    let test = TestPool::new(1 << 30, u64::MAX);
    let mut random = Random::new(3);
    let sizes: Vec<_> = (0..STORED).map(|_| random.compressed_size()).collect();
    let mut reserve = Reserve::empty(&test.charge);
    let start = Instant::now();
    let locs: Vec<_> = sizes
        .iter()
        .map(|&size| test.pool.alloc(size, 7, &mut reserve).unwrap())
        .collect();
    report("alloc, into fresh memory", start, STORED);
    let start = Instant::now();
    for &loc in &locs {
        // SAFETY: stored, and freed once.
        unsafe { test.pool.free(loc, &test.charge) };
    }
    test.pool.trim(&test.charge);
    report("free, memory given back", start, STORED);
}

fn packing() {
    let test = TestPool::new(1 << 30, u64::MAX);
    let mut random = Random::new(9);
    let table = Table::new(STORED);
    let mut bytes = 0;
    let store = |owner, random: &mut Random| {
        let size = random.compressed_size();
        let loc = test.alloc(size, owner).unwrap();
        *table.hold(owner) = Some(Stored {
            loc,
            size,
            version: 0,
        });
        size
    };
    let waste = |bytes: usize| {
        let pages = test.pool.total_pages();
        ((pages * 4096) as f64 / bytes as f64 - 1.0) * 100.0
    };
    for owner in 0..STORED {
        bytes += store(owner, &mut random);
    }
    println!("waste when filled: {:.2} %", waste(bytes));
    for _ in 0..STORED * 10 {
        let owner = random.below(u64::from(STORED)) as u32;
        let old = table.hold(owner).take().unwrap();
        // SAFETY: the entry is empty now.
        unsafe { test.pool.free(old.loc, &test.charge) };
        bytes = bytes - old.size + store(owner, &mut random);
    }
    println!("waste after ten generations: {:.2} %", waste(bytes));
    let start = Instant::now();
    let freed = test.pool.compact(&test.charge, u64::MAX, &mut &table);
    let took = start.elapsed();
    println!(
        "waste after compaction: {:.2} % ({freed} pages in {took:.1?}, {:.2} us a page)",
        waste(bytes),
        took.as_secs_f64() * 1e6 / freed as f64
    );
}
