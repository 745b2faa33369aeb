//! Several swap devices at once: which one is written to, what happens when one cannot be, and when one is switched off.
//!
//! The `uzswap` of these stories is built with the feature `fault-injection`; see `uzswap_io::inject` for plans.

use std::time::Duration;

use serde_json::Value;
use uzswap_e2e::{Job, Live, MIB, Outcome, Scratch, seed};

const SIGUSR1: i32 = 10;

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
    let outcome = noise(64, &[",pri=3", ",pri=3", ",pri=2"], "256M", "");
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
        let outcome = noise(64, &[",pri=9", ",pri=1"], "256M", plans);
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

/// What `uzswap swapoff` says of the run of `live`.
fn swapoff(live: &Live, args: &[&str]) -> Outcome {
    Job::new("swapoff")
        .arg(live.pid().to_string())
        .args(args)
        .faults("")
        .uzswap_itself()
}

/// What the run says of itself while it goes on.
fn stat(live: &Live) -> Value {
    let pid = live.pid().to_string();
    let job = Job::new("stat").args([&pid, "--json"]).faults("");
    let outcome = job.uzswap_itself().expect_success("stat");
    serde_json::from_slice(&outcome.stdout).expect("JSON")
}

/// 48 MiB that do not compress, in a process that holds them until it is told to check them.
fn holding(scratch: &Scratch, ram_mib: u64, devices: &[&str], plans: &str) -> Live {
    let mut job = Job::new(scratch.compile("apps/swapped.c"))
        .args(["hold", "48", &seed().to_string()])
        .ram_mib(ram_mib)
        .option("--swap-max", "64M")
        .faults(plans);
    for device in devices {
        job = job.option("--swap", format!("{DISK}{device}"));
    }
    let mut live = job.start_managed();
    live.wait_for("ready");
    live
}

fn check(live: Live) -> Outcome {
    live.signal(SIGUSR1);
    live.wait().expect_success("it checks its memory")
}

#[test]
fn a_device_that_is_switched_off_is_empty_and_its_data_are_on_the_other() {
    let scratch = Scratch::new();
    let live = holding(&scratch, 24, &[",pri=9", ""], "");
    assert!(stat(&live)["swap_devices"][0]["used"].as_u64() > Some(16 * MIB));
    let said = swapoff(&live, &["1", "--json"]).expect_success("swapoff");
    let said: Value = serde_json::from_slice(&said.stdout).expect("JSON");
    assert!(said["brought_back"].as_u64() > Some(16 * MIB), "{said}");
    let after = stat(&live);
    assert_eq!(after["swap_devices"][0]["state"], "off", "{after}");
    assert_eq!(after["swap_devices"][0]["used"], 0, "{after}");
    assert_eq!(after["swap_total"], 64 * MIB, "{after}");
    assert!(after["swap_devices"][1]["used"].as_u64() > Some(16 * MIB));
    let again = swapoff(&live, &["1"]).expect_success("nothing is left to do");
    assert!(again.text().contains("is off; 0 B"), "{}", again.text());
    // Nothing goes there any more.
    let written = after["swap_devices"][0]["bytes_out"].as_u64();
    let outcome = check(live);
    assert_eq!(Some(number(&outcome, 0, "bytes_out")), written);
    assert_eq!(outcome.text(), "ready\nright\n");
    outcome.expect_within(16 * MIB);
}

/// The data are 48 MiB and the limit 24: it fails, nothing is lost, and the device is in use as before.
#[test]
fn what_does_not_fit_stays_where_it_is() {
    let scratch = Scratch::new();
    let live = holding(&scratch, 24, &[""], "");
    let refused = swapoff(&live, &[]);
    assert_eq!(refused.status, 1, "{}", refused.stderr);
    assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    for word in [DISK, "stays in use", "no room", "--ram"] {
        assert!(refused.stderr.contains(word), "{}", refused.stderr);
    }
    assert_eq!(stat(&live)["swap_devices"][0]["state"], "on");
    let wrong = swapoff(&live, &["/nowhere"]);
    assert!(
        wrong.stderr.contains("not a swap device"),
        "{}",
        wrong.stderr
    );
    assert_eq!(check(live).text(), "ready\nright\n");
}

/// What cannot be read cannot be brought back; that is no reason to lose it.
#[test]
fn a_device_that_cannot_be_read_is_not_switched_off() {
    let scratch = Scratch::new();
    let live = holding(&scratch, 24, &[",pri=9", ""], "read=eio@1,read=eio@2;");
    let refused = swapoff(&live, &["1"]);
    assert_eq!(refused.status, 1, "{}", refused.stderr);
    assert_eq!(stat(&live)["swap_devices"][0]["state"], "on");
    assert_eq!(check(live).text(), "ready\nright\n");
}

/// Threads that work on all of it, and families that come and go, while devices are switched off under them.
#[test]
fn devices_go_while_programs_work() {
    let scratch = Scratch::new();
    let devices = [",pri=9", ",pri=5", ""].map(|device| format!("{DISK}{device}"));
    let seed = seed().to_string();
    let pattern =
        Job::new(scratch.compile("pattern/pattern.c")).args(["64", "4", "mixed", "20000", &seed]);
    let family = Job::new(scratch.compile("apps/swapped.c")).args(["family", "24", &seed]);
    // What members of a family that were killed had there stays counted until somebody needs the room.
    for (job, right, leaves_used) in [(pattern, ": right", false), (family, "right\n", true)] {
        let mut job = job
            .ram_mib(16)
            .option("--max-pool-percent", "10")
            .option("--swap-max", "256M")
            .faults("");
        for device in &devices {
            job = job.option("--swap", device);
        }
        let live = job.start_managed();
        let mut off = Vec::new();
        for number in [1, 2] {
            std::thread::sleep(Duration::from_millis(400));
            // The program may have ended, or a child just be at its end.
            if swapoff(&live, &[&number.to_string()]).status == 0 {
                off.push(number - 1);
            }
        }
        println!("switched off in time: {off:?}");
        let outcome = live.wait().expect_success("devices go");
        for at in off {
            assert_eq!(device(&outcome, at)["state"], "off", "{}", outcome.stats);
            let used = number(&outcome, at, "used");
            assert!(used == 0 || leaves_used, "{}", outcome.stats);
        }
        assert!(outcome.text().contains(right), "{}", outcome.text());
        assert_eq!(outcome.stat("swap_read_fail"), 0, "{}", outcome.stats);
    }
}
