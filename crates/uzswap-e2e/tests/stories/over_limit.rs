//! Data that does not fit even compressed ends the program with one clear message and status 125,
//! or goes over the limit where that was allowed.

use uzswap_e2e::{Job, MIB, Scratch};

#[test]
fn ends_with_one_clear_message() {
    let scratch = Scratch::new();
    let job = Job::new(scratch.compile("apps/noise.c"))
        .args(["128", "7"])
        .ram_mib(48)
        .option("--swap", "none")
        .flag("--quiet");
    assert_eq!(job.native().text(), "right\n");
    let outcome = job.managed();
    assert_eq!(outcome.status, 125, "{}", outcome.stderr);
    assert_eq!(outcome.text(), "");
    assert_eq!(
        outcome.stderr.trim_end().lines().count(),
        1,
        "{}",
        outcome.stderr
    );
    for word in [
        "uzswap: ",
        "noise",
        "at least",
        "48 MiB",
        "--over-limit=allow",
    ] {
        assert!(
            outcome.stderr.contains(word),
            "no {word:?} in: {}",
            outcome.stderr
        );
    }
    // The statistics are written all the same, and the limit held to the end.
    outcome.expect_within(16 * MIB);
    assert_eq!(outcome.stats["failure"]["reason"], "over_limit");
    let needed = outcome.stats["failure"]["needed"]
        .as_u64()
        .expect("a number of bytes");
    assert!(needed > 48 * MIB && needed < 256 * MIB, "{needed}");
}

#[test]
fn allow_lets_it_finish() {
    let scratch = Scratch::new();
    let outcome = Job::new(scratch.compile("apps/noise.c"))
        .args(["128", "7"])
        .ram_mib(48)
        .option("--swap", "none")
        .option("--over-limit", "allow")
        .managed()
        .expect_success("noise beyond the limit");
    assert_eq!(outcome.text(), "right\n");
    assert!(outcome.stat("ram_peak") > 100 * MIB, "{}", outcome.stats);
    assert!(
        outcome.peak_rss < 200 * MIB,
        "{} MiB",
        outcome.peak_rss / MIB
    );
}

/// What does not compress is kept raw, and that works as long as it fits.
#[test]
fn what_does_not_compress_is_kept() {
    let scratch = Scratch::new();
    let outcome = Job::new(scratch.compile("apps/noise.c"))
        .args(["64", "7"])
        .ram_mib(80)
        .managed()
        .expect_success("noise within the limit");
    assert_eq!(outcome.text(), "right\n");
    outcome.expect_within(16 * MIB);
}
