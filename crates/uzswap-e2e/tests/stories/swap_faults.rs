//! A swap device that fails at any of its calls, and a pool whose objects are damaged: what the program reads is right, or it is
//! told that it cannot be had.
//!
//! The `uzswap` of these stories is built with the feature `fault-injection`; see `uzswap_io::inject` for plans.

use uzswap_e2e::{Job, Outcome, Scratch, is_root, seed, skip};

/// A directory for swap files on a disk; scratch directories may lie in memory.
const DISK: &str = "/var/tmp";

/// Four threads on a pool that is far too small for what they use, on a device that fails by `plan`. No page may be wrong.
fn pattern(plan: &str, fault_mode: &str, encrypt: &str) -> Outcome {
    let scratch = Scratch::new();
    let seed = seed();
    let outcome = Job::new(scratch.compile("pattern/pattern.c"))
        .args(["64", "4", "mixed", "8000", &seed.to_string()])
        .args(["mmap", "lossy"])
        .ram_mib(16)
        .option("--swap", DISK)
        .option("--max-pool-percent", "10")
        .option("--fault-mode", fault_mode)
        .option("--swap-encrypt", encrypt)
        .faults(&format!("{plan},seed={seed}"))
        .managed()
        .expect_success(plan);
    println!(
        "{plan}, {fault_mode} mode, encryption {encrypt}: {}",
        outcome.text()
    );
    assert!(
        outcome.text().contains(": right"),
        "{plan}: {}",
        outcome.text()
    );
    outcome.expect_within(16 << 20);
    outcome
}

/// Accesses that ended in SIGBUS.
fn lost(outcome: &Outcome) -> u64 {
    let text = outcome.text();
    let number = text.lines().find_map(|line| line.strip_prefix("lost "));
    number
        .and_then(|n| n.parse().ok())
        .expect("the program tells what it lost")
}

/// The pattern test with a fault that the program must not notice.
fn unnoticed(plan: &str) -> Outcome {
    let outcome = pattern(plan, "signal", "on");
    assert_eq!(lost(&outcome), 0, "{plan}: {}", outcome.stats);
    assert_eq!(
        outcome.stat("swap_read_fail"),
        0,
        "{plan}: {}",
        outcome.stats
    );
    outcome
}

/// A call is tried sixteen times: of a third that fail, one in a hundred million never succeeds.
#[test]
fn calls_that_do_half_of_it_or_are_interrupted_are_carried_on() {
    let outcome = unnoticed(
        "read=short@20%,write=short@20%,read=eintr@10%,write=eintr@10%,read=eagain@5%,write=eagain@5%,discard=eio@50%",
    );
    assert_eq!(outcome.stat("swap_write_fail"), 0, "{}", outcome.stats);
    assert!(outcome.stat("pswpin") > 1000, "{}", outcome.stats);
}

#[test]
fn slow_calls_let_everybody_else_go_on() {
    unnoticed("read=delay:3000@5%,write=delay:20000@20%");
}

/// What cannot be written stays in the pool, which here holds it.
#[test]
fn a_device_without_space_leaves_everything_in_the_pool() {
    let sometimes = unnoticed("write=enospc@20%,write=edquot@20%");
    assert!(sometimes.stat("swap_full") > 0, "{}", sometimes.stats);
    assert!(sometimes.stat("pswpin") > 1000, "{}", sometimes.stats);
    let always = unnoticed("write=enospc@1+");
    assert!(always.stat("swap_full") > 0, "{}", always.stats);
    assert_eq!(always.stat("written_back_pages"), 0, "{}", always.stats);
}

#[test]
fn slots_that_cannot_be_written_are_left_alone_and_their_pages_stay() {
    let sometimes = unnoticed("write=eio@20%");
    assert!(sometimes.stat("swap_write_fail") > 0, "{}", sometimes.stats);
    assert!(sometimes.stat("pswpin") > 1000, "{}", sometimes.stats);
    let always = unnoticed("write=eio@1+");
    assert!(always.stat("swap_write_fail") > 0, "{}", always.stats);
    assert_eq!(always.stat("written_back_pages"), 0, "{}", always.stats);
    assert!(always.stderr.contains("writes to"), "{}", always.stderr);
}

/// When the device is no help and the pool is full, that is the limit, and the device is named.
#[test]
fn a_broken_device_is_the_limit() {
    for (plan, why) in [("write=eio@1+", "failed"), ("write=enospc@1+", "no room")] {
        let scratch = Scratch::new();
        let outcome = Job::new(scratch.compile("apps/noise.c"))
            .args(["96".to_owned(), seed().to_string()])
            .ram_mib(32)
            .option("--swap", DISK)
            .flag("--quiet")
            .faults(plan)
            .managed();
        assert_eq!(outcome.status, 125, "{plan}: {}", outcome.stderr);
        assert_eq!(outcome.stats["failure"]["reason"], "over_limit");
        let told = outcome.stderr.trim_end().lines().last().unwrap_or_default();
        for word in [DISK, why] {
            assert!(told.contains(word), "{plan}: no {word:?} in {told}");
        }
    }
}

/// Each access to a page that cannot be had back is told by SIGBUS, counted, and for the first one
/// there is a line that names address and device.
fn told(plan: &str, fault_mode: &str, encrypt: &str) -> Outcome {
    let outcome = pattern(plan, fault_mode, encrypt);
    let lost = lost(&outcome);
    let counted = outcome.stat("swap_read_fail");
    assert!(lost > 0, "{plan}: {}", outcome.stats);
    if fault_mode != "thread" {
        assert_eq!(counted, lost, "{plan}: {}", outcome.stats);
    } else {
        // Once a page: the kernel knows it from then on.
        assert!((1..=lost).contains(&counted), "{plan}: {}", outcome.stats);
    }
    told_in_a_line(&outcome, DISK);
    outcome
}

/// The one line that says which page was lost, and `why`.
fn told_in_a_line(outcome: &Outcome, why: &str) {
    let lines: Vec<_> = outcome
        .stderr
        .lines()
        .filter(|line| line.contains("SIGBUS"))
        .collect();
    assert_eq!(lines.len(), 1, "{}", outcome.stderr);
    for word in ["uzswap: ", "0x1000", why] {
        assert!(lines[0].contains(word), "no {word:?} in {lines:?}");
    }
}

#[test]
fn what_cannot_be_read_is_told() {
    told("read=eio@2%", "signal", "on");
    told("read=eio@2%", "segv", "on");
}

/// A read that was begun before there was room for it may fail as any other: it is made once more, and that tells.
#[test]
fn what_is_read_early_may_fail_too() {
    let failed = told("read=eio@30%", "signal", "on");
    assert!(failed.stat("swap_reads_early") > 100, "{}", failed.stats);
    let again = unnoticed("read=short@15%,read=eintr@15%");
    assert!(again.stat("swap_reads_early") > 100, "{}", again.stats);
}

#[test]
fn a_flipped_bit_is_found_out() {
    for encrypt in ["on", "off"] {
        told("read=flip@3%", "signal", encrypt);
        told("write=flip@30%", "signal", encrypt);
    }
}

#[test]
fn handler_threads_tell_it_too() {
    if !is_root() {
        skip("handler threads need root");
        return;
    }
    told("read=eio@2%,write=flip@20%", "thread", "on");
}

/// System calls that are handed memory that is lost, fork children, and what makes it whole.
#[test]
fn lost_memory_is_lost_for_system_calls_and_children_too() {
    let scratch = Scratch::new();
    let outcome = Job::new(scratch.compile("apps/lost.c"))
        .args(["64".to_owned(), seed().to_string()])
        .ram_mib(32)
        .option("--swap", DISK)
        .faults("read=eio@1+")
        .managed()
        .expect_success("system calls on lost memory");
    assert_eq!(outcome.text(), "lost 40: right\n");
}

/// Parent and children on one device that fails in every way that loses nothing.
#[test]
fn a_family_on_a_bad_device_keeps_its_own() {
    let scratch = Scratch::new();
    let seed = seed();
    let outcome = Job::new(scratch.compile("apps/swapped.c"))
        .args(["family".to_owned(), "24".to_owned(), seed.to_string()])
        .ram_mib(16)
        .option("--swap", DISK)
        .faults(&format!(
            "read=short@20%,write=short@20%,read=eintr@10%,write=eio@10%,write=enospc@10%,discard=eio@20%,seed={seed}"
        ))
        .managed()
        .expect_success("a family on a bad device");
    assert_eq!(outcome.text(), "right\n");
    assert!(outcome.stat("swap_write_fail") > 0, "{}", outcome.stats);
    assert!(outcome.stat("swap_full") > 0, "{}", outcome.stats);
}

/// Objects damaged in RAM, compressed and raw, some of them written to the device before anybody looks: no access sees
/// wrong bytes, each that would is told.
#[test]
fn a_bit_that_flips_in_the_pool_is_found_out() {
    for (compressor, swap, ram) in [("lz4", "none", 32), ("zstd:1", DISK, 16), ("pz", DISK, 16)] {
        let scratch = Scratch::new();
        let seed = seed();
        let outcome = Job::new(scratch.compile("pattern/pattern.c"))
            .args(["64", "4", "mixed", "1500", &seed.to_string()])
            .args(["mmap", "lossy"])
            .ram_mib(ram)
            .option("--swap", swap)
            .option("--checksum", "on")
            .option("--compressor", compressor)
            .faults(&format!("pool=flip@1%,seed={seed}"))
            .managed()
            .expect_success(compressor);
        let what = format!("{compressor}, swap {swap}: {}", outcome.stats);
        assert!(outcome.text().contains(": right"), "{what}");
        assert!(lost(&outcome) > 0, "{what}");
        assert!(outcome.stat("decompress_fail") > 0, "{what}");
        assert_eq!(outcome.stat("swap_read_fail"), 0, "{what}");
        told_in_a_line(&outcome, "damaged");
    }
}

/// The same in blocks, to a program that does not expect it.
#[test]
fn a_damaged_block_ends_the_program_before_it_sees_wrong_bytes() {
    let scratch = Scratch::new();
    let seed = seed();
    let outcome = Job::new(scratch.compile("pattern/pattern.c"))
        .args(["64", "4", "mixed", "1500", &seed.to_string()])
        .ram_mib(32)
        .option("--swap", "none")
        .option("--checksum", "on")
        .option("--block", "64K")
        .faults(&format!("pool=flip@5%,seed={seed}"))
        .managed();
    assert_eq!(outcome.status, 128 + 7, "SIGBUS: {}", outcome.stderr);
    assert!(!outcome.stderr.contains("WRONG"), "{}", outcome.stderr);
    told_in_a_line(&outcome, "damaged");
}
