//! Every page carries its own number and a changing stamp; with a limit of an eighth of the data,
//! each must read back as it was written, from any number of threads, in any order.
//! `UZSWAP_SEED=N` repeats a run, `UZSWAP_LONG=1` runs the long form.

use std::time::Duration;

use uzswap_e2e::{Job, MIB, Scratch, long_form, root_or_skip, seed};

/// Runs the pattern in memory from `source`, with a limit of the data's size divided by `share`.
fn run(threads: u32, order: &str, source: &str, share: u64, options: &str) {
    let (mib, accesses, seconds) = if long_form() {
        (2048, 2_000_000, 3600)
    } else {
        (128, 40_000, 300)
    };
    let scratch = Scratch::new();
    let args = format!("{mib} {threads} {order} {accesses} {} {source}", seed());
    let job = Job::compiled(&scratch, "pattern/pattern.c", &args)
        .ram_mib(mib / share)
        .options(options)
        .timeout(Duration::from_secs(seconds));
    let what = format!("{threads} threads, {order}, {source}, {options}");
    let outcome = job.managed().expect_success(&what);
    let text = outcome.text();
    print!("{text}");
    assert!(text.contains(": right,"), "{what}: {text}");
    outcome.expect_within(16 * MIB);
    // Most of the data was really evicted.
    let loaded = outcome.stat("zswpin");
    assert!(loaded > mib * 256 / 2, "{what}: {}", outcome.stats);
}

fn all_orders(threads: u32) {
    for order in ["random", "sequential", "strided"] {
        run(threads, order, "mmap", 8, "");
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
        run(4, "mixed", source, 8, "");
    }
}

#[test]
fn every_compressor() {
    for compressor in ["lz4", "zstd", "zstd:3", "pz:1", "pz"] {
        // zstd compresses these pages worse than lz4 does, so the share is larger.
        let options = format!("--compressor {compressor}");
        run(4, "mixed", "mmap", 4, &options);
    }
}

#[test]
fn every_folio_size() {
    for folio in [
        "4K", "8K", "16K", "32K", "64K", "128K", "256K", "512K", "1M", "2M",
    ] {
        run(4, "mixed", "mmap", 8, &format!("--folio {folio}"));
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
        let source = if threads == 1 { "malloc" } else { "mmap" };
        let options = format!("--block {block} --folio {folio} --compressor {compressor}");
        run(threads, order, source, 4, &options);
    }
}

#[test]
fn without_userfaultfd() {
    for (threads, order, source, folio) in [
        (1, "random", "mmap", "64K"),
        (2, "sequential", "malloc", "4K"),
        (8, "mixed", "pieces", "64K"),
    ] {
        let options = format!("--fault-mode segv --folio {folio}");
        run(threads, order, source, 8, &options);
    }
}

#[test]
fn handler_threads() {
    if !root_or_skip("fault mode thread") {
        return;
    }
    for threads in [1, 8] {
        run(threads, "mixed", "mmap", 8, "--fault-mode thread");
    }
}

#[test]
fn accelerator_workers() {
    for (accel, compressor, threads, order) in [
        ("engines:2", "zstd", 1, "sequential"),
        ("engines:1", "lz4", 4, "mixed"),
        ("engines:3,mapped", "deflate", 2, "random"),
    ] {
        let options = format!("--accel {accel} --compressor {compressor} --verify-compress on");
        run(threads, order, "mmap", 4, &options);
    }
}
