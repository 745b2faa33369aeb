//! Many threads contend for a mutex and a counter in pages that are being evicted; a count kept
//! where nothing is evicted checks them.

use std::time::Duration;

use uzswap_e2e::{Job, MIB, Scratch, long_form, root_or_skip, seed};

fn race(threads: u32, fault_mode: &str) {
    let (mib, rounds) = if long_form() {
        (1024, 20_000_000)
    } else {
        (128, 400_000)
    };
    let scratch = Scratch::new();
    let args = format!("{mib} {threads} {rounds} {}", seed());
    let outcome = Job::compiled(&scratch, "race/race.c", &args)
        .ram_mib(mib / 8)
        .option("--fault-mode", fault_mode)
        .timeout(Duration::from_secs(if long_form() { 3600 } else { 300 }))
        .managed()
        .expect_success("race");
    print!("{}", outcome.text());
    assert!(outcome.text().contains(": right"), "{}", outcome.text());
    outcome.expect_within(16 * MIB);
    assert!(outcome.stat("zswpin") > 10_000, "{}", outcome.stats);
}

#[test]
fn two_threads() {
    race(2, "signal");
}

#[test]
fn sixteen_threads() {
    race(16, "signal");
}

#[test]
fn sixteen_threads_in_other_fault_modes() {
    race(16, "segv");
    if root_or_skip("fault mode thread") {
        race(16, "thread");
    }
}
