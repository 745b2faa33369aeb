//! With `--densify`, what has stayed cold takes less room by itself, and the program notices nothing.

use std::time::{Duration, Instant};

use serde_json::Value;
use uzswap_e2e::{Job, Live, MIB, find};

const SIGTERM: i32 = 15;
/// By when an idle program's cold data must have been found, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(100);

fn stat(live: &Live) -> Value {
    let pid = live.pid().to_string();
    let outcome = Job::new("stat").args([&pid, "--json"]).uzswap_itself();
    serde_json::from_slice(&outcome.expect_success("stat").stdout).expect("JSON")
}

fn number(stats: &Value, key: &str) -> u64 {
    stats[key].as_u64().expect("a number")
}

#[test]
fn the_pool_of_an_idle_program_becomes_smaller() {
    let mut live = Job::new(find("python3").expect("python3 is installed"))
        .args(["-c", HOLDS])
        .ram_mib(48)
        .option("--swap", "none")
        .option("--densify", "50")
        .start_managed();
    live.wait_for("idle\n");
    let before = stat(&live);
    assert_eq!(
        number(&before, "densified_pages"),
        0,
        "it was not cold yet: {before}"
    );
    let begun = Instant::now();
    let after = loop {
        let now = stat(&live);
        if number(&now, "zswap") + 4 * MIB < number(&before, "zswap") {
            break now;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "nothing became denser: {before}\n{now}"
        );
        std::thread::sleep(Duration::from_millis(200));
    };
    assert!(number(&after, "densified_pages") > 0, "{after}");
    assert!(number(&after, "densified_bytes") > 4 * MIB, "{after}");
    live.signal(SIGTERM);
    let outcome = live.wait().expect_success("it checks its memory");
    assert_eq!(outcome.text(), "idle\nright\n");
}

/// Two to one for lz4, which has no entropy coding.
const HOLDS: &str = "
import os, signal, zlib
chunks = [(os.urandom(1024).hex() + 'x' * 2048).encode() for _ in range(16384)]
sums = [zlib.crc32(c) for c in chunks]
print('idle', flush=True)
signal.signal(signal.SIGTERM, lambda *_: None)
signal.pause()
print('right' if sums == [zlib.crc32(c) for c in chunks] else 'WRONG')
";

/// A program that goes on meanwhile: threads read and write what is warm, and now and then what is cold; children are forked, look
/// at some of everything, and change it.
#[test]
fn a_program_at_work_keeps_its_data() {
    let outcome = Job::new(find("python3").expect("python3 is installed"))
        .args(["-W", "ignore", "-c", WORKS])
        .ram_mib(32)
        .option("--densify", "100")
        .managed()
        .expect_success("work");
    println!("{} pages became denser", outcome.stat("densified_pages"));
    assert_eq!(outcome.text(), "right\n");
    outcome.expect_within(32 * MIB);
}

const WORKS: &str = "
import os, random, threading, time, zlib
def make(n, stamp): return bytearray(b'%d: stamp %d, ' % (n, stamp) + random.Random(n * 1009 + stamp).randbytes(3000).hex().encode() + bytes(3000))
data = [make(n, 0) for n in range(4000)]
sums = [zlib.crc32(d) for d in data]
end = time.monotonic() + 8
wrong = []
def work(t):
    r = random.Random(t)
    while time.monotonic() < end:
        n = r.randrange(t, 400 if r.random() < .98 else 4000, 2)
        if zlib.crc32(data[n]) != sums[n]: wrong.append(n)
        data[n] = make(n, r.randrange(1000))
        sums[n] = zlib.crc32(data[n])
        time.sleep(.002)
threads = [threading.Thread(target=work, args=(t,)) for t in range(2)]
time.sleep(3)
for t in threads: t.start()
children = []
while time.monotonic() < end:
    pid = os.fork()
    if pid == 0:
        bad = 0
        for n in random.Random(os.getpid()).sample(range(400, 4000), 200):
            d = data[n]
            stamp = int(d.split(b'stamp ', 1)[1].split(b',', 1)[0])
            if d != make(n, stamp): bad = 1
            data[n][0] = 63
        os._exit(bad)
    children.append(pid)
    time.sleep(.4)
for t in threads: t.join()
bad = [pid for pid in children if os.waitpid(pid, 0)[1]]
ok = not bad and not wrong and sums == [zlib.crc32(d) for d in data]
print('right' if ok else 'WRONG %s %s' % (bad, wrong))
";

#[test]
fn what_it_cannot_work_with_is_told() {
    for (args, word) in [
        (["--densify", "200"], "0..100"),
        (["--densify", "some"], "0..100"),
    ] {
        let outcome = Job::new("run")
            .args(args)
            .args(["--", "true"])
            .uzswap_itself();
        assert_eq!(outcome.status, 125, "{}", outcome.stderr);
        assert!(outcome.stderr.contains(word), "{}", outcome.stderr);
    }
    let outcome = Job::new("run")
        .args(["--densify", "10", "--folio", "4K", "--", "true"])
        .uzswap_itself();
    assert_eq!(outcome.status, 125, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("--folio"), "{}", outcome.stderr);
    // A run that was started without has no thread for it.
    let mut live = Job::new(find("python3").expect("python3 is installed"))
        .args([
            "-c",
            "import time; print('up', flush=True); time.sleep(100)",
        ])
        .ram_mib(64)
        .start_managed();
    live.wait_for("up\n");
    let pid = live.pid().to_string();
    let outcome = Job::new("set").args([&pid, "densify=10"]).uzswap_itself();
    assert_eq!(outcome.status, 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("--densify"), "{}", outcome.stderr);
    live.signal(SIGTERM);
    let _ = live.wait();
}
