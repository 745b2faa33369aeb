//! Data that does not fit even compressed goes to a swap device, and comes back right or not at
//! all.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use uzswap_e2e::{DISK, Job, MIB, Scratch, root_or_skip, seed, users, wait_until};

fn noise(scratch: &Scratch, mib: u64) -> Job {
    Job::compiled(scratch, "apps/noise.c", &format!("{mib} {}", seed()))
        .ram_mib(32)
        .option("--swap", DISK)
}

fn swapped(scratch: &Scratch, what: &str, mib: u64, swap: &str) -> Job {
    Job::compiled(
        scratch,
        "apps/swapped.c",
        &format!("{what} {mib} {}", seed()),
    )
    .ram_mib(mib / 2)
    .option("--swap", swap)
}

#[test]
fn incompressible_data_comes_back_right() {
    for &user in users() {
        let scratch = Scratch::new();
        let outcome = noise(&scratch, 128)
            .user(user)
            .managed()
            .expect_success("noise of four times the limit");
        assert_eq!(outcome.text(), "right\n");
        outcome.expect_within(16 * MIB);
        let stats = &outcome.stats;
        let (written, read) = (outcome.stat("written_back_pages"), outcome.stat("pswpin"));
        assert!(written > 20_000 && read > 20_000, "{stats}");
        assert!(outcome.stat("swap_peak") > 80 * MIB, "{stats}");
        // Data is written once and read twice: a page read back and evicted again still has its
        // copy.
        assert!(outcome.stat("swap_writes_saved") > read / 2, "{stats}");
        // The pool shrinks before a store finds no room in it.
        assert!(
            outcome.stat("reject_reclaim_fail") < written / 100,
            "{stats}"
        );
    }
}

/// Readahead brings in a page's neighbours on the device as long as they are used.
#[test]
fn neighbours_are_read_ahead_while_that_pays() {
    let scratch = Scratch::new();
    let run = |what| {
        let outcome = Job::compiled(&scratch, "apps/near.c", &format!("64 {} {what}", seed()))
            .ram_mib(16)
            .option("--swap", DISK)
            // Where a reclaimer keeps room free, reads seldom overlap an eviction.
            .flag("--background-reclaim=off")
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

/// Many threads on a pool that is far too small.
fn pattern(options: &str) {
    let scratch = Scratch::new();
    let args = format!("96 8 mixed 30000 {}", seed());
    let outcome = Job::compiled(&scratch, "pattern/pattern.c", &args)
        .ram_mib(16)
        .option("--swap", DISK)
        .options("--max-pool-percent 10")
        .options(options)
        .managed()
        .expect_success(options);
    assert!(outcome.text().contains(": right"), "{}", outcome.text());
    outcome.expect_within(16 * MIB);
    // The pool is written back long before it is full.
    let stats = &outcome.stats;
    assert!(outcome.stat("zswap_peak") < 4 * MIB, "{stats}");
    let rejected = outcome.stat("reject_reclaim_fail");
    assert!(
        outcome.stat("written_back_pages") > 100 * rejected,
        "{stats}"
    );
}

#[test]
fn threads_see_their_own_data() {
    pattern("--fault-mode signal --swap-encrypt on --compressor lz4 --block 4K");
    pattern("--fault-mode signal --swap-encrypt off --compressor zstd --block 4K");
}

#[test]
fn threads_see_their_own_data_in_blocks() {
    pattern("--fault-mode signal --swap-encrypt on --compressor lz4 --block 64K");
    pattern("--fault-mode signal --swap-encrypt off --compressor zstd --block 16K");
}

#[test]
fn other_fault_modes_bring_data_back_too() {
    pattern("--fault-mode segv --swap-encrypt on --compressor lz4 --block 4K");
    if root_or_skip("fault mode thread") {
        pattern("--fault-mode thread --swap-encrypt on --compressor lz4 --block 4K");
    }
}

/// Families on one device, whose members keep their own data.
#[test]
fn families_keep_their_own() {
    for (what, mib, max) in [
        // Parent and child share slots. Each changes its own pages, and however the child ends, the
        // parent's stay.
        ("family", 24, "256M"),
        // Copies of resident pages keep their slots only while nothing else needs them: a device
        // with little more room than what does not fit in RAM is enough.
        ("family", 24, "48M"),
        // A child that outlives its parent keeps its data, and the slots of both are freed: if each
        // round leaked some, the device would be full before the last.
        ("orphan", 24, "96M"),
        // Each child needs more of the device than is left unless the slots of killed ones are
        // freed.
        ("kill", 64, "160M"),
    ] {
        let scratch = Scratch::new();
        let outcome = swapped(&scratch, what, mib, DISK)
            .option("--swap-max", max)
            .managed()
            .expect_success(&format!("{what} on a device of {max}"));
        assert_eq!(outcome.text(), "right\n");
    }
}

/// Number of open files that are or were in `dir`.
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

/// Whichever process is killed, and when: no file is left, and nobody holds its space.
#[test]
fn a_run_killed_at_any_moment_leaves_no_file() {
    let dir = format!("{DISK}/uzswap-killed-{}", std::process::id());
    std::fs::create_dir(&dir).expect("a directory on a disk");
    let scratch = Scratch::new();
    let mut at = seed() % 50;
    for round in 0..8 {
        let live = noise(&scratch, 128).option("--swap", &dir).start_managed();
        std::thread::sleep(Duration::from_millis(at));
        // Every second time only the command is killed; its uzswap then ends by itself.
        let children = format!("/proc/{0}/task/{0}/children", live.pid());
        let child = std::fs::read_to_string(children).unwrap_or_default();
        match child
            .split_whitespace()
            .next()
            .and_then(|pid| pid.parse().ok())
        {
            // SAFETY: plain system call; the process is a child of one that is ours and was not
            // waited for.
            Some(pid) if round % 2 == 1 => drop(unsafe { libc::kill(pid, libc::SIGKILL) }),
            _ => live.signal(libc::SIGKILL),
        }
        let _ = live.wait();
        let what = format!("round {round}, {at} ms: nobody holds a file");
        wait_until(&what, || holders(&dir) == 0);
        let left: Vec<_> = std::fs::read_dir(&dir).expect("the directory").collect();
        assert!(left.is_empty(), "round {round}, {at} ms: {left:?}");
        at = at * 3 / 2 + 20;
    }
    std::fs::remove_dir(&dir).expect("it is empty");
}

#[test]
fn a_full_device_is_the_limit() {
    let scratch = Scratch::new();
    let outcome = noise(&scratch, 192)
        .option("--swap-max", "64M")
        .flag("--quiet")
        .managed();
    let words = ["64 MiB had no room left", "--swap-max", "--ram"];
    let outcome = outcome.expect_refused(125, &words);
    assert!(outcome.stat("swap_full") > 0, "{}", outcome.stats);
    assert_eq!(outcome.stats["failure"]["reason"], "over_limit");
}

/// With writeback off no data reaches the disk, even over the limit.
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
    assert_ne!(outcome.stat("reject_writeback_off"), 0);
    outcome.expect_stderr(&["swap was off", "--writeback on"]);
}

/// The shrinker writes cold pages back long before the pool is full; what comes back stays.
#[test]
fn the_shrinker_writes_cold_pages_back() {
    let run = |shrinker: &str| {
        Job::python(COLD_AND_WARM)
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
    // At least a quarter of the cold half, and some of the warm half.
    let written = on.stat("shrinker_written_back");
    assert!(written > 2500, "{}", on.stats);
    assert!(on.stat("pswpin") < written, "{}", on.stats);
}

/// 40 MB filled at the start and checked at the end, and 40 MB used all the time. A page compresses
/// to a tenth.
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

/// Data damaged on the device never reaches the program: SIGBUS and one message.
#[test]
fn damaged_data_is_never_returned() {
    for encrypt in ["on", "off"] {
        let scratch = Scratch::new();
        let file = tempfile_on_disk();
        let live = swapped(&scratch, "hold", 64, &file.0)
            .option("--swap-max", "128M")
            .option("--swap-encrypt", encrypt)
            .flag("--quiet")
            .start_until("ready");
        let device = File::options()
            .write(true)
            .open(&file.0)
            .expect("the device");
        let len = device.metadata().expect("its length").len();
        for at in (MIB..len).step_by(4096) {
            device.write_all_at(b"damage", at + 2000).expect("damage");
        }
        device.sync_all().expect("it reaches the disk");
        live.signal(libc::SIGUSR1);
        let outcome = live.wait();
        let words = ["uzswap: ", "0x1000", "SIGBUS", &file.0];
        let outcome = outcome.expect_refused(128 + libc::SIGBUS, &words);
        assert!(outcome.stat("swap_read_fail") > 0, "{}", outcome.stats);
    }
}

/// An empty file, removed when dropped.
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
