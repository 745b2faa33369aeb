//! With `--dictionary`, what pages of a program have in common is kept once; the program notices nothing, whatever becomes of the
//! dictionaries.

use std::time::{Duration, Instant};

use serde_json::Value;
use uzswap_e2e::{Job, Live, Outcome, Scratch};

const SIGUSR1: i32 = 10;
/// By when something was looked at, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(100);

/// A program whose data change their kind, twice; its story is told with those of all counters, which need this run.
pub fn run(scratch: &Scratch) -> Outcome {
    let mut live = Job::new(scratch.compile("apps/kinds.c"))
        .arg("40")
        .ram_mib(24)
        .option("--compressor", "zstd:1")
        .option("--dictionary", "on")
        .option("--swap", "/var/tmp")
        .start_managed();
    live.wait_for("kind 0\n");
    // Nothing in common: what was trained is not used.
    until(&live, |stats| number(stats, "reject_dictionary_poor") > 0);
    live.signal(SIGUSR1);
    live.wait_for("kind 1\n");
    let first = until(&live, |stats| number(stats, "dictionary_pages") > 1000);
    assert_eq!(number(&first, "dictionary_trained"), 1, "{first}");
    assert!(number(&first, "dictionary_bytes") > 4096, "{first}");
    // They are on the device too, come back, and go there again as they are.
    until(&live, |stats| {
        let more = |key| number(stats, key) > number(&first, key) + 1000;
        more("pswpin") && more("swap_writes_saved")
    });
    live.signal(SIGUSR1);
    live.wait_for("kind 2\n");
    until(&live, |stats| {
        number(stats, "dictionary_trained") > 1 && number(stats, "dictionary_dropped") > 0
    });
    live.signal(SIGUSR1);
    let outcome = live.wait().expect_success("its data are right");
    assert_eq!(outcome.text(), "kind 0\nkind 1\nkind 2\nright\n");
    assert_eq!(outcome.stat("decompress_fail"), 0);
    outcome
}

fn until(live: &Live, seen: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let pid = live.pid().to_string();
        let outcome = Job::new("stat").args([&pid, "--json"]).uzswap_itself();
        let stats: Value =
            serde_json::from_slice(&outcome.expect_success("stat").stdout).expect("JSON");
        if seen(&stats) {
            return stats;
        }
        assert!(begun.elapsed() < PATIENCE, "not seen: {stats}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn number(stats: &Value, key: &str) -> u64 {
    stats[key].as_u64().expect("a number")
}

#[test]
fn it_is_a_switch_that_needs_a_thread() {
    let outcome = Job::new("run")
        .args(["--dictionary", "some", "--", "true"])
        .uzswap_itself();
    assert_eq!(outcome.status, 125, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("on|off"), "{}", outcome.stderr);
    // With folios of any size.
    let outcome = Job::new("true")
        .option("--dictionary", "on")
        .option("--folio", "4K")
        .managed();
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    // Said, since lz4 has no use for it.
    let note = "does nothing until zstd";
    assert!(outcome.stderr.contains(note), "{}", outcome.stderr);
    let mut live = Job::new("sh")
        .args(["-c", "echo up; exec sleep 100"])
        .ram_mib(64)
        .start_managed();
    live.wait_for("up\n");
    let pid = live.pid().to_string();
    let outcome = Job::new("set")
        .args([&pid, "dictionary=on"])
        .uzswap_itself();
    assert_eq!(outcome.status, 1, "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("--dictionary"),
        "{}",
        outcome.stderr
    );
    live.signal(15);
    let _ = live.wait();
}
