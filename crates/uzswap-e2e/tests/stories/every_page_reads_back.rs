//! Every page carries its own number and a changing stamp; with a limit of an eighth of the data,
//! each must read back as it was written, from any number of threads, in any order.
//!
//! `UZSWAP_SEED=N` repeats a run, `UZSWAP_LONG=1` tells the long form.

use std::time::Duration;

use uzswap_e2e::{Job, MIB, Scratch, long_form, root_or_skip, seed};

struct Pattern<'a> {
    threads: u32,
    order: &'a str,
    source: &'a str,
    options: &'a [(&'a str, &'a str)],
    /// The limit is the data's size divided by this.
    share: u64,
}

fn run(pattern: &Pattern) {
    let (mib, accesses) = if long_form() {
        (2048, 2_000_000)
    } else {
        (128, 40_000)
    };
    let scratch = Scratch::new();
    let Pattern {
        threads,
        order,
        source,
        ..
    } = pattern;
    let args = format!("{mib} {threads} {order} {accesses} {} {source}", seed());
    let mut job = Job::compiled(&scratch, "pattern/pattern.c", &args)
        .ram_mib(mib / pattern.share)
        .timeout(Duration::from_secs(if long_form() { 3600 } else { 120 }));
    for (option, value) in pattern.options {
        job = job.option(option, value);
    }
    let what = format!("{threads} threads, {order}, {source}");
    let outcome = job.managed().expect_success(&what);
    print!("{}", outcome.text());
    assert!(
        outcome.text().contains(": right,"),
        "{what}: {}",
        outcome.text()
    );
    outcome.expect_within(16 * MIB);
    // Most of the data was really evicted.
    assert!(
        outcome.stat("zswpin") > mib * 256 / 2,
        "{what}: {}",
        outcome.stats
    );
}

fn all_orders(threads: u32) {
    for order in ["random", "sequential", "strided"] {
        run(&Pattern {
            threads,
            order,
            source: "mmap",
            options: &[],
            share: 8,
        });
    }
}

#[test]
fn one_thread() {
    all_orders(1);
}

#[test]
fn two_threads() {
    all_orders(2);
}

#[test]
fn eight_threads() {
    all_orders(8);
}

#[test]
fn thirty_two_threads() {
    all_orders(32);
}

#[test]
fn memory_from_malloc_and_from_many_mappings() {
    for source in ["malloc", "pieces"] {
        run(&Pattern {
            threads: 4,
            order: "mixed",
            source,
            options: &[],
            share: 8,
        });
    }
}

#[test]
fn every_compressor() {
    for compressor in ["lz4", "zstd", "zstd:3", "pz:1", "pz"] {
        run(&Pattern {
            threads: 4,
            order: "mixed",
            source: "mmap",
            options: &[("--compressor", compressor)],
            // zstd compresses these pages worse than lz4 does.
            share: 4,
        });
    }
}

#[test]
fn every_folio_size() {
    for folio in [
        "4K", "8K", "16K", "32K", "64K", "128K", "256K", "512K", "1M", "2M",
    ] {
        run(&Pattern {
            threads: 4,
            order: "mixed",
            source: "mmap",
            options: &[("--folio", folio)],
            share: 8,
        });
    }
}

#[test]
fn every_size_of_block() {
    for (block, folio, compressor, order, threads) in [
        ("16K", "64K", "zstd", "random", 4),
        ("64K", "64K", "lz4", "mixed", 4),
        ("64K", "64K", "pz", "mixed", 4),
        ("64K", "2M", "zstd", "sequential", 1),
        ("64K", "8K", "deflate", "mixed", 1),
        ("auto", "64K", "zstd", "sequential", 4),
        ("auto", "256K", "lz4", "mixed", 1),
    ] {
        run(&Pattern {
            threads,
            order,
            source: if threads == 1 { "malloc" } else { "mmap" },
            options: &[
                ("--block", block),
                ("--folio", folio),
                ("--compressor", compressor),
            ],
            share: 4,
        });
    }
}

#[test]
fn without_userfaultfd() {
    for (threads, order, source, folio) in [
        (1, "random", "mmap", "64K"),
        (2, "sequential", "malloc", "4K"),
        (8, "mixed", "pieces", "64K"),
    ] {
        run(&Pattern {
            threads,
            order,
            source,
            options: &[("--fault-mode", "segv"), ("--folio", folio)],
            share: 8,
        });
    }
}

#[test]
fn handler_threads() {
    if !root_or_skip("fault mode thread") {
        return;
    }
    for threads in [1, 8] {
        run(&Pattern {
            threads,
            order: "mixed",
            source: "mmap",
            options: &[("--fault-mode", "thread")],
            share: 8,
        });
    }
}

#[test]
fn accelerator_workers() {
    for (accel, compressor, threads, order) in [
        ("engines:2", "zstd", 1, "sequential"),
        ("engines:1", "lz4", 4, "mixed"),
        ("engines:3,mapped", "deflate", 2, "random"),
    ] {
        run(&Pattern {
            threads,
            order,
            source: "mmap",
            options: &[
                ("--accel", accel),
                ("--compressor", compressor),
                ("--verify-compress", "on"),
            ],
            share: 4,
        });
    }
}
