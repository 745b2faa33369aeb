//! `uzswap set PID ram=SIZE` changes the limit under a live program.

use std::time::Duration;

use serde_json::Value;
use uzswap_e2e::{DISK, Job, Live, MIB, Scratch, number, seed, wait_until};

/// Memory that counts towards the limit, for each live process.
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
    let live = Job::python(BUSY)
        .ram_mib(256)
        .option("--swap", "none")
        .start_until("ready");
    let before = live.stat();
    assert!(in_use(&before)[0] > 80 * MIB, "{before}");
    let said = live
        .uzswap("set", &["ram=128M"])
        .expect_success("set ram=128M");
    assert_eq!(said.text(), "ram 256 MiB -> 128 MiB\n");
    // It holds from the moment that `set` has returned, for both processes together.
    for _ in 0..10 {
        let stats = live.stat();
        assert_eq!(number(&stats, "ram_limit"), 128 * MIB);
        assert_eq!(in_use(&stats).len(), 2, "{stats}");
        let granted = number(&stats, "ram_granted");
        assert!(granted <= 128 * MIB, "{granted}: {stats}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let said = live
        .uzswap("set", &["ram=384M"])
        .expect_success("set ram=384M");
    assert_eq!(said.text(), "ram 128 MiB -> 384 MiB\n");
    // All that they touch becomes resident and stays.
    wait_until("both processes are resident", || {
        std::thread::sleep(Duration::from_millis(100));
        in_use(&live.stat()).iter().all(|bytes| *bytes >= 80 * MIB)
    });
    let outcome = live.end_by(libc::SIGUSR1);
    assert_eq!(outcome.text(), "ready\nright\n");
    assert_eq!(outcome.stat("ram_limit"), 384 * MIB);
    assert!(outcome.stat("zswpin") > 1000, "{}", outcome.stats);
}

/// 24 MiB of noise in 48 MiB, which a sleeping process checks on SIGUSR1.
fn noise(scratch: &Scratch, swap: &str) -> Live {
    Job::compiled(scratch, "apps/swapped.c", &format!("hold 24 {}", seed()))
        .ram_mib(48)
        .option("--swap", swap)
        .start_until("ready")
}

#[test]
fn a_limit_that_the_data_does_not_fit_is_refused() {
    let scratch = Scratch::new();
    let live = noise(&scratch, "none");
    for (size, status, words) in [
        ("ram=16M", 1, ["ram was not changed", "swapped"]),
        ("ram=1M", 2, ["at least", "nothing was changed"]),
        ("ram=lots", 2, ["ram", "not a size"]),
    ] {
        let refused = live.uzswap("set", &[size, "writeback=off"]);
        let _ = refused.expect_refused(status, &words);
        let knobs = live.uzswap("set", &["--json"]);
        let knobs = knobs.expect_success("set --json").json();
        assert_eq!(knobs["ram"]["value"], 48 * MIB);
        assert_eq!(knobs["writeback"]["value"], true);
    }
    let _ = live.end_by(libc::SIGUSR1);
}

#[test]
fn a_sleeping_program_comes_down_by_writeback() {
    let scratch = Scratch::new();
    let live = noise(&scratch, DISK);
    assert_eq!(live.uzswap("set", &["ram=16M"]).status, 0);
    let stats = live.stat();
    assert!(in_use(&stats)[0] <= 16 * MIB, "{stats}");
    assert!(number(&stats, "swapped_pages") * 4096 > 8 * MIB, "{stats}");
    let outcome = live.end_by(libc::SIGUSR1);
    assert_eq!(outcome.stat("ram_limit"), 16 * MIB);
}
