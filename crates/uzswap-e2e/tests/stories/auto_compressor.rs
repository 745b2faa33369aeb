//! `--compressor auto`: denser than lz4 where that saves faults or room, and it says so.

use serde_json::json;
use uzswap_e2e::{DISK, Job, MIB, Outcome};

const GROWS: &str = include_str!("../../../../tests/programs/apps/grows.py");

/// Keeps `lines` lines in 27 MiB, 9 of which Python takes, and 3 are outside.
fn grows(lines: &str, swap: &str) -> Outcome {
    let outcome = Job::python(GROWS)
        .arg(lines)
        .ram_mib(27)
        .option("--swap", swap)
        .managed()
        .expect_success("lines that grow in number");
    assert_eq!(outcome.text(), "right\n");
    assert!(outcome.stat("zswpout") > 500, "{}", outcome.stats);
    assert_eq!(outcome.stats["compressor"], "auto");
    outcome.expect_within(24 * MIB);
    outcome
}

/// With lz4 the pool would take nearly all of the limit, and the program would thrash.
#[test]
fn a_pool_without_room_stores_denser() {
    let outcome = grows("7000", "none");
    assert!(outcome.stat("zswpout_denser") > 1000, "{}", outcome.stats);
    let picked = &outcome.stats["compressor_picked"];
    assert_eq!(*picked, json!(["lz4", "pz"]));
    outcome.expect_stderr(&[" by lz4 and pz (auto, "]);
}

/// It fits by lz4, too, but more of it stays out of the pool the denser that is.
#[test]
fn data_that_fits_is_stored_denser_where_that_saves_faults() {
    let outcome = grows("5500", "none");
    let denser = outcome.stat("zswpout_denser");
    assert!(denser > outcome.stat("zswpout") / 4, "{}", outcome.stats);
}

/// Stored densely the data nearly fits: objects stored by lz4 are recompressed before any is
/// written back.
#[test]
fn objects_are_recompressed_before_they_are_written_back() {
    let outcome = grows("9000", DISK);
    assert!(outcome.stat("recompressed_pages") > 0, "{}", outcome.stats);
}
