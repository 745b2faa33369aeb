//! Hundreds of processes at once, all with memory on swap: each has its own, and each can fork.

use uzswap_e2e::{DISK, Job, Scratch, number, seed};

/// A parent whose memory is on swap makes 600 children, each of which checks some of it, makes a
/// child of its own, and stays until the last one is there.
#[test]
fn six_hundred_processes_with_memory_on_swap() {
    let scratch = Scratch::new();
    let live = Job::compiled(&scratch, "apps/crowd.c", &format!("600 2 {}", seed()))
        .ram_mib(1024)
        .option("--swap", DISK)
        .start_until("ready\n");
    for args in [&["2M"][..], &["1M", "--writeback-only"]] {
        let _ = live.uzswap("reclaim", args).expect_success("reclaim");
    }
    let mut live = live;
    live.signal(libc::SIGUSR1);
    live.wait_for("here\n");
    let stats = live.stat();
    let nr_live = stats["live"].as_array().map(Vec::len);
    assert!(nr_live > Some(600), "{nr_live:?}");
    assert!(number(&stats, "swapped_pages") > 600 * 128, "{stats}");
    live.signal(libc::SIGUSR1);
    let outcome = live.wait().expect_success("a crowd");
    assert_eq!(outcome.text(), "ready\nhere\nright 600\n");
}
