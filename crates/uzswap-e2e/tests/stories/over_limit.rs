//! Data that does not fit even compressed ends the program with one clear message and status 125,
//! or exceeds the limit where that is allowed.

use uzswap_e2e::{Job, MIB, Scratch, number};

#[test]
fn ends_with_one_clear_message() {
    let scratch = Scratch::new();
    let job = Job::compiled(&scratch, "apps/noise.c", "128 7")
        .ram_mib(48)
        .option("--swap", "none")
        .flag("--quiet");
    assert_eq!(job.native().text(), "right\n");
    let words = [
        "uzswap: ",
        "noise",
        "at least",
        "48 MiB",
        "--over-limit=allow",
    ];
    let outcome = job.managed().expect_refused(125, &words);
    assert_eq!(outcome.text(), "");
    // Statistics are written all the same, and the limit held to the end.
    outcome.expect_within(16 * MIB);
    assert_eq!(outcome.stats["failure"]["reason"], "over_limit");
    let needed = number(&outcome.stats["failure"], "needed");
    assert!(needed > 48 * MIB && needed < 256 * MIB, "{needed}");
}

#[test]
fn allow_lets_it_finish() {
    let scratch = Scratch::new();
    let outcome = Job::compiled(&scratch, "apps/noise.c", "128 7")
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

/// Incompressible pages are kept raw, as long as they fit.
#[test]
fn incompressible_pages_are_kept_raw() {
    let scratch = Scratch::new();
    let outcome = Job::compiled(&scratch, "apps/noise.c", "64 7")
        .ram_mib(80)
        .managed()
        .expect_success("noise within the limit");
    assert_eq!(outcome.text(), "right\n");
    outcome.expect_within(16 * MIB);
}
