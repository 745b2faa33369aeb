//! `uzswap set` changes the knobs of a live run at once, and nothing on bad input.

use serde_json::Value;
use uzswap_e2e::{DISK, Job, Live, MIB, Scratch, User, root_or_skip, seed};
use uzswap_group::knobs::Knobs;

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

/// Fills `mib` MiB with noise, says "ready", and checks it all on SIGUSR1.
fn holds(scratch: &Scratch, mib: u64) -> Job {
    Job::compiled(scratch, "apps/swapped.c", &format!("hold {mib} {}", seed()))
        .ram_mib(32)
        .option("--swap", DISK)
        .flag("--quiet")
}

fn knobs(live: &Live) -> Value {
    live.uzswap("set", &["--json"])
        .expect_success("set --json")
        .json()
}

#[test]
fn a_pool_made_smaller_is_written_back() {
    let live = Job::python(PAGES)
        .ram_mib(32)
        .option("--swap", DISK)
        .start_until("ready");
    let done = live.uzswap(
        "set",
        &["max_pool_percent=10", "accept-threshold-percent=80"],
    );
    let done = done.expect_success("set");
    assert_eq!(
        done.text(),
        "max_pool_percent 75 -> 10\naccept_threshold_percent 98 -> 80\n"
    );
    let outcome = live.end_by(libc::SIGUSR1);
    assert_eq!(outcome.text(), "ready\nright\n");
    // They were filled with a pool of up to 24 MiB, and read with one of 3.2.
    assert!(outcome.stat("zswap_peak") > 12 * MIB, "{}", outcome.stats);
    assert!(outcome.stat("zswap") < 5 * MIB, "{}", outcome.stats);
}

/// Checks and changes its pages once for each SIGUSR1.
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
        # Two thirds stay as an earlier round stored them.
        if n % 3 == round % 3:
            page[round * 7:round * 7 + 9] = b'something'
            sums[n] = zlib.crc32(page)
print('right' if sums == [zlib.crc32(page) for page in pages] else 'WRONG')
";

#[test]
fn the_compressor_changes_under_a_busy_program() {
    for swap in ["none", DISK] {
        let mut live = Job::python(ROUNDS)
            .ram_mib(36)
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
            let done = live
                .uzswap("set", &[&format!("compressor={codec}")])
                .expect_success("set");
            let full = if codec == "deflate" {
                "deflate:1"
            } else {
                codec
            };
            let full = if full == "pz" { "pz:3" } else { full };
            assert_eq!(done.text(), format!("compressor {before} -> {full}\n"));
            assert_eq!(knobs(&live)["compressor"]["value"], full);
            before = full;
            live.signal(libc::SIGUSR1);
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
fn a_compressor_without_room_within_the_limit_is_refused() {
    let scratch = Scratch::new();
    let live = holds(&scratch, 4).start_until("ready");
    let outcome = live.uzswap("set", &["compressor=deflate:12"]);
    assert_ne!(outcome.status, 0);
    outcome.expect_stderr(&["--ram"]);
    assert_eq!(knobs(&live)["compressor"]["value"], "auto");
    let _ = live.end_by(libc::SIGUSR1);
}

#[test]
fn every_knob_is_shown_with_its_meaning() {
    let scratch = Scratch::new();
    let live = holds(&scratch, 4)
        .option("--max-pool-percent", "33")
        .start_until("ready");
    let shown = live.uzswap("set", &[]).expect_success("set PID");
    let json = knobs(&live);
    for knob in Knobs::ALL {
        for part in [knob.name, knob.meaning] {
            assert!(shown.text().contains(part), "{}", shown.text());
        }
        assert_eq!(json[knob.name]["meaning"], knob.meaning);
    }
    assert_eq!(json["max_pool_percent"]["value"], 33);
    assert_eq!(json["max_pool_percent"]["default"], 75);
    let _ = live.end_by(libc::SIGUSR1);
}

#[test]
fn bad_input_changes_nothing() {
    let scratch = Scratch::new();
    let live = holds(&scratch, 4).start_until("ready");
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
        let _ = live.uzswap("set", args).expect_refused(2, words);
    }
    assert_eq!(knobs(&live), before);
    let _ = live.end_by(libc::SIGUSR1);
}

#[test]
fn processes_that_cannot_be_changed() {
    let of = |args: &[&str]| Job::new("set").args(args).uzswap_itself();
    let change = "max_pool_percent=50";
    let _ = of(&["4194303", change]).expect_refused(1, &["4194303"]);
    let _ = of(&["myself", change]).expect_refused(2, &["myself"]);
    let me = std::process::id().to_string();
    let _ = of(&[&me, change]).expect_refused(1, &[&me, "not managed"]);
    if !root_or_skip("being another user") {
        return;
    }
    let scratch = Scratch::new();
    let live = holds(&scratch, 4).start_until("ready");
    let pid = live.pid().to_string();
    let other = Job::new("set").args([&pid, change]).user(User::Ordinary);
    let _ = other
        .uzswap_itself()
        .expect_refused(1, &[&pid, "another user"]);
    let _ = live.end_by(libc::SIGUSR1);
}
