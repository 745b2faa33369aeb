//! Several swap devices at once: which one is written to, and what happens when one cannot be.
//!
//! The `uzswap` of these stories is built with the feature `fault-injection`; see `uzswap_io::fault` for plans.

use serde_json::Value;
use uzswap_e2e::{Job, MIB, Outcome, Scratch, seed};

/// A directory for swap files on a disk; scratch directories may lie in memory.
const DISK: &str = "/var/tmp";

/// Data that do not compress, `mib` of them in 32 MiB, on devices of these priorities and at most `max` each.
fn noise(mib: u64, priorities: &[&str], max: &str, plans: &str) -> Outcome {
    let scratch = Scratch::new();
    let mut job = Job::new(scratch.compile("apps/noise.c"))
        .args([mib.to_string(), seed().to_string()])
        .ram_mib(32)
        .option("--swap-max", max)
        .faults(plans);
    for priority in priorities {
        job = job.option("--swap", format!("{DISK}{priority}"));
    }
    let outcome = job.managed().expect_success(plans);
    assert_eq!(outcome.text(), "right\n");
    outcome.expect_within(16 * MIB);
    outcome
}

/// What the statistics say of the device that is filled as number `at`.
fn device(outcome: &Outcome, at: usize) -> &Value {
    &outcome.stats["swap_devices"][at]
}

fn number(outcome: &Outcome, at: usize, key: &str) -> u64 {
    let value = device(outcome, at)[key].as_u64();
    value.unwrap_or_else(|| panic!("{key} of device {at}: {}", outcome.stats))
}

#[test]
fn the_one_of_higher_priority_is_filled_first() {
    // In the order of priorities, not of the options.
    let enough = noise(96, &[",pri=1", ",pri=9"], "256M", "");
    assert_eq!(device(&enough, 0)["priority"], 9);
    assert_eq!(device(&enough, 1)["priority"], 1);
    assert!(number(&enough, 0, "peak") > 40 * MIB, "{}", enough.stats);
    assert_eq!(number(&enough, 1, "bytes_out"), 0, "{}", enough.stats);
    // Without priorities, in the order in which they are named.
    let small = noise(96, &["", ""], "48M", "");
    assert_eq!(device(&small, 0)["priority"], -1);
    assert_eq!(number(&small, 0, "peak"), 48 * MIB, "{}", small.stats);
    assert!(number(&small, 1, "bytes_out") > 0, "{}", small.stats);
    let sum = |key| (0..2).map(|at| number(&small, at, key)).sum::<u64>();
    assert_eq!(small.stat("swap_total"), 96 * MIB);
    assert_eq!(small.stat("swap_bytes_out"), sum("bytes_out"));
    assert_eq!(small.stat("swap_bytes_in"), sum("bytes_in"));
    assert!(small.stat("swap_peak") <= sum("peak"), "{}", small.stats);
    assert!(small.stat("swap_peak") > 48 * MIB, "{}", small.stats);
}

#[test]
fn those_of_the_same_priority_take_turns() {
    let outcome = noise(96, &[",pri=3", ",pri=3", ",pri=2"], "256M", "");
    let [a, b, last] = [0, 1, 2].map(|at| number(&outcome, at, "bytes_out"));
    assert!(a.abs_diff(b) < (a + b) / 10, "{a} and {b}");
    assert_eq!(last, 0);
}

/// Whatever one device does to what is written to it: the other takes it.
#[test]
fn what_one_cannot_take_goes_to_the_next() {
    for (plans, state) in [
        ("write=eio@1+;", "failed"),
        ("write=eio@20+;", "failed"),
        ("write=enospc@1+;", "on"),
        ("write=eio@20%,write=enospc@20%,write=short@20%;", "on"),
    ] {
        let outcome = noise(96, &[",pri=9", ",pri=1"], "256M", plans);
        assert_eq!(device(&outcome, 0)["state"], state, "{plans}");
        assert_eq!(device(&outcome, 1)["state"], "on", "{plans}");
        assert!(number(&outcome, 1, "bytes_out") > 0, "{plans}");
        let failed = outcome.stat("swap_device_fail");
        assert_eq!(failed, u64::from(state == "failed"), "{plans}");
        let told = outcome.stderr.matches("keeps failing").count();
        assert_eq!(told as u64, failed, "{}", outcome.stderr);
        let failures = number(&outcome, 0, "write_fail");
        assert_eq!(failures, outcome.stat("swap_write_fail"));
        // It is not tried for ever.
        assert!(state == "on" || failures < 40, "{plans}: {failures}");
        assert_eq!(outcome.stat("swap_read_fail"), 0, "{}", outcome.stats);
    }
}

/// Parent and children on three devices, of which one is full soon and one fails now and then.
#[test]
fn a_family_on_several_devices_keeps_its_own() {
    let scratch = Scratch::new();
    let outcome = Job::new(scratch.compile("apps/swapped.c"))
        .args(["family".to_owned(), "24".to_owned(), seed().to_string()])
        .ram_mib(16)
        .option("--swap-max", "24M")
        .option("--swap", format!("{DISK},pri=2"))
        .option("--swap", format!("{DISK},pri=2"))
        .option("--swap", DISK)
        .faults("write=eio@10%,read=short@20%;write=enospc@10%;")
        .managed()
        .expect_success("a family on three devices");
    assert_eq!(outcome.text(), "right\n");
    for at in 0..3 {
        assert!(number(&outcome, at, "bytes_out") > 0, "{}", outcome.stats);
    }
}
