//! `--compressor auto`: lz4 while everything fits, denser where that is what it takes to go on, and it says so.

use serde_json::json;
use uzswap_e2e::{Job, MIB, Outcome, find};

const GROWS: &str = include_str!("../../../../tests/programs/apps/grows.py");

/// So many lines in 24 MiB, 9 of which python takes.
fn grows(lines: &str, swap: &str) -> Outcome {
    let outcome = Job::new(find("python3").expect("python3 is installed"))
        .args(["-c", GROWS, lines])
        .ram_mib(24)
        .option("--swap", swap)
        .managed()
        .expect_success("lines that grow in number");
    assert_eq!(outcome.text(), "right\n");
    assert!(outcome.stat("zswpout") > 500, "{}", outcome.stats);
    assert_eq!(outcome.stats["compressor"], "auto");
    outcome.expect_within(24 * MIB);
    outcome
}

/// With lz4 the pool would take nearly all of the limit, and the program all day.
#[test]
fn what_the_pool_has_no_room_for_is_stored_denser() {
    let outcome = grows("7000", "none");
    assert!(outcome.stat("zswpout_denser") > 1000, "{}", outcome.stats);
    let picked = &outcome.stats["compressor_picked"];
    assert_eq!(*picked, json!(["lz4", "pz:3"]));
    let told = &outcome.stderr;
    assert!(told.contains(" by lz4 and pz:3 (auto, "), "{told}");
}

#[test]
fn what_fits_is_stored_fast() {
    let outcome = grows("5500", "none");
    assert_eq!(outcome.stat("zswpout_denser"), 0, "{}", outcome.stats);
    assert_eq!(outcome.stats["compressor_picked"], json!(["lz4"]));
    let told = &outcome.stderr;
    assert!(told.contains(" by lz4 (auto)"), "{told}");
}

/// Densely it would all but fit: what lz4 made before is made anew, before any of it is written to the device.
#[test]
fn what_was_stored_fast_is_made_denser_before_it_is_written() {
    let outcome = grows("9000", "/var/tmp");
    assert!(outcome.stat("recompressed_pages") > 0, "{}", outcome.stats);
}
