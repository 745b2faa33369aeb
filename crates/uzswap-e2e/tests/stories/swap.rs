//! What does not fit even compressed goes to a swap device, and comes back as it was, or not at all.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use uzswap_e2e::{Job, MIB, Scratch, User, find, is_root, seed, skip, users};

const SIGUSR1: i32 = 10;
/// A directory for swap files on a disk; scratch directories may lie in memory.
const DISK: &str = "/var/tmp";

fn noise(scratch: &Scratch, mib: u64) -> Job {
    Job::new(scratch.compile("apps/noise.c"))
        .args([mib.to_string(), seed().to_string()])
        .ram_mib(32)
        .option("--swap", DISK)
}

fn swapped(scratch: &Scratch, what: &str, mib: u64, swap: &str) -> Job {
    Job::new(scratch.compile("apps/swapped.c"))
        .args([what, &mib.to_string(), &seed().to_string()])
        .ram_mib(mib / 2)
        .option("--swap", swap)
}

#[test]
fn data_that_does_not_compress_comes_back_right() {
    for &user in users() {
        let scratch = Scratch::new();
        let outcome = noise(&scratch, 128)
            .user(user)
            .managed()
            .expect_success("noise of four times the limit");
        assert_eq!(outcome.text(), "right\n");
        outcome.expect_within(16 * MIB);
        assert!(
            outcome.stat("written_back_pages") > 20_000,
            "{}",
            outcome.stats
        );
        assert!(outcome.stat("pswpin") > 20_000, "{}", outcome.stats);
        assert!(outcome.stat("swap_peak") > 80 * MIB, "{}", outcome.stats);
        // It is filled once and read twice: what is read back and evicted again has its copy.
        assert!(
            outcome.stat("swap_writes_saved") > outcome.stat("pswpin") / 2,
            "{}",
            outcome.stats
        );
        // The pool is made smaller before anybody fails to find room in it.
        assert!(
            outcome.stat("reject_reclaim_fail") < outcome.stat("written_back_pages") / 100,
            "{}",
            outcome.stats
        );
    }
}

/// What lies beside a page on the device comes along with it while it is asked for then.
#[test]
fn neighbours_are_read_along_while_that_pays() {
    let scratch = Scratch::new();
    let run = |what| {
        let outcome = Job::new(scratch.compile("apps/near.c"))
            .args(["64", &seed().to_string(), what])
            .ram_mib(16)
            .option("--swap", DISK)
            .managed()
            .expect_success(what);
        assert_eq!(outcome.text(), "right\n");
        let early = outcome.stat("swap_reads_early");
        assert!(early > 100, "{what}: {early} reads while memory was made");
        let stat = ["swap_reads", "pswpin", "swap_ra", "swap_ra_hit"];
        stat.map(|name| outcome.stat(name))
    };
    let [reads, read, along, hits] = run("near");
    println!("near: {read} pages in {reads} reads, {hits} of {along} hit");
    assert!(
        read > 10_000 && reads < read / 2,
        "{reads} reads for {read}"
    );
    assert!(hits > along / 2, "{hits} of {along}");
    let [reads, read, along, hits] = run("far");
    println!("far: {read} pages in {reads} reads, {hits} of {along} hit");
    assert!(read > 2000 && along < read / 8, "{along} of {read}");
}

fn pattern(user: User, fault_mode: &str, encrypt: &str, compressor: &str, block: &str) {
    let scratch = Scratch::new();
    let outcome = Job::new(scratch.compile("pattern/pattern.c"))
        .args(["96", "8", "mixed", "30000", &seed().to_string()])
        .ram_mib(16)
        .user(user)
        .option("--swap", DISK)
        .option("--max-pool-percent", "10")
        .option("--fault-mode", fault_mode)
        .option("--swap-encrypt", encrypt)
        .option("--compressor", compressor)
        .option("--block", block)
        .managed()
        .expect_success("many threads on a pool that is far too small");
    assert!(outcome.text().contains(": right"), "{}", outcome.text());
    outcome.expect_within(16 * MIB);
    // The pool is written back long before it is in anybody's way.
    assert!(outcome.stat("zswap_peak") < 4 * MIB, "{}", outcome.stats);
    assert!(
        outcome.stat("written_back_pages") > 100 * outcome.stat("reject_reclaim_fail"),
        "{}",
        outcome.stats
    );
}

#[test]
fn threads_see_their_own_data() {
    pattern(User::Same, "signal", "on", "lz4", "4K");
    pattern(User::Same, "signal", "off", "zstd", "4K");
}

#[test]
fn threads_see_their_own_data_in_blocks() {
    pattern(User::Same, "signal", "on", "lz4", "64K");
    pattern(User::Same, "signal", "off", "zstd", "16K");
}

#[test]
fn without_userfaultfd_it_comes_back_too() {
    pattern(User::Same, "segv", "on", "lz4", "4K");
}

#[test]
fn handler_threads_bring_it_back_too() {
    if !is_root() {
        skip("handler threads need root");
        return;
    }
    pattern(User::Same, "thread", "on", "lz4", "4K");
}

/// Parent and child share what is on the device; each changes its own, and either way that the child goes the
/// parent's stays.
#[test]
fn parent_and_child_keep_their_own() {
    let scratch = Scratch::new();
    let outcome = swapped(&scratch, "family", 24, DISK)
        .managed()
        .expect_success("a family on one device");
    assert_eq!(outcome.text(), "right\n");
}

/// A child that outlives its parent keeps its own, and what either held is free again: a device that each round
/// took a little of would be full before the last.
#[test]
fn orphans_keep_their_own_and_leave_nothing_behind() {
    let scratch = Scratch::new();
    let outcome = swapped(&scratch, "orphan", 24, DISK)
        .option("--swap-max", "96M")
        .managed()
        .expect_success("children that outlive their parents");
    assert_eq!(outcome.text(), "right\n");
}

/// Processes that have a file open that once was in `dir`.
fn holders(dir: &str) -> usize {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let files = processes.flat_map(|process| std::fs::read_dir(process.path().join("fd")));
    let links = files
        .flatten()
        .flatten()
        .map(|fd| std::fs::read_link(fd.path()));
    links
        .filter(|link| link.as_ref().is_ok_and(|link| link.starts_with(dir)))
        .count()
}

/// Whoever is killed, and when: no file, and no space that somebody holds.
#[test]
fn killed_at_any_moment_it_leaves_nothing() {
    let dir = format!("{DISK}/uzswap-killed-{}", std::process::id());
    std::fs::create_dir(&dir).expect("a directory on a disk");
    let scratch = Scratch::new();
    let mut at = seed() % 50;
    for round in 0..8 {
        let live = noise(&scratch, 128).option("--swap", &dir).start_managed();
        std::thread::sleep(Duration::from_millis(at));
        // Every second time the command alone; its uzswap then ends by itself.
        let children = format!("/proc/{0}/task/{0}/children", live.pid());
        let child = std::fs::read_to_string(children).unwrap_or_default();
        match child
            .split_whitespace()
            .next()
            .and_then(|pid| pid.parse().ok())
        {
            // SAFETY: plain system call; the process is a child of one that is ours and was not waited for.
            Some(pid) if round % 2 == 1 => drop(unsafe { libc::kill(pid, libc::SIGKILL) }),
            _ => live.signal(libc::SIGKILL),
        }
        let _ = live.wait();
        let deadline = Instant::now() + Duration::from_secs(20);
        while holders(&dir) > 0 {
            assert!(
                Instant::now() < deadline,
                "round {round}, {at} ms: somebody holds a file"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        let left: Vec<_> = std::fs::read_dir(&dir).expect("the directory").collect();
        assert!(left.is_empty(), "round {round}, {at} ms: {left:?}");
        at = at * 3 / 2 + 20;
    }
    std::fs::remove_dir(&dir).expect("it is empty");
}

/// Each child takes more of the device than is left unless what the dead ones held is free again.
#[test]
fn the_dead_leave_nothing_behind() {
    let scratch = Scratch::new();
    let outcome = swapped(&scratch, "kill", 64, DISK)
        .option("--swap-max", "160M")
        .managed()
        .expect_success("children that are killed");
    assert_eq!(outcome.text(), "right\n");
}

/// Copies of what is in RAM take room on the device only as long as nothing else needs it: with room for little more
/// than what does not fit in RAM, everything still fits.
#[test]
fn kept_copies_are_in_nobodys_way() {
    let scratch = Scratch::new();
    let outcome = swapped(&scratch, "family", 24, DISK)
        .option("--swap-max", "40M")
        .managed()
        .expect_success("a family on a device that is nearly full");
    assert_eq!(outcome.text(), "right\n");
}

#[test]
fn a_full_device_is_the_limit() {
    let scratch = Scratch::new();
    let outcome = noise(&scratch, 192)
        .option("--swap-max", "64M")
        .flag("--quiet")
        .managed();
    assert_eq!(outcome.status, 125, "{}", outcome.stderr);
    assert_eq!(
        outcome.stderr.trim_end().lines().count(),
        1,
        "{}",
        outcome.stderr
    );
    assert!(outcome.stat("swap_full") > 0, "{}", outcome.stats);
    assert_eq!(outcome.stats["failure"]["reason"], "over_limit");
    for word in ["64 MiB had no room left", "--swap-max", "--ram"] {
        assert!(outcome.stderr.contains(word), "{}", outcome.stderr);
    }
}

/// Data that must not get to a disk stay away from it, at the price of the limit.
#[test]
fn nothing_is_written_while_writeback_is_off() {
    let scratch = Scratch::new();
    let outcome = noise(&scratch, 96)
        .option("--writeback", "off")
        .flag("--quiet")
        .managed();
    assert_eq!(outcome.status, 125, "{}", outcome.stderr);
    for counter in ["written_back_pages", "pswpout", "swap_peak"] {
        assert_eq!(outcome.stat(counter), 0, "{}", outcome.stats);
    }
    assert!(
        outcome.stat("reject_writeback_off") > 0,
        "{}",
        outcome.stats
    );
    for word in ["swap was off", "--writeback on"] {
        assert!(outcome.stderr.contains(word), "{}", outcome.stderr);
    }
}

/// What is not used goes to swap before the pool is anywhere near its limit; what comes back stays.
#[test]
fn the_shrinker_writes_what_has_been_cold_for_long() {
    let run = |shrinker: &str| {
        let job = Job::new(find("python3").expect("python3 is installed"));
        job.args(["-c", COLD_AND_WARM])
            .ram_mib(32)
            .option("--swap", DISK)
            .option("--shrinker-enabled", shrinker)
            .managed()
            .expect_success(shrinker)
    };
    let off = run("off");
    assert_eq!(off.stat("written_back_pages"), 0, "{}", off.stats);
    let on = run("on");
    assert_eq!(on.text(), "right\n");
    // A quarter of the cold half at least, and of the warm half what is unlucky.
    assert!(on.stat("shrinker_written_back") > 2500, "{}", on.stats);
    assert!(
        on.stat("pswpin") < on.stat("shrinker_written_back"),
        "{}",
        on.stats
    );
}

/// 40 MB that are filled and checked at the end, 40 MB that are used all the time; a page takes a tenth
/// of one in the pool.
const COLD_AND_WARM: &str = "
import os, zlib
page = lambda: os.urandom(300) + bytes(3700)
cold = [page() for _ in range(10000)]
sums = [zlib.crc32(page) for page in cold]
warm = [page() for _ in range(10000)]
for _ in range(12):
    for page in warm: zlib.crc32(page)
print('right' if sums == [zlib.crc32(page) for page in cold] else 'WRONG')
";

/// What was damaged on the device is never taken for the program's data: SIGBUS, one message.
#[test]
fn damaged_data_are_never_given_back() {
    for encrypt in ["on", "off"] {
        let scratch = Scratch::new();
        let file = tempfile_on_disk();
        let mut live = swapped(&scratch, "hold", 64, &file.0)
            .option("--swap-max", "128M")
            .option("--swap-encrypt", encrypt)
            .flag("--quiet")
            .start_managed();
        live.wait_for("ready");
        let device = File::options()
            .write(true)
            .open(&file.0)
            .expect("the device");
        let len = device.metadata().expect("its length").len();
        for at in (MIB..len).step_by(4096) {
            device.write_all_at(b"damage", at + 2000).expect("damage");
        }
        device.sync_all().expect("it reaches the disk");
        live.signal(SIGUSR1);
        let outcome = live.wait();
        assert_eq!(outcome.status, 128 + 7, "{}", outcome.stderr);
        assert_eq!(
            outcome.stderr.trim_end().lines().count(),
            1,
            "{}",
            outcome.stderr
        );
        for word in ["uzswap: ", "0x1000", "SIGBUS", &file.0] {
            assert!(
                outcome.stderr.contains(word),
                "no {word:?} in {}",
                outcome.stderr
            );
        }
        assert!(outcome.stat("swap_read_fail") > 0, "{}", outcome.stats);
    }
}

/// An empty file that is gone when this is dropped.
struct OnDisk(String);

fn tempfile_on_disk() -> OnDisk {
    let path = format!("{DISK}/uzswap-damage-{}", std::process::id());
    File::create(&path).expect("a file on a disk");
    OnDisk(path)
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
