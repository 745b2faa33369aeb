//! Without `--ram` the limit follows what the cgroup leaves: a lowered `memory.max` and siblings
//! that grow lower it in time, page cache does not, and nobody is killed for memory.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use uzswap_e2e::{
    DISK, HardLimit, Job, Live, MIB, Scratch, find_or_skip, number, seed, wait_until,
};

/// Reads, checks and changes 440 MB, again and again, until SIGUSR1.
const BUSY: &str = "
import os, signal, zlib
stop = []
signal.signal(signal.SIGUSR1, lambda *_: stop.append(1))
pages = [bytearray(os.urandom(900) + bytes(3100)) for _ in range(110000)]
sums = [zlib.crc32(page) for page in pages]
print('ready', flush=True)
round = 0
while not stop:
    for n, page in enumerate(pages):
        if zlib.crc32(page) != sums[n]:
            print('WRONG'); break
        if n % 7 == round % 7:
            page[round % 900:round % 900 + 5] = b'drops'
            sums[n] = zlib.crc32(page)
        if stop: break
    round += 1
print('right')
";

/// Takes so many MiB, 50 in a second, and stays.
const GROWS: &str = "
import sys, time
held = []
for mib in range(int(sys.argv[1])):
    held.append(bytearray(b'x' * 4096) * 256)
    time.sleep(0.02)
print('grown', flush=True)
time.sleep(600)
";

/// Reads a file three times.
const READS: &str = "
import sys
for _ in range(3):
    with open(sys.argv[1], 'rb', buffering=0) as file:
        while file.read(1 << 20): pass
print('read', flush=True)
";

/// A file that is not in the page cache.
fn file(dir: &Scratch, mib: usize) -> PathBuf {
    let path = dir.write("file", vec![1; mib << 20]);
    let file = File::open(&path).expect("it was written");
    file.sync_all().expect("it can be");
    // SAFETY: no memory effects.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    path
}

/// A busy job in a cgroup; none, after a visible skip, where that cannot be.
fn busy(bytes: u64) -> Option<(HardLimit, Live)> {
    find_or_skip("python3", "python3")?;
    let limit = HardLimit::new_or_skip(bytes)?;
    let job = Job::python(BUSY).option("--ram", "auto").within(&limit);
    let live = job.start_until("ready");
    Some((limit, live))
}

fn end(live: Live, limit: &HardLimit) -> Value {
    let outcome = live.end_by(libc::SIGUSR1);
    assert_eq!(outcome.text(), "ready\nright\n");
    assert_eq!(limit.oom_kills(), 0, "{}", outcome.stats);
    outcome.expect_stderr(&[", auto: "]);
    outcome.stats
}

/// All that the job uses, bytes.
fn in_use(live: &Live) -> u64 {
    let stats = live.stat();
    number(&stats, "ram_granted") + number(&stats, "unmanaged")
}

fn limit_of(live: &Live) -> u64 {
    number(&live.stat(), "ram_limit")
}

#[test]
fn data_of_twice_the_cgroup_come_out_right() {
    let Some(limit) = HardLimit::new_or_skip(256 * MIB) else {
        return;
    };
    let scratch = Scratch::new();
    let args = format!("512 2 mixed 100000 {}", seed());
    let job = Job::compiled(&scratch, "pattern/pattern.c", &args).within(&limit);
    let outcome = job.managed().expect_success("512 MiB of pattern");
    assert_eq!(limit.oom_kills(), 0);
    assert_eq!(outcome.stats["ram_follows"], "cgroup");
    let (highest, lowest) = ("ram_limit_highest", "ram_limit_lowest");
    let (highest, lowest) = (outcome.stat(highest), outcome.stat(lowest));
    // All but the margin and what the cgroup holds besides.
    assert!(
        highest < 226 * MIB && lowest > 200 * MIB,
        "{}",
        outcome.stats
    );
    assert_eq!(job.native().status, 128 + 9, "alone it is killed");
}

#[test]
fn a_lowered_limit_is_followed_in_time() {
    let Some((limit, live)) = busy(384 * MIB) else {
        return;
    };
    assert!(limit_of(&live) > 320 * MIB, "{}", live.stat());
    let mut longest = Duration::ZERO;
    for mib in (192..=368).rev().step_by(16) {
        let began = Instant::now();
        // v1 refuses as long as the job has more, v2 would kill it.
        wait_until("the kernel takes the limit", || limit.set(mib * MIB));
        wait_until("the job has come down", || in_use(&live) < (mib - 16) * MIB);
        longest = longest.max(began.elapsed());
    }
    println!("{longest:?} at most for each 16 MiB");
    assert!(longest < Duration::from_secs(10), "{longest:?}");
    // The job may have come down that far before.
    wait_until("the last is followed", || limit_of(&live) < 176 * MIB);
    // It grows again.
    assert!(limit.set(384 * MIB));
    wait_until("the limit has been raised", || limit_of(&live) > 320 * MIB);
    let stats = end(live, &limit);
    assert!(number(&stats, "ram_limit_lowest") < 176 * MIB, "{stats}");
}

#[test]
fn a_sibling_that_grows_lowers_it_until_it_ends() {
    let Some((limit, live)) = busy(384 * MIB) else {
        return;
    };
    let before = limit_of(&live);
    let sibling = Job::python(GROWS).arg("120").within(&limit);
    let mut sibling = sibling.start_native();
    sibling.wait_for("grown");
    wait_until("it has come down", || limit_of(&live) < before - 110 * MIB);
    wait_until("memory, too", || in_use(&live) < before - 110 * MIB);
    drop(sibling);
    wait_until("it has gone up", || limit_of(&live) > before - 8 * MIB);
    end(live, &limit);
}

#[test]
fn page_cache_does_not_lower_it() {
    let Some((limit, live)) = busy(256 * MIB) else {
        return;
    };
    let before = limit_of(&live);
    let dir = Scratch::under(DISK.as_ref());
    let reader = Job::python(READS).arg(file(&dir, 300)).within(&limit);
    let mut reader = reader.start_native();
    let mut lowest = before;
    while !reader.stdout().contains("read") {
        lowest = lowest.min(limit_of(&live));
        std::thread::sleep(Duration::from_millis(20));
    }
    reader.wait_for("read");
    end(live, &limit);
    if let Some(peak) = limit.peak() {
        assert!(peak > 252 * MIB, "its cache was charged: {peak}");
    }
    // Python takes some memory.
    println!("{} MiB of {} MiB", lowest / MIB, before / MIB);
    assert!(lowest > before - 16 * MIB, "{lowest} of {before}");
}

#[test]
fn the_least_limit_holds_and_is_told_once() {
    let Some(limit) = HardLimit::new_or_skip(96 * MIB) else {
        return;
    };
    let Some(_) = find_or_skip("python3", "python3") else {
        return;
    };
    let scratch = Scratch::new();
    let mut live = Job::idle(&scratch, 4).within(&limit).start_until("idle\n");
    // With its interpreter it takes what the margin does not keep.
    let sibling = Job::python(GROWS).arg("70").within(&limit);
    let mut sibling = sibling.start_native();
    sibling.wait_for("grown");
    const TOLD: &str = "the cgroup leaves only";
    live.wait_until("the user is told", |live| live.stderr().contains(TOLD));
    // A second time would be in one of the next looks.
    std::thread::sleep(Duration::from_millis(500));
    drop(sibling);
    wait_until("it has gone up", || limit_of(&live) > 32 * MIB);
    let outcome = live.end_by(libc::SIGTERM);
    let told = outcome.stderr.matches(TOLD).count();
    assert_eq!(told, 1, "{}", outcome.stderr);
}

#[test]
fn a_user_ends_it_and_starts_it_again() {
    let scratch = Scratch::new();
    let live = Job::idle(&scratch, 64).ram_mib(48).start_until("idle\n");
    assert_eq!(live.stat()["ram_follows"], Value::Null);
    let set = |to: &str| {
        let said = live.uzswap("set", &[to]);
        (said.expect_success(to).text(), live.stat())
    };
    let (said, stats) = set("ram=auto");
    assert_eq!(said, "ram 48 MiB -> auto\n");
    assert!(number(&stats, "ram_limit") > 64 * MIB, "{stats}");
    assert!(stats["ram_follows"].is_string(), "{stats}");
    let table = live.uzswap("stat", &[]).expect_success("stat").text();
    assert!(table.contains(", follows the "), "{table}");
    let top = live.uzswap("top", &[]).expect_success("top").text();
    assert!(top.contains("iB~ "), "{top}");
    let (_, stats) = set("ram=40M");
    assert_eq!(stats["ram_follows"], Value::Null);
    // It stays as it was set.
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(limit_of(&live), 40 * MIB);
    // A limit that cannot be is refused, and does not end it.
    let _ = set("ram=auto");
    let refused = live.uzswap("set", &["ram=1M"]);
    let _ = refused.expect_refused(2, &["at least"]);
    assert!(live.stat()["ram_follows"].is_string());
    let outcome = live.end_by(libc::SIGTERM);
    assert_eq!(outcome.text(), "idle\nright\n");
}

/// A limit that the cgroup has no room for, and a command that goes on without the process that was
/// killed. Where the memory of that one comes back late the kernel kills another, which may be
/// `uzswap`: the next attempt is looked at.
#[test]
fn a_kill_by_the_kernel_is_said() {
    let scratch = Scratch::new();
    let idle = scratch.compile("apps/idle.c");
    let goes_on = "trap 'exit 0' TERM; \"$0\" 256 & wait; while :; do sleep 0.1; done";
    for _ in 0..10 {
        let Some(limit) = HardLimit::new_or_skip(128 * MIB) else {
            return;
        };
        let job = Job::new("sh").args(["-c", goes_on]).arg(&idle).ram_mib(512);
        let mut live = job.within(&limit).start_managed();
        let said = "uzswap: the kernel has killed 1 process in the cgroup, which ran out of \
                    memory: give less --ram";
        live.wait_until("killed", |_| limit.oom_kills() > 0);
        live.wait_until("said", |live| {
            live.stderr().contains(said) || limit.oom_kills() > 1
        });
        live.signal(libc::SIGTERM);
        let outcome = live.wait();
        if limit.oom_kills() == 1 {
            assert_eq!(outcome.status, 0, "{}", outcome.stderr);
            assert_eq!(outcome.stderr.matches("has killed").count(), 1);
            return;
        }
        println!("the kernel killed {}", limit.oom_kills());
    }
    panic!("the kernel killed more than one in each of ten attempts");
}
