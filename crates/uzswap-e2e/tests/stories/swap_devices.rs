//! Several swap devices: which one is written to, what happens when one fails, and switching one
//! off.
//!
//! These stories use a `uzswap` built with the feature `fault-injection`; `uzswap_io::inject`
//! describes plans.

use std::time::Duration;

use serde_json::Value;
use uzswap_e2e::{DISK, Job, Live, MIB, Outcome, Scratch, seed};

/// The job on swap devices in `DISK` with these options, such as `,pri=9`, of at most `max` each.
fn on_devices(mut job: Job, devices: &[&str], max: &str) -> Job {
    for device in devices {
        job = job.option("--swap", format!("{DISK}{device}"));
    }
    job.option("--swap-max", max)
}

/// `mib` MiB of incompressible data in 32 MiB, on these devices.
fn noise(mib: u64, devices: &[&str], max: &str, plans: &str) -> Outcome {
    let scratch = Scratch::new();
    let job = Job::compiled(&scratch, "apps/noise.c", &format!("{mib} {}", seed()))
        .ram_mib(32)
        .failing(plans);
    let outcome = on_devices(job, devices, max)
        .managed()
        .expect_success(plans);
    assert_eq!(outcome.text(), "right\n");
    outcome.expect_within(16 * MIB);
    outcome
}

/// The statistics of the device with number `at` in the order of use.
fn device(outcome: &Outcome, at: usize) -> &Value {
    &outcome.stats["swap_devices"][at]
}

fn number(outcome: &Outcome, at: usize, key: &str) -> u64 {
    uzswap_e2e::number(device(outcome, at), key)
}

#[test]
fn devices_are_filled_in_the_order_of_priorities() {
    let enough = noise(96, &[",pri=1", ",pri=9"], "256M", "");
    assert_eq!(device(&enough, 0)["priority"], 9);
    assert_eq!(device(&enough, 1)["priority"], 1);
    assert!(number(&enough, 0, "peak") > 40 * MIB, "{}", enough.stats);
    assert_eq!(number(&enough, 1, "bytes_out"), 0, "{}", enough.stats);
    // Without priorities, in the order of the options.
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
fn devices_of_the_same_priority_take_turns() {
    let outcome = noise(64, &[",pri=3", ",pri=3", ",pri=2"], "256M", "");
    let [a, b, last] = [0, 1, 2].map(|at| number(&outcome, at, "bytes_out"));
    assert!(a.abs_diff(b) < (a + b) / 10, "{a} and {b}");
    assert_eq!(last, 0);
}

/// However writes to one device fail, the other takes the data.
#[test]
fn writes_that_fail_go_to_the_next_device() {
    for (plans, state) in [
        ("write=eio@1+;", "failed"),
        ("write=eio@20+;", "failed"),
        ("write=enospc@1+;", "on"),
        ("write=eio@20%,write=enospc@20%,write=short@20%;", "on"),
    ] {
        let outcome = noise(64, &[",pri=9", ",pri=1"], "256M", plans);
        assert_eq!(device(&outcome, 0)["state"], state, "{plans}");
        assert_eq!(device(&outcome, 1)["state"], "on", "{plans}");
        assert!(number(&outcome, 1, "bytes_out") > 0, "{plans}");
        let failed = outcome.stat("swap_device_fail");
        assert_eq!(failed, u64::from(state == "failed"), "{plans}");
        let lines = outcome.stderr.matches("keeps failing").count();
        assert_eq!(lines as u64, failed, "{}", outcome.stderr);
        let failures = number(&outcome, 0, "write_fail");
        assert_eq!(failures, outcome.stat("swap_write_fail"));
        // A failed device is given up.
        assert!(state == "on" || failures < 40, "{plans}: {failures}");
        assert_eq!(outcome.stat("swap_read_fail"), 0, "{}", outcome.stats);
    }
}

/// Parent and children on three devices, of which one is soon full and one fails now and then.
#[test]
fn a_family_on_several_devices_keeps_its_own() {
    let scratch = Scratch::new();
    let job = Job::compiled(&scratch, "apps/swapped.c", &format!("family 24 {}", seed()))
        .ram_mib(16)
        .failing("write=eio@10%,read=short@20%;write=enospc@10%;");
    let outcome = on_devices(job, &[",pri=2", ",pri=2", ""], "24M")
        .managed()
        .expect_success("a family on three devices");
    assert_eq!(outcome.text(), "right\n");
    for at in 0..3 {
        assert!(number(&outcome, at, "bytes_out") > 0, "{}", outcome.stats);
    }
}

/// 48 MiB of incompressible data, in a process that holds them and checks them on SIGUSR1.
fn holding(scratch: &Scratch, devices: &[&str], plans: &str) -> Live {
    let job = Job::compiled(scratch, "apps/swapped.c", &format!("hold 48 {}", seed()))
        .ram_mib(24)
        .failing(plans);
    on_devices(job, devices, "64M").start_until("ready")
}

#[test]
fn swapoff_empties_a_device_onto_the_other() {
    let scratch = Scratch::new();
    let live = holding(&scratch, &[",pri=9", ""], "");
    assert!(live.stat()["swap_devices"][0]["used"].as_u64() > Some(16 * MIB));
    let said = live.uzswap("swapoff", &["1", "--json"]);
    let said = said.expect_success("swapoff").json();
    assert!(said["brought_back"].as_u64() > Some(16 * MIB), "{said}");
    let after = live.stat();
    assert_eq!(after["swap_devices"][0]["state"], "off", "{after}");
    assert_eq!(after["swap_devices"][0]["used"], 0, "{after}");
    assert_eq!(after["swap_total"], 64 * MIB, "{after}");
    assert!(after["swap_devices"][1]["used"].as_u64() > Some(16 * MIB));
    let again = live
        .uzswap("swapoff", &["1"])
        .expect_success("nothing is left to do");
    assert!(again.text().contains("is off; 0 B"), "{}", again.text());
    // Nothing is written to it any more.
    let written = after["swap_devices"][0]["bytes_out"].as_u64();
    let outcome = live.end_by(libc::SIGUSR1);
    assert_eq!(Some(number(&outcome, 0, "bytes_out")), written);
    assert_eq!(outcome.text(), "ready\nright\n");
    outcome.expect_within(16 * MIB);
}

/// 48 MiB do not fit the limit of 24: swapoff fails, nothing is lost, and the device stays in use.
#[test]
fn swapoff_fails_where_the_data_does_not_fit() {
    let scratch = Scratch::new();
    let live = holding(&scratch, &[""], "");
    let words = [DISK, "stays in use", "no room", "--ram"];
    let _ = live.uzswap("swapoff", &[]).expect_refused(1, &words);
    assert_eq!(live.stat()["swap_devices"][0]["state"], "on");
    let wrong = live.uzswap("swapoff", &["/nowhere"]);
    wrong.expect_stderr(&["not a swap device"]);
    assert_eq!(live.end_by(libc::SIGUSR1).text(), "ready\nright\n");
}

/// A page that cannot be read cannot be brought back; that is no reason to lose it.
#[test]
fn swapoff_fails_where_the_device_cannot_be_read() {
    let scratch = Scratch::new();
    let live = holding(&scratch, &[",pri=9", ""], "read=eio@1,read=eio@2;");
    let refused = live.uzswap("swapoff", &["1"]);
    assert_eq!(refused.status, 1, "{}", refused.stderr);
    assert_eq!(live.stat()["swap_devices"][0]["state"], "on");
    assert_eq!(live.end_by(libc::SIGUSR1).text(), "ready\nright\n");
}

/// Busy threads, and families that come and go, while devices are switched off under them.
#[test]
fn swapoff_under_programs_at_work() {
    let scratch = Scratch::new();
    let seed = seed();
    let pattern = format!("64 4 mixed 20000 {seed}");
    let pattern = Job::compiled(&scratch, "pattern/pattern.c", &pattern);
    let family = Job::compiled(&scratch, "apps/swapped.c", &format!("family 24 {seed}"));
    // Slots of killed members of a family stay counted until the room is needed.
    for (job, right, leaves_used) in [(pattern, ": right", false), (family, "right\n", true)] {
        let job = job
            .ram_mib(16)
            .option("--max-pool-percent", "10")
            .failing("");
        let live = on_devices(job, &[",pri=9", ",pri=5", ""], "256M").start_managed();
        let mut off = Vec::new();
        for number in [1, 2] {
            std::thread::sleep(Duration::from_millis(400));
            // The program may have ended, or a child may be exiting.
            if live.uzswap("swapoff", &[&number.to_string()]).status == 0 {
                off.push(number - 1);
            }
        }
        println!("switched off in time: {off:?}");
        let outcome = live.wait().expect_success("a program without its devices");
        for at in off {
            assert_eq!(device(&outcome, at)["state"], "off", "{}", outcome.stats);
            let used = number(&outcome, at, "used");
            assert!(used == 0 || leaves_used, "{}", outcome.stats);
        }
        assert!(outcome.text().contains(right), "{}", outcome.text());
        assert_eq!(outcome.stat("swap_read_fail"), 0, "{}", outcome.stats);
    }
}
