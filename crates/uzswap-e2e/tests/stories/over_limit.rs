//! Data that does not fit even compressed ends the program with one clear message and status 125,
//! or exceeds the limit where that is allowed. So do data beside which, compressed, next to nothing
//! else would fit.

use std::time::Duration;

use uzswap_e2e::{DISK, Job, MIB, Scratch, number};

#[test]
fn ends_with_one_clear_message() {
    let scratch = Scratch::new();
    let job = Job::compiled(&scratch, "apps/noise.c", "128 7")
        .ram_mib(48)
        .option("--swap", "none")
        .flag("--quiet");
    assert_eq!(job.native().text(), "right\n");
    let words = [
        "uzswap: ",
        "noise",
        "at least",
        "48 MiB",
        "--over-limit=allow",
    ];
    let outcome = job.managed().expect_refused(125, &words);
    assert_eq!(outcome.text(), "");
    // Statistics are written all the same, and the limit held to the end.
    outcome.expect_within(16 * MIB);
    assert_eq!(outcome.stats["failure"]["reason"], "over_limit");
    let needed = number(&outcome.stats["failure"], "needed");
    assert!(needed > 48 * MIB && needed < 256 * MIB, "{needed}");
}

#[test]
fn allow_lets_it_finish() {
    let scratch = Scratch::new();
    let outcome = Job::compiled(&scratch, "apps/noise.c", "128 7")
        .ram_mib(48)
        .option("--swap", "none")
        .option("--over-limit", "allow")
        .managed()
        .expect_success("noise beyond the limit");
    assert_eq!(outcome.text(), "right\n");
    assert!(outcome.stat("ram_peak") > 100 * MIB, "{}", outcome.stats);
    assert!(
        outcome.peak_rss < 200 * MIB,
        "{} MiB",
        outcome.peak_rss / MIB
    );
}

/// Incompressible pages are kept raw, as long as they fit.
#[test]
fn incompressible_pages_are_kept_raw() {
    let scratch = Scratch::new();
    let outcome = Job::compiled(&scratch, "apps/noise.c", "64 7")
        .ram_mib(80)
        .managed()
        .expect_success("noise within the limit");
    assert_eq!(outcome.text(), "right\n");
    outcome.expect_within(16 * MIB);
}

/// MiB that compress about 1.9:1, of which random pages are read and written until as many are
/// done; then all are checked.
fn nearly_fits(mib: u64, accesses: u64) -> Job {
    let script = r"
import random, sys
mib, accesses = map(int, sys.argv[1:])
r, pages = random.Random(7), mib * 256
data, seen = bytearray(mib << 20), [0] * pages
for page in range(pages):
    at = page * 4096
    data[at:at + 2000] = r.randbytes(2000)
    data[at + 2000:at + 4096] = b'%08x' % page * 262
for _ in range(accesses):
    page = r.randrange(pages)
    seen[page] = data[page * 4096] = (data[page * 4096] + 1) % 256
assert all(data[page * 4096 + 4088:page * 4096 + 4096] == b'%08x' % page for page in range(pages))
assert all(data[page * 4096] == last for page, last in enumerate(seen) if last)
print('right')
";
    Job::python(script)
        .ram_mib(48)
        .arg(mib.to_string())
        .arg(accesses.to_string())
        .timeout(Duration::from_secs(300))
}

#[test]
fn what_leaves_nothing_resident_does_not_fit() {
    let began = std::time::Instant::now();
    let words = ["its 1", "at least", "48 MiB", "--over-limit=allow"];
    let outcome = nearly_fits(115, 1 << 40)
        .option("--swap", "none")
        .flag("--quiet")
        .managed()
        .expect_refused(125, &words);
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
    // It was ended at the floor, not when next to nothing was left.
    assert!(outcome.stat("resident") > 4 * MIB, "{}", outcome.stats);
    outcome.expect_within(16 * MIB);
}

#[test]
fn what_leaves_nothing_resident_goes_to_swap() {
    let outcome = nearly_fits(115, 20_000)
        .option("--swap", DISK)
        .managed()
        .expect_success("more than fits, with a swap file");
    assert_eq!(outcome.text(), "right\n");
    assert!(outcome.stat("pswpout") > 1000, "{}", outcome.stats);
    outcome.expect_within(16 * MIB);
}

/// The pool may take all of the limit, so that the floor makes it go to swap.
#[test]
fn the_floor_holds_whatever_the_pool_may_take() {
    let outcome = nearly_fits(115, 20_000)
        .option("--swap", DISK)
        .option("--max-pool-percent", "100")
        .managed()
        .expect_success("more than fits, with a pool of any size");
    assert_eq!(outcome.text(), "right\n");
    assert!(outcome.stat("pswpout") > 1000, "{}", outcome.stats);
}

/// What runs, but hardly, is told so once, and `stat`, the metrics and the statistics say it, too.
/// By a slow device, which leaves no doubt: how much of its time a program of another kind spends in
/// the kernel's part of its faults is the machine's.
#[test]
fn who_thrashes_is_told_so_once() {
    let scratch = Scratch::new();
    let mut live = Job::compiled(&scratch, "pattern/pattern.c", "160 1 random 100000000 1")
        .ram_mib(48)
        .option("--swap", DISK)
        .options("--max-pool-percent 10 --background-reclaim=off")
        .failing("read=delay:2000@1+")
        .start_managed();
    live.wait_until("managed", |live| live.uzswap("stat", &[]).status == 0);
    live.wait_until("it thrashes for 30 s", |live| {
        std::thread::sleep(Duration::from_secs(1));
        number(&live.stat(), "thrashing_s") >= 30
    });
    let table = live.uzswap("stat", &[]).expect_success("stat").text();
    assert!(table.contains("of its time in page faults"), "{table}");
    let metrics = live.uzswap("stat", &["--prometheus"]).text();
    let is_set = |line: &str| line.starts_with("uzswap_thrashing{") && line.ends_with(" 1");
    assert!(metrics.lines().any(is_set), "{metrics}");
    let top = live.uzswap("top", &[]).text();
    assert!(top.contains("pattern!"), "{top}");
    live.signal(libc::SIGTERM);
    let outcome = live.wait();
    let said = outcome.stderr.matches("of its time in page faults").count();
    assert_eq!(said, 1, "{}", outcome.stderr);
}
