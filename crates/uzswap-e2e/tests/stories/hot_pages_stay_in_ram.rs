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
    let (mut hot, mut cold, mut before) = (0, 0, 0);
    for round in 0..ROUNDS {
        for (what, sum) in [("hot", &mut hot), ("cold", &mut cold)] {
            live.wait_for(&format!("{what} {round}\n"));
            let read = number(&live.stat(), "pswpin");
            if round >= WARM_UP {
                *sum += read - before;
            }
            before = read;
            live.signal(libc::SIGUSR1);
        }
    }
    let outcome = live.wait().expect_success("a hot tenth and a cold rest");
    assert!(outcome.text().ends_with("right\n"), "{}", outcome.text());
    println!("pages read from the device: {hot} hot, {cold} cold");
    assert!(
        cold > (ROUNDS - WARM_UP) as u64 * COLD / 2,
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
