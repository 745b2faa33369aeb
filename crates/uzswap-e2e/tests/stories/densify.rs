//! `--densify` recompresses cold pages more densely; the program notices nothing.

use std::time::Duration;

use uzswap_e2e::{Job, MIB, number, wait_until};

#[test]
fn the_pool_of_an_idle_program_becomes_smaller() {
    // On in a run that was started for it, and one that was not.
    for (options, later) in [("--densify 50 --background-reclaim=off", false), ("", true)] {
        the_pool_becomes_smaller(options, later);
    }
}

fn the_pool_becomes_smaller(options: &str, later: bool) {
    let live = Job::python(HOLDS)
        .ram_mib(48)
        .option("--swap", "none")
        // By itself 'auto' would leave less to be made denser.
        .option("--compressor", "lz4")
        .options(options)
        .start_until("idle\n");
    let before = live.stat();
    if later {
        assert_eq!(before["densified_pages"], 0, "it is not on yet");
        let set = live.uzswap("set", &["densify=50"]);
        assert_eq!(set.status, 0, "{}", set.stderr);
        // It begins with the next eviction.
        let evicted = live.uzswap("reclaim", &["4M"]);
        assert_eq!(evicted.status, 0, "{}", evicted.stderr);
    }
    // What was evicted first may be cold by now, where the machine is slow.
    let saved = |stats: &_| number(stats, "densified_bytes");
    let as_it_was = number(&before, "zswap") + saved(&before);
    wait_until("cold data is densified", || {
        std::thread::sleep(Duration::from_millis(200));
        let after = live.stat();
        saved(&after) > 4 * MIB && number(&after, "zswap") + 4 * MIB < as_it_was
    });
    let outcome = live.end_by(libc::SIGTERM);
    assert_eq!(outcome.text(), "idle\nright\n");
}

/// Compresses twofold by lz4, which has no entropy coding.
const HOLDS: &str = "
import os, signal, zlib
chunks = [(os.urandom(1024).hex() + 'x' * 2048).encode() for _ in range(16384)]
sums = [zlib.crc32(c) for c in chunks]
print('idle', flush=True)
signal.signal(signal.SIGTERM, lambda *_: None)
signal.pause()
print('right' if sums == [zlib.crc32(c) for c in chunks] else 'WRONG')
";

/// A program at work meanwhile: threads read and write warm pages and now and then cold ones;
/// forked children check some of all and change them.
#[test]
fn a_program_at_work_keeps_its_data() {
    let outcome = Job::python(WORKS)
        .env("PYTHONWARNINGS", "ignore")
        .each_mib(32)
        .option("--densify", "100")
        .managed()
        .expect_success("work");
    println!("{} pages densified", outcome.stat("densified_pages"));
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
fn wrong_values_are_refused() {
    for (options, word) in [
        ("--densify 200", "0..100"),
        ("--densify some", "0..100"),
        ("--densify 10 --folio 4K", "--folio"),
    ] {
        let job = Job::new("run").args(options.split(' '));
        let outcome = job.args(["--", "true"]).uzswap_itself();
        assert_eq!(outcome.status, 125, "{}", outcome.stderr);
        outcome.expect_stderr(&[word]);
    }
    // A run without a reclaimer has nobody for it.
    let live = Job::python("import time; print('up', flush=True); time.sleep(100)")
        .ram_mib(64)
        .flag("--background-reclaim=off")
        .start_until("up\n");
    let outcome = live.uzswap("set", &["densify=10"]);
    assert_eq!(outcome.status, 1, "{}", outcome.stderr);
    outcome.expect_stderr(&["--background-reclaim"]);
    live.signal(libc::SIGTERM);
    let _ = live.wait();
}
