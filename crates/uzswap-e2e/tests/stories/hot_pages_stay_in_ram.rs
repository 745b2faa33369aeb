//! With a pool far smaller than the working set, the hot tenth of it ends up in RAM and stays
//! there. (The kernel's zswap once wrote hot pages to disk while cold ones sat in its pool: it
//! rejected every store until one page at a time was written back.)

use uzswap_e2e::{DISK, Job, Scratch, number, seed};

const ROUNDS: usize = 30;
/// Rounds after which the engine knows what is hot.
const WARM_UP: usize = 3;
/// Cold pages that each round touches.
const COLD: u64 = 512;

#[test]
fn hot_pages_end_up_in_ram() {
    let scratch = Scratch::new();
    let mut live = Job::new(scratch.compile("apps/hot.c"))
        .args(["160", &ROUNDS.to_string(), &COLD.to_string()])
        .arg(seed().to_string())
        // 33 MiB for its data, and up to 4 MiB that it has outside.
        .ram_mib(37)
        .option("--swap", DISK)
        .option("--max-pool-percent", "20")
        .start_managed();
    let (mut before, mut read) = (0, [Vec::new(), Vec::new()]);
    for round in 0..ROUNDS {
        for (what, read) in ["hot", "cold"].into_iter().zip(&mut read) {
            live.wait_for(&format!("{what} {round}\n"));
            let total = number(&live.stat(), "pswpin");
            read.push(total - before);
            before = total;
            live.signal(libc::SIGUSR1);
        }
    }
    let outcome = live.wait().expect_success("a hot tenth and a cold rest");
    assert!(outcome.text().ends_with("right\n"), "{}", outcome.text());
    let [hot, cold] = read.map(|mut rounds| rounds.split_off(WARM_UP));
    println!("pages read from the device, by round: hot {hot:?}, cold {cold:?}");
    let cold: u64 = cold.iter().sum();
    assert!(
        cold > (ROUNDS - WARM_UP) as u64 * COLD / 2,
        "the cold rest was on the device: {cold}"
    );
    // A reclaimer that got no processor for a while may then take a few hundred hot pages at once.
    let quiet = hot.iter().filter(|read| **read == 0).count();
    assert!(
        quiet * 4 >= hot.len() * 3,
        "hot pages were read in all rounds but {quiet}: {hot:?}"
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
