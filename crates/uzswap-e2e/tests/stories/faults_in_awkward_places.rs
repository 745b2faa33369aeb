//! Page faults in awkward places: inside malloc and printf, under locks, in signal handlers, with
//! signals blocked, and in exiting threads.

use uzswap_e2e::{Job, MIB, Scratch, long_form, root_or_skip, users};

fn everything_is_right(job: &Job) {
    let outcome = job.managed().expect_success("interrupted");
    assert_eq!(outcome.text(), "interrupted: right\n");
    outcome.expect_within(16 * MIB);
    assert!(outcome.stat("refaults") > 1000, "{}", outcome.stats);
}

#[test]
fn in_awkward_places() {
    let scratch = Scratch::new();
    let seconds = if long_form() { "120" } else { "3" };
    let job = Job::new(scratch.compile("apps/interrupted.c"))
        .args(["128", seconds])
        .ram_mib(24);
    for &user in users() {
        everything_is_right(&job.clone().user(user).option("--fault-mode", "signal"));
    }
    if root_or_skip("fault mode thread") {
        everything_is_right(&job.option("--fault-mode", "thread"));
    }
}
