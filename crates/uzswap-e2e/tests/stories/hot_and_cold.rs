//! A pool far smaller than the working set, a hot tenth and a cold rest: what is hot ends up in RAM and stays there. (The
//! kernel's zswap once wrote hot pages to disk while cold ones sat in its pool: all stores were
//! rejected until one page at a time was written back.)

use std::process::Command;

use serde_json::Value;
use uzswap_e2e::{Job, Scratch, seed, uzswap};

const SIGUSR1: i32 = 10;
const ROUNDS: usize = 30;
/// Rounds after which it is known what is hot.
const WARM: usize = 3;
/// Cold pages that each round uses.
const COLD: u64 = 512;

/// Pages that the run has read from its swap device so far.
fn pages_read(pid: i32) -> u64 {
    let output = Command::new(uzswap())
        .args(["stat", &pid.to_string(), "--json"])
        .output()
        .expect("uzswap stat starts");
    let stats: Value = serde_json::from_slice(&output.stdout).expect("the stats are JSON");
    stats["pswpin"].as_u64().expect("a number of pages")
}

#[test]
fn hot_pages_end_up_in_ram() {
    let scratch = Scratch::new();
    let mut live = Job::new(scratch.compile("apps/hot.c"))
        .args(["160", &ROUNDS.to_string(), &COLD.to_string()])
        .arg(seed().to_string())
        .ram_mib(32)
        .option("--swap", "/var/tmp")
        .option("--max-pool-percent", "20")
        .start_managed();
    let (mut hot, mut cold, mut before) = (0, 0, 0);
    for round in 0..ROUNDS {
        for (what, sum) in [("hot", &mut hot), ("cold", &mut cold)] {
            live.wait_for(&format!("{what} {round}\n"));
            let read = pages_read(live.pid());
            if round >= WARM {
                *sum += read - before;
            }
            before = read;
            live.signal(SIGUSR1);
        }
    }
    let outcome = live.wait().expect_success("a hot tenth and a cold rest");
    assert!(outcome.text().ends_with("right\n"), "{}", outcome.text());
    println!("pages read from the device: {hot} hot, {cold} cold");
    assert!(
        cold > (ROUNDS - WARM) as u64 * COLD / 2,
        "the cold rest was on the device: {cold}"
    );
    assert!(
        hot * 100 < hot + cold,
        "{hot} hot pages were read beside {cold} cold ones"
    );
    let (written, rejected) = (
        outcome.stat("written_back_pages"),
        outcome.stat("reject_reclaim_fail"),
    );
    assert!(
        written > 1000 * (rejected + 1),
        "{written} written back, {rejected} rejected"
    );
}
