//! `uzswap set PID ram=SIZE`: the limit changes under a program that goes on.

use std::time::{Duration, Instant};

use serde_json::Value;
use uzswap_e2e::{Job, Live, MIB, Outcome, Scratch, find, seed};

const SIGUSR1: i32 = 10;

fn ask(what: &str, live: &Live, args: &[&str]) -> Outcome {
    let pid = live.pid().to_string();
    Job::new(what).arg(pid).args(args).uzswap_itself()
}

fn stat(live: &Live) -> Value {
    let outcome = ask("stat", live, &["--json"]).expect_success("stat");
    serde_json::from_slice(&outcome.stdout).expect("stat --json prints JSON")
}

fn number(value: &Value, key: &str) -> u64 {
    value[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key}: {value}"))
}

/// What counts towards the limit, of each live process.
fn in_use(stats: &Value) -> Vec<u64> {
    let live = stats["live"].as_array().expect("live processes");
    let of = |process| {
        ["resident", "zswap", "metadata"]
            .map(|key| number(process, key))
            .iter()
            .sum()
    };
    live.iter().map(of).collect()
}

/// Two processes that read, check and change 80 MB each, again and again, until they get SIGUSR1.
const BUSY: &str = "
import os, signal, zlib
stop = []
signal.signal(signal.SIGUSR1, lambda *_: stop.append(1))
pages = [bytearray(os.urandom(900) + bytes(3100)) for _ in range(20000)]
sums = [zlib.crc32(page) for page in pages]
child = os.fork()
if child: print('ready', flush=True)
round = 0
while not stop:
    for n, page in enumerate(pages):
        if zlib.crc32(page) != sums[n]:
            os.write(1, b'WRONG'); os._exit(1)
        if n % 7 == round % 7:
            page[round % 900:round % 900 + 5] = b'drops'
            sums[n] = zlib.crc32(page)
        if stop: break
    round += 1
if not child: os._exit(0)
os.kill(child, signal.SIGUSR1)
print('right' if os.waitpid(child, 0)[1] == 0 else 'WRONG')
";

#[test]
fn a_busy_program_and_its_child_come_down_to_half_and_grow_again() {
    let mut live = Job::new(find("python3").expect("python3 is installed"))
        .args(["-c", BUSY])
        .ram_mib(128)
        .option("--swap", "none")
        .start_managed();
    live.wait_for("ready");
    let before = stat(&live);
    assert!(in_use(&before)[0] > 80 * MIB, "{before}");
    let said = ask("set", &live, &["ram=64M"]).expect_success("set ram=64M");
    assert_eq!(said.text(), "ram 128 MiB -> 64 MiB\n");
    // From the moment that it has returned, for both, whatever they do.
    for _ in 0..10 {
        let stats = stat(&live);
        assert_eq!(number(&stats, "ram_limit"), 64 * MIB);
        let each = in_use(&stats);
        assert_eq!(each.len(), 2, "{stats}");
        assert!(each.iter().all(|bytes| *bytes <= 64 * MIB), "{each:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let said = ask("set", &live, &["ram=192M"]).expect_success("set ram=192M");
    assert_eq!(said.text(), "ram 64 MiB -> 192 MiB\n");
    // All that they touch comes in and stays.
    let began = Instant::now();
    while in_use(&stat(&live)).iter().any(|bytes| *bytes < 80 * MIB) {
        assert!(
            began.elapsed() < Duration::from_secs(120),
            "{}",
            stat(&live)
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    live.signal(SIGUSR1);
    let outcome = live.wait().expect_success("data under three limits");
    assert_eq!(outcome.text(), "ready\nright\n");
    assert_eq!(outcome.stat("ram_limit"), 192 * MIB);
    assert!(outcome.stat("zswpin") > 1000, "{}", outcome.stats);
}

/// 24 MiB of noise in 48, asleep until SIGUSR1, when it checks them.
fn noise(scratch: &Scratch, swap: &str) -> Live {
    let mut live = Job::new(scratch.compile("apps/swapped.c"))
        .args(["hold", "24", &seed().to_string()])
        .ram_mib(48)
        .option("--swap", swap)
        .start_managed();
    live.wait_for("ready");
    live
}

#[test]
fn a_limit_that_the_data_do_not_fit_changes_nothing() {
    let scratch = Scratch::new();
    let live = noise(&scratch, "none");
    for (size, status, words) in [
        ("ram=16M", 1, ["ram was not changed", "swapped"]),
        ("ram=1M", 2, ["at least", "nothing was changed"]),
        ("ram=lots", 2, ["ram", "not a size"]),
    ] {
        let refused = ask("set", &live, &[size, "writeback=off"]);
        assert_eq!(refused.status, status, "{}", refused.stderr);
        assert_eq!(
            refused.stderr.trim_end().lines().count(),
            1,
            "{}",
            refused.stderr
        );
        for word in words {
            assert!(
                refused.stderr.contains(word),
                "no {word:?} in {}",
                refused.stderr
            );
        }
        let knobs = ask("set", &live, &["--json"]).expect_success("set --json");
        let knobs: Value = serde_json::from_slice(&knobs.stdout).expect("JSON");
        assert_eq!(knobs["ram"]["value"], 48 * MIB);
        assert_eq!(knobs["writeback"]["value"], true);
    }
    live.signal(SIGUSR1);
    assert_eq!(live.wait().status, 0, "its data");
}

#[test]
fn a_sleeping_program_comes_down_by_what_goes_to_swap() {
    let scratch = Scratch::new();
    let live = noise(&scratch, "/var/tmp");
    assert_eq!(ask("set", &live, &["ram=16M"]).status, 0);
    let stats = stat(&live);
    assert!(in_use(&stats)[0] <= 16 * MIB, "{stats}");
    assert!(number(&stats, "swapped_pages") * 4096 > 8 * MIB, "{stats}");
    live.signal(SIGUSR1);
    let outcome = live.wait().expect_success("its data");
    assert_eq!(outcome.stat("ram_limit"), 16 * MIB);
}
