//! A page fault never calls the program's malloc: a program with its own counts the calls, and
//! holds its heap's lock while faulting.

use uzswap_e2e::{Job, Scratch, root_or_skip};

#[test]
fn none() {
    let scratch = Scratch::new();
    let program = scratch.compile("apps/own_malloc.c");
    for mode in ["signal", "thread"] {
        if mode == "thread" && !root_or_skip("fault mode thread") {
            continue;
        }
        let outcome = Job::new(&program)
            .arg("256")
            .ram_mib(32)
            .option("--fault-mode", mode)
            .managed()
            .expect_success(mode);
        assert_eq!(
            outcome.text(),
            "own_malloc: 0 calls in plain faults, 0 under the heap's lock, data right\n"
        );
        assert!(outcome.stat("refaults") > 10_000, "{}", outcome.stats);
    }
}
