//! `uzswap set` changes what a run under way decides by, at once, and changes nothing on bad input.

use serde_json::Value;
use uzswap_e2e::{Job, Live, MIB, Outcome, Scratch, User, find, is_root, seed, skip};
use uzswap_group::knobs::Knobs;

const SIGUSR1: i32 = 10;

/// 80 MB that compress to about 30, read again on SIGUSR1.
const PAGES: &str = "
import os, signal, zlib
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
pages = [os.urandom(1500) + bytes(2500) for _ in range(20000)]
sums = [zlib.crc32(page) for page in pages]
print('ready', flush=True)
signal.sigwait([signal.SIGUSR1])
print('right' if sums == [zlib.crc32(page) for page in pages] else 'WRONG')
";

/// Fills `mib` with noise, says "ready", and reads it all on SIGUSR1.
fn holds(scratch: &Scratch, mib: u64) -> Job {
    Job::new(scratch.compile("apps/swapped.c"))
        .args(["hold", &mib.to_string(), &seed().to_string()])
        .ram_mib(32)
        .option("--swap", "/var/tmp")
        .flag("--quiet")
}

fn set(live: &Live, args: &[&str]) -> Outcome {
    let pid = live.pid().to_string();
    Job::new("set").arg(pid).args(args).uzswap_itself()
}

fn knobs(live: &Live) -> Value {
    let outcome = set(live, &["--json"]).expect_success("set --json");
    serde_json::from_slice(&outcome.stdout).expect("set --json prints JSON")
}

#[test]
fn a_smaller_pool_is_written_back_from_then_on() {
    let mut live = Job::new(find("python3").expect("python3 is installed"))
        .args(["-c", PAGES])
        .ram_mib(32)
        .option("--swap", "/var/tmp")
        .start_managed();
    live.wait_for("ready");
    let done = set(
        &live,
        &["max_pool_percent=10", "accept-threshold-percent=80"],
    );
    let done = done.expect_success("set");
    assert_eq!(
        done.text(),
        "max_pool_percent 75 -> 10\naccept_threshold_percent 98 -> 80\n"
    );
    live.signal(SIGUSR1);
    let outcome = live.wait().expect_success("pages under changed knobs");
    assert_eq!(outcome.text(), "ready\nright\n");
    // They were filled with a pool of up to 24 MiB, and read with one of 3.2.
    assert!(outcome.stat("zswap_peak") > 12 * MIB, "{}", outcome.stats);
    assert!(outcome.stat("zswap") < 5 * MIB, "{}", outcome.stats);
}

/// Reads and writes its pages round after round, each SIGUSR1 one.
const ROUNDS: &str = "
import os, signal, zlib
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
pages = [bytearray(os.urandom(700) * 2 + bytes(2600)) for _ in range(20000)]
sums = [zlib.crc32(page) for page in pages]
for round in range(6):
    print('ready', round, flush=True)
    signal.sigwait([signal.SIGUSR1])
    for n, page in enumerate(pages):
        assert zlib.crc32(page) == sums[n], (round, n)
        # Two thirds stay as some round before has stored them.
        if n % 3 == round % 3:
            page[round * 7:round * 7 + 9] = b'something'
            sums[n] = zlib.crc32(page)
print('right' if sums == [zlib.crc32(page) for page in pages] else 'WRONG')
";

#[test]
fn the_compressor_changes_under_a_program_that_uses_its_memory() {
    for swap in ["none", "/var/tmp"] {
        let mut live = Job::new(find("python3").expect("python3 is installed"))
            .args(["-c", ROUNDS])
            .ram_mib(32)
            .option("--swap", swap)
            .option("--max-pool-percent", "40")
            .option("--compressor", "pz:1")
            .start_managed();
        let mut before = "pz:1";
        for (round, codec) in ["zstd:3", "lz4", "deflate", "pz", "zstd:-2", "lz4"]
            .into_iter()
            .enumerate()
        {
            live.wait_for(&format!("ready {round}"));
            let done = set(&live, &[&format!("compressor={codec}")]).expect_success("set");
            let full = if codec == "deflate" {
                "deflate:1"
            } else {
                codec
            };
            let full = if full == "pz" { "pz:3" } else { full };
            assert_eq!(done.text(), format!("compressor {before} -> {full}\n"));
            assert_eq!(knobs(&live)["compressor"]["value"], full);
            before = full;
            live.signal(SIGUSR1);
        }
        let outcome = live.wait().expect_success("pages under six compressors");
        assert!(outcome.text().ends_with("right\n"), "{}", outcome.text());
        assert_eq!(outcome.stats["compressor"], "lz4");
        assert!(outcome.stat("zswpin") > 50_000, "{}", outcome.stats);
        assert_eq!(outcome.stat("decompress_fail"), 0);
        if swap != "none" {
            assert!(outcome.stat("pswpin") > 1000, "{}", outcome.stats);
        }
        outcome.expect_within(16 * MIB);
    }
}

#[test]
fn a_compressor_that_the_limit_has_no_room_for_is_refused() {
    let scratch = Scratch::new();
    let mut live = holds(&scratch, 4).start_managed();
    live.wait_for("ready");
    let outcome = set(&live, &["compressor=deflate:12"]);
    assert_ne!(outcome.status, 0);
    assert!(outcome.stderr.contains("--ram"), "{}", outcome.stderr);
    assert_eq!(knobs(&live)["compressor"]["value"], "auto");
    live.signal(SIGUSR1);
    assert_eq!(live.wait().status, 0);
}

#[test]
fn every_knob_is_shown_with_its_meaning() {
    let scratch = Scratch::new();
    let mut live = holds(&scratch, 4)
        .option("--max-pool-percent", "33")
        .start_managed();
    live.wait_for("ready");
    let shown = set(&live, &[]).expect_success("set PID");
    let json = knobs(&live);
    for knob in Knobs::ALL {
        for part in [knob.name, knob.meaning] {
            assert!(shown.text().contains(part), "{}", shown.text());
        }
        assert_eq!(json[knob.name]["meaning"], knob.meaning);
    }
    assert_eq!(json["max_pool_percent"]["value"], 33);
    assert_eq!(json["max_pool_percent"]["default"], 75);
    live.signal(SIGUSR1);
    assert_eq!(live.wait().status, 0);
}

#[test]
fn bad_input_changes_nothing() {
    let scratch = Scratch::new();
    let mut live = holds(&scratch, 4).start_managed();
    live.wait_for("ready");
    let before = knobs(&live);
    for (args, words) in [
        (&["frob=1"][..], &["frob", "max_pool_percent"][..]),
        (
            &["max_pool_percent=101"],
            &["max_pool_percent", "1..100", "101"],
        ),
        (
            &["max_pool_percent=5", "same_filled_pages_enabled=maybe"],
            &["on|off", "maybe"],
        ),
        (&["max_pool_percent"], &["max_pool_percent", "KNOB=VALUE"]),
    ] {
        refused(&set(&live, args), 2, words);
    }
    assert_eq!(knobs(&live), before);
    live.signal(SIGUSR1);
    assert_eq!(live.wait().status, 0);
}

#[test]
fn processes_that_cannot_be_changed() {
    let of = |args: &[&str]| Job::new("set").args(args).uzswap_itself();
    let change = "max_pool_percent=50";
    refused(&of(&["4194303", change]), 1, &["4194303"]);
    refused(&of(&["myself", change]), 2, &["myself"]);
    let me = std::process::id().to_string();
    refused(&of(&[&me, change]), 1, &[&me, "not managed"]);
    if !is_root() {
        skip("only root can have a process of another user's");
        return;
    }
    let scratch = Scratch::new();
    let mut live = holds(&scratch, 4).start_managed();
    live.wait_for("ready");
    let pid = live.pid().to_string();
    let other = Job::new("set").args([&pid, change]).user(User::Ordinary);
    refused(&other.uzswap_itself(), 1, &[&pid, "another user"]);
    live.signal(SIGUSR1);
    assert_eq!(live.wait().status, 0);
}

fn refused(outcome: &Outcome, status: i32, words: &[&str]) {
    let line = &outcome.stderr;
    assert_eq!(outcome.status, status, "{line}");
    assert_eq!(line.trim_end().lines().count(), 1, "one line, not:\n{line}");
    for word in words {
        assert!(line.contains(word), "no {word:?} in: {line}");
    }
}
