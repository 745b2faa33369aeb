//! What `--stats` writes, what `stat` says of a live process, and the summary at exit.

use serde_json::Value;
use uzswap_e2e::{Job, MIB, Scratch, number};

/// The keys that docs/stats.md promises.
const KEYS: &str = "pool_limit_hit written_back_pages reject_reclaim_fail reject_compress_fail \
    reject_compress_poor reject_alloc_fail reject_kmemcache_fail decompress_fail pool_total_size \
    stored_pages stored_incompressible_pages same_filled_pages zswpin zswpout zswpwb pswpin pswpout \
    zswap zswapped unmanaged unmanaged_peak ram_limit ram_peak resident metadata compression_ratio \
    fault_mode compressor faults refaults reclaim_cancelled fault_ns stall_s swap_total swap_used \
    swap_peak orders elapsed_s";

fn has_every_key(stats: &Value) {
    for key in KEYS.split_whitespace() {
        assert!(stats.get(key).is_some(), "{key} is missing: {stats}");
    }
    for key in ["p50", "p99", "p999", "max"] {
        assert!(stats["fault_ns"][key].is_u64(), "fault_ns.{key}: {stats}");
    }
    for key in ["decompress", "reclaim", "swap"] {
        assert!(stats["stall_s"][key].is_f64(), "stall_s.{key}: {stats}");
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

#[test]
fn stats_of_a_live_process_and_the_summary_at_its_end() {
    let scratch = Scratch::new();
    let live = Job::idle(&scratch, 128).ram_mib(32).start_until("idle\n");
    let stats = live.stat();
    has_every_key(&stats);
    let sum = |keys: &[&str]| keys.iter().map(|key| number(&stats, key)).sum::<u64>();
    assert_eq!(number(&stats, "ram_limit"), 32 * MIB);
    let in_use = sum(&["resident", "zswap", "metadata"]);
    assert!(in_use <= 32 * MIB && in_use > 4 * MIB, "{in_use}: {stats}");
    // It holds what it filled: resident and compressed together.
    let held = sum(&["resident", "zswapped"]);
    assert!((128 * MIB..140 * MIB).contains(&held), "{held}: {stats}");
    // A child's pid does as well as the supervisor's.
    let child = stats["live"][0]["pid"].to_string();
    let table = Job::new("stat").arg(&child).uzswap_itself();
    let table = table.expect_success("stat of the child").text();
    assert!(
        table.contains(&child) && table.contains("32 MiB"),
        "{table}"
    );
    let outcome = live.end_by(libc::SIGTERM);
    has_every_key(&outcome.stats);
    let ratio = outcome.stats["compression_ratio"].as_f64();
    assert!(ratio.is_some_and(|r| r > 3.0), "{}", outcome.stats);
    let summary = &outcome.stderr;
    let is_ours = summary.lines().all(|line| line.starts_with("uzswap: "));
    assert!(is_ours, "{summary}");
    outcome.expect_stderr(&["peak", "32 MiB", "faults", "refaults", "99 %", "mode"]);
    outcome.expect_stderr(&["s for pages", "s for room", "s for swap", "in background"]);
}

/// Where threads wait is told apart; what the reclaimer does beside them is no wait.
#[test]
fn waits_are_told_apart() {
    const PATTERN: &str = "pattern/pattern.c";
    const ARGS: &str = "128 1 random 60000 1";
    let scratch = Scratch::new();
    let run = |what: &str, program: &str, arguments: &str, options: &str| {
        let job = Job::compiled(&scratch, program, arguments);
        let outcome = job.options(options).managed().expect_success(what);
        let stall = |kind: &str| outcome.stats["stall_s"][kind].as_f64().expect("seconds");
        let [pages, room, swap] = ["decompress", "reclaim", "swap"].map(stall);
        let second = |key: &str| outcome.stats[key].as_f64().expect("seconds");
        let [faults, reclaim, background] =
            ["fault_s", "reclaim_s", "reclaim_background_s"].map(second);
        println!("{what}: {pages} {room} {swap} of {faults}, {reclaim}, {background}");
        // Of all faults some are first touches, and a few waits are in system calls.
        assert!(pages + room + swap < faults * 1.1 + 0.05, "{what}");
        assert!(room <= reclaim * 1.1 + 0.05, "{what}");
        assert!(pages > 0.0, "{what}");
        [room, swap, background]
    };
    let [room, swap, background] =
        run("alone", PATTERN, ARGS, "--ram 48M --background-reclaim=off");
    assert!(room > 0.01 && swap == 0.0 && background == 0.0);
    let [_, swap, background] = run(
        "a reclaimer",
        PATTERN,
        ARGS,
        "--ram 48M --background-reclaim=on",
    );
    assert!(swap == 0.0 && background > 0.0);
    let [_, swap, _] = run("swap", "apps/noise.c", "96 7", "--ram 32M --swap /var/tmp");
    assert!(swap > 0.0);
}

#[test]
fn metadata_is_small() {
    let scratch = Scratch::new();
    let outcome = Job::compiled(&scratch, "pattern/pattern.c", "1024 2 random 10000 1")
        .ram_mib(128)
        .managed()
        .expect_success("pattern");
    // At most 16 bytes per stored page, and a fixed part (slots, upper levels of tables).
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
