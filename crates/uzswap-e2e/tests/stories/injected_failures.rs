//! Failures injected into the swap device's calls and damage to the pool's objects: a program reads
//! right data, or gets SIGBUS.
//!
//! These stories use a `uzswap` built with the feature `fault-injection`; `uzswap_io::inject`
//! describes plans.

use uzswap_e2e::{DISK, Job, Outcome, Scratch, root_or_skip, seed};

/// Four threads on a pool far too small for them and a device that fails by `plan`. No page may be
/// wrong.
fn pattern(plan: &str, options: &str) -> Outcome {
    let scratch = Scratch::new();
    let outcome = threads(&scratch, 8000, "lossy", plan)
        .ram_mib(16)
        .option("--swap", DISK)
        .options("--max-pool-percent 10")
        .options(options)
        .managed()
        .expect_success(plan);
    let text = outcome.text();
    println!("{plan}, {options}: {text}");
    assert!(text.contains(": right"), "{plan}: {text}");
    outcome.expect_within(16 << 20);
    outcome
}

/// Four threads that access 64 MiB while failures are injected by `plan`.
fn threads(scratch: &Scratch, accesses: u32, lossy: &str, plan: &str) -> Job {
    let seed = seed();
    let args = format!("64 4 mixed {accesses} {seed} mmap {lossy}");
    let job = Job::compiled(scratch, "pattern/pattern.c", args.trim_end());
    job.failing(&format!("{plan},seed={seed}"))
}

/// Accesses that ended in SIGBUS.
fn lost(outcome: &Outcome) -> u64 {
    let text = outcome.text();
    let number = text.lines().find_map(|line| line.strip_prefix("lost "));
    number
        .and_then(|n| n.parse().ok())
        .expect("the program says what it lost")
}

/// The pattern test with failures that the program must not notice.
fn unnoticed(plan: &str) -> Outcome {
    let outcome = pattern(plan, "--fault-mode signal --swap-encrypt on");
    assert_eq!(lost(&outcome), 0, "{plan}: {}", outcome.stats);
    assert_eq!(outcome.stat("swap_read_fail"), 0, "{plan}");
    outcome
}

/// A call is tried sixteen times: where a third fail, one in a hundred million never succeeds.
#[test]
fn short_and_interrupted_calls_are_continued() {
    let outcome = unnoticed(
        "read=short@20%,write=short@20%,read=eintr@10%,write=eintr@10%,read=eagain@5%,write=eagain@5%,discard=eio@50%",
    );
    assert_eq!(outcome.stat("swap_write_fail"), 0, "{}", outcome.stats);
    assert!(outcome.stat("pswpin") > 1000, "{}", outcome.stats);
}

#[test]
fn slow_calls_do_not_stop_other_threads() {
    unnoticed("read=delay:3000@5%,write=delay:20000@20%");
}

/// What cannot be written stays in the pool, which is large enough here.
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
fn slots_that_cannot_be_written_are_avoided_and_their_pages_stay() {
    let sometimes = unnoticed("write=eio@20%");
    assert!(sometimes.stat("swap_write_fail") > 0, "{}", sometimes.stats);
    assert!(sometimes.stat("pswpin") > 1000, "{}", sometimes.stats);
    let always = unnoticed("write=eio@1+");
    assert!(always.stat("swap_write_fail") > 0, "{}", always.stats);
    assert_eq!(always.stat("written_back_pages"), 0, "{}", always.stats);
    always.expect_stderr(&["writes to"]);
}

/// A full pool on a broken device is over the limit, and the message names the device.
#[test]
fn a_broken_device_is_the_limit() {
    for (plan, why) in [("write=eio@1+", "failed"), ("write=enospc@1+", "no room")] {
        let scratch = Scratch::new();
        let outcome = Job::compiled(&scratch, "apps/noise.c", &format!("96 {}", seed()))
            .ram_mib(32)
            .option("--swap", DISK)
            .flag("--quiet")
            .failing(plan)
            .managed();
        assert_eq!(outcome.status, 125, "{plan}: {}", outcome.stderr);
        assert_eq!(outcome.stats["failure"]["reason"], "over_limit");
        let last = outcome.stderr.trim_end().lines().last().unwrap_or_default();
        for word in [DISK, why] {
            assert!(last.contains(word), "{plan}: no {word:?} in {last}");
        }
    }
}

/// The pattern test with pages that are lost: each access to one gets SIGBUS and is counted, and
/// one line names the first one's address and device.
fn loses(plan: &str, fault_mode: &str, encrypt: &str) -> Outcome {
    let options = format!("--fault-mode {fault_mode} --swap-encrypt {encrypt}");
    let outcome = pattern(plan, &options);
    let lost = lost(&outcome);
    let counted = outcome.stat("swap_read_fail");
    assert!(lost > 0, "{plan}: {}", outcome.stats);
    if fault_mode != "thread" {
        assert_eq!(counted, lost, "{plan}: {}", outcome.stats);
    } else {
        // Once per page: from then on the kernel poisons it.
        assert!((1..=lost).contains(&counted), "{plan}: {}", outcome.stats);
    }
    reports_loss(&outcome, DISK);
    outcome
}

/// Checks the one line that says which page was lost, and `why`.
fn reports_loss(outcome: &Outcome, why: &str) {
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
fn pages_that_cannot_be_read_raise_sigbus() {
    loses("read=eio@2%", "signal", "on");
    loses("read=eio@2%", "segv", "on");
    if root_or_skip("fault mode thread") {
        loses("read=eio@2%,write=flip@20%", "thread", "on");
    }
}

/// A read that overlaps the eviction making room for it may fail, too: it is repeated, and that
/// decides.
#[test]
fn overlapped_reads_may_fail_too() {
    // The faulting thread evicts.
    let options = "--fault-mode signal --background-reclaim=off";
    let failed = pattern("read=eio@30%", options);
    assert!(lost(&failed) > 0, "{}", failed.stats);
    assert!(failed.stat("swap_reads_early") > 100, "{}", failed.stats);
    let again = pattern("read=short@15%,read=eintr@15%", options);
    assert_eq!(lost(&again), 0, "{}", again.stats);
    assert!(again.stat("swap_reads_early") > 100, "{}", again.stats);
}

#[test]
fn a_bit_flipped_on_the_device_is_detected() {
    for encrypt in ["on", "off"] {
        loses("read=flip@3%", "signal", encrypt);
        loses("write=flip@30%", "signal", encrypt);
    }
}

/// System calls on lost memory, fork with it, and what makes it whole again.
#[test]
fn lost_memory_is_lost_for_system_calls_and_children_too() {
    let scratch = Scratch::new();
    let outcome = Job::compiled(&scratch, "apps/lost.c", &format!("64 {}", seed()))
        .ram_mib(32)
        .option("--swap", DISK)
        .failing("read=eio@1+")
        .managed()
        .expect_success("system calls on lost memory");
    assert_eq!(outcome.text(), "lost 40: right\n");
}

/// Parent and children on one device that fails in every way that loses nothing.
#[test]
fn a_family_on_a_bad_device_keeps_its_own() {
    let scratch = Scratch::new();
    let seed = seed();
    let outcome = Job::compiled(&scratch, "apps/swapped.c", &format!("family 24 {seed}"))
        .ram_mib(16)
        .option("--swap", DISK)
        .failing(&format!(
            "read=short@20%,write=short@20%,read=eintr@10%,write=eio@10%,write=enospc@10%,discard=eio@20%,seed={seed}"
        ))
        .managed()
        .expect_success("a family on a bad device");
    assert_eq!(outcome.text(), "right\n");
    assert!(outcome.stat("swap_write_fail") > 0, "{}", outcome.stats);
    assert!(outcome.stat("swap_full") > 0, "{}", outcome.stats);
}

/// Objects damaged in RAM, compressed and raw, some of them written back damaged: no access sees
/// wrong bytes; each that would gets SIGBUS.
#[test]
fn a_bit_flipped_in_the_pool_is_detected() {
    for (compressor, swap, ram) in [("lz4", "none", 32), ("zstd:1", DISK, 16), ("pz", DISK, 16)] {
        let scratch = Scratch::new();
        let outcome = threads(&scratch, 1500, "lossy", "pool=flip@1%")
            .ram_mib(ram)
            .options("--checksum on")
            .options(&format!("--swap {swap} --compressor {compressor}"))
            .managed()
            .expect_success(compressor);
        let what = format!("{compressor}, swap {swap}: {}", outcome.stats);
        assert!(outcome.text().contains(": right"), "{what}");
        assert!(lost(&outcome) > 0, "{what}");
        assert!(outcome.stat("decompress_fail") > 0, "{what}");
        assert_eq!(outcome.stat("swap_read_fail"), 0, "{what}");
        reports_loss(&outcome, "damaged");
    }
}

/// The same with blocks, in a program that does not handle SIGBUS.
#[test]
fn a_damaged_block_ends_the_program_before_it_sees_wrong_bytes() {
    let scratch = Scratch::new();
    let outcome = threads(&scratch, 1500, "", "pool=flip@5%")
        .ram_mib(32)
        .options("--swap none --checksum on --block 64K")
        .managed();
    assert_eq!(outcome.status, 128 + 7, "SIGBUS: {}", outcome.stderr);
    assert!(!outcome.stderr.contains("WRONG"), "{}", outcome.stderr);
    reports_loss(&outcome, "damaged");
}
