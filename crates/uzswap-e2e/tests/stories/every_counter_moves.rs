//! Every declared counter moves in some run.

use std::collections::BTreeSet;

use uzswap_e2e::{Job, Scratch};
use uzswap_group::counters::Counters;

/// Counters that move only after a failure of a compressor, memory, a device or the kernel; other
/// tests inject those.
const OF_FAILURES: &[&str] = &[
    "reject_compress_fail",
    "decompress_fail",
    "verify_compress_fail",
    "swap_read_fail",
    "swap_write_fail",
    "swap_device_fail",
];

/// Counters that move only in a group that was set up before; its own stories see them.
const OF_GROUPS: &[&str] = &["high_limit_hit"];

/// Times, which JSON has in seconds under other names.
const IN_SECONDS: &[(&str, &str)] = &[
    ("fault_ticks", "fault_s"),
    ("reclaim_ticks", "reclaim_s"),
    ("reclaim_background_ticks", "reclaim_background_s"),
    ("densify_ticks", "densify_s"),
    ("swap_ticks", "swap_s"),
];

/// Counters that JSON has under the kernel's name.
const RENAMED: &[(&str, &str)] = &[("pool_peak", "zswap_peak")];

/// What a run shows, its program, its options, and whether it ends well.
type Run<'a> = (&'a str, Job, &'a str, bool);

fn runs(scratch: &Scratch) -> Vec<Run<'static>> {
    let pattern = |args| Job::compiled(scratch, "pattern/pattern.c", args);
    let noise = |args| Job::compiled(scratch, "apps/noise.c", args);
    let near = Job::compiled(scratch, "apps/near.c", "48 7 near");
    let sparse = Job::compiled(scratch, "apps/sparse.c", "20000");
    let grows = Job::python(GROWS).arg("9000");
    let [random, blocks, workers, reclaimer, shrinker] = [
        "256 8 random 200000 1",
        "256 1 sequential 100000 1",
        "128 2 sequential 40000 1",
        "256 2 mixed 100000 1",
        "160 2 random 150000 1",
    ]
    .map(pattern);
    vec![
        // Evictions, loads, cancelled reclaims, second chances, raw pages, same-filled pages.
        ("many threads", random, "--ram 32M", true),
        ("blocks", blocks, "--ram 32M --block 64K", true),
        (
            "workers",
            workers,
            "--ram 32M --compressor zstd --accel engines:1",
            true,
        ),
        (
            "a reclaimer",
            reclaimer,
            "--ram 32M --background-reclaim=on",
            true,
        ),
        // Incompressible data until the limit is exceeded.
        (
            "over the limit",
            noise("96 7"),
            "--ram 32M --swap none",
            false,
        ),
        (
            "a full swap device",
            noise("192 7"),
            "--ram 32M --swap-max 32M",
            false,
        ),
        ("a swap device", noise("96 7"), "--ram 32M", true),
        // Reads overlap the evictions that make their room.
        (
            "neighbours on it",
            near,
            "--ram 16M --background-reclaim=off",
            true,
        ),
        (
            "no writeback",
            noise("96 7"),
            "--ram 32M --writeback off",
            false,
        ),
        ("denser", grows, "--ram 24M --swap /var/tmp", true),
        (
            "the shrinker",
            shrinker,
            "--ram 32M --swap /var/tmp --shrinker-enabled on",
            true,
        ),
        ("over the limit by page tables", sparse, "--ram 24M", false),
        (
            "cold pages",
            Job::python(COLD),
            "--ram 32M --swap none --densify 100",
            true,
        ),
        (
            "noise that parent and child change",
            Job::python(NOISE),
            "--ram 16M --swap none",
            true,
        ),
        (
            "system calls, frees, stacks",
            Job::python(PYTHON),
            "--ram 24M",
            true,
        ),
    ]
}

const GROWS: &str = include_str!("../../../../tests/programs/apps/grows.py");

/// Text and noise, left alone until it is cold; then under pressure for longer than the densifier
/// looks.
const COLD: &str = "
import os, time
keep = [os.urandom(4000) for _ in range(1500)] + [(os.urandom(1024).hex() + 'x' * 2048).encode() for _ in range(8000)]
time.sleep(7)
end = time.monotonic() + 8
while time.monotonic() < end: sum(k[0] for k in keep)
";

/// Each of the two processes fits in the limit, both together do not.
const NOISE: &str = "
import os
noise = [bytearray(os.urandom(4000)) for _ in range(2400)]
child = os.fork()
for page in noise: page[0] ^= 1
if not child: os._exit(0)
os._exit(os.waitpid(child, 0)[1] != 0)
";

const PYTHON: &str = "
import ctypes, mmap, os, threading, time
big = bytearray(b'line of text ' * 700000)
keep = [bytearray(os.urandom(50) * 100) for _ in range(20000)]
os.readv(os.open('/dev/zero', os.O_RDONLY), [big])
for i in range(0, len(keep), 2): keep[i] = None
more = [os.urandom(30) * 300 for _ in range(9000)]
shared = mmap.mmap(-1, 4 << 20)
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
MAP_FIXED = 0x10
libc.mmap(0x200000000000, 1 << 20, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED, -1, 0)
MAP_STACK = 0x20000
libc.mmap(None, 1 << 20, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_STACK, -1, 0)
threads = [threading.Thread(target=time.sleep, args=(100,)) for _ in range(4)]
for t in threads: t.start()
print(len(keep), len(more), flush=True)
os._exit(0)
";

#[test]
fn in_some_run() {
    let scratch = Scratch::new();
    let runs = runs(&scratch);
    let mut unmoved: BTreeSet<&str> = Counters::ALL.iter().map(|c| c.name).collect();
    for name in OF_FAILURES.iter().chain(OF_GROUPS) {
        assert!(unmoved.remove(name), "{name} is not declared any more");
    }
    for (what, job, options, ends_well) in runs {
        let mut outcome = job.options(options).managed();
        if ends_well {
            outcome = outcome.expect_success(what);
        }
        let moved = |name: &str| {
            let key = IN_SECONDS
                .iter()
                .chain(RENAMED)
                .find(|(counter, _)| *counter == name);
            let key = key.map_or(name, |(_, key)| key);
            let value = &outcome.stats[key];
            assert!(
                value.is_number(),
                "no {key} in the stats of the run {what}: {}",
                outcome.stats
            );
            value.as_f64().is_some_and(|v| v > 0.0)
        };
        unmoved.retain(|name| !moved(name));
    }
    assert!(unmoved.is_empty(), "never moved: {unmoved:?}");
}
