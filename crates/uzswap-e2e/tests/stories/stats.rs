//! What `--stats` writes, what `stat` tells about a live process, and the summary at exit.

use serde_json::Value;
use uzswap_e2e::{Job, MIB, Scratch};

/// The contract's keys.
const KEYS: &str = "pool_limit_hit written_back_pages reject_reclaim_fail reject_compress_fail \
    reject_compress_poor reject_alloc_fail reject_kmemcache_fail decompress_fail pool_total_size \
    stored_pages stored_incompressible_pages same_filled_pages zswpin zswpout zswpwb pswpin pswpout \
    zswap zswapped ram_limit ram_peak resident metadata compression_ratio fault_mode compressor \
    faults refaults reclaim_cancelled fault_ns swap_total swap_used swap_peak orders elapsed_s";

fn has_every_key(stats: &Value) {
    for key in KEYS.split_whitespace() {
        assert!(stats.get(key).is_some(), "{key} is missing: {stats}");
    }
    for key in ["p50", "p99", "max"] {
        assert!(stats["fault_ns"][key].is_u64(), "fault_ns.{key}: {stats}");
    }
    for order in ["4kB", "64kB", "2048kB"] {
        for key in ["zswpout", "swpout", "swpout_fallback", "zswpout_fallback"] {
            assert!(
                stats["orders"][order][key].is_u64(),
                "orders.{order}.{key}: {stats}"
            );
        }
    }
}

fn idle_job(scratch: &Scratch) -> Job {
    Job::new(scratch.compile("apps/idle.c"))
        .arg("128")
        .ram_mib(32)
}

#[test]
fn stats_of_a_live_process() {
    let scratch = Scratch::new();
    let mut live = idle_job(&scratch).start_managed();
    live.wait_for("idle\n");
    let pid = live.pid().to_string();
    let json = Job::new("stat")
        .args([pid.as_str(), "--json"])
        .uzswap_itself()
        .expect_success("stat");
    let stats: Value = serde_json::from_slice(&json.stdout).expect("stat --json prints JSON");
    has_every_key(&stats);
    let number = |key: &str| {
        stats[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key}: {stats}"))
    };
    assert_eq!(number("ram_limit"), 32 * MIB);
    let in_use = number("resident") + number("zswap") + number("metadata");
    assert!(in_use <= 32 * MIB && in_use > 4 * MIB, "{in_use}: {stats}");
    // What it holds is what it filled: the two sides of the limit together.
    let held = number("resident") + number("zswapped");
    assert!((128 * MIB..140 * MIB).contains(&held), "{held}: {stats}");
    // A child's process id does as well as the supervisor's.
    let child = stats["live"][0]["pid"].to_string();
    let table = Job::new("stat")
        .arg(&child)
        .uzswap_itself()
        .expect_success("stat of the child");
    assert!(
        table.text().contains(&child) && table.text().contains("32 MiB"),
        "{}",
        table.text()
    );
    live.signal(libc::SIGTERM);
    let outcome = live.wait().expect_success("idle");
    has_every_key(&outcome.stats);
    assert!(
        outcome.stats["compression_ratio"]
            .as_f64()
            .is_some_and(|r| r > 3.0),
        "{}",
        outcome.stats
    );
}

#[test]
fn the_summary_at_exit() {
    let scratch = Scratch::new();
    let mut live = idle_job(&scratch).start_managed();
    live.wait_for("idle\n");
    live.signal(libc::SIGTERM);
    let outcome = live.wait().expect_success("idle");
    let summary = &outcome.stderr;
    assert!(
        summary.lines().all(|l| l.starts_with("uzswap: ")),
        "{summary}"
    );
    for word in ["peak", "32 MiB", "faults", "refaults", "99 %", "mode"] {
        assert!(summary.contains(word), "no {word:?} in: {summary}");
    }
}

#[test]
fn metadata_is_small() {
    let scratch = Scratch::new();
    let outcome = Job::new(scratch.compile("pattern/pattern.c"))
        .args(["1024", "2", "random", "10000", "1"])
        .ram_mib(128)
        .managed()
        .expect_success("pattern");
    // At most 16 bytes a page of what was stored, and the fixed part (slots, tables' upper levels).
    let pages = outcome.stat("need_peak") / 4096;
    let metadata = outcome.stat("metadata");
    println!("metadata {metadata} bytes for {pages} pages");
    assert!(
        metadata <= pages * 16 + 4 * MIB,
        "{metadata} bytes for {pages} pages"
    );
}

/// Every option can come from the environment.
#[test]
fn options_from_the_environment() {
    let scratch = Scratch::new();
    let file = scratch.join("by-env.json");
    let outcome = Job::new("run")
        .args(["--", "true"])
        .env("UZSWAP_RAM", "96M")
        .env("UZSWAP_COMPRESSOR", "zstd:1")
        .env("UZSWAP_QUIET", "1")
        .env("UZSWAP_STATS", &file)
        .uzswap_itself()
        .expect_success("true");
    assert_eq!(outcome.stderr, "");
    let stats: Value =
        serde_json::from_slice(&std::fs::read(file).expect("written")).expect("JSON");
    assert_eq!(stats["ram_limit"], 96 * MIB);
    assert_eq!(stats["compressor"], "zstd:1");
}
