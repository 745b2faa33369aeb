//! Groups by name: several commands in one limit, which end in any order; and what is wrong with a
//! name is said in one line.

use std::time::{Duration, Instant};

use uzswap_e2e::{
    DISK, Job, Live, MIB, Outcome, Scratch, User, find_or_skip, is_root, number, root_or_skip,
    wait_until,
};

/// A name that no other story, and no other test run, takes.
pub fn fresh(story: &str) -> String {
    format!("{story}-{}", std::process::id())
}

/// `uzswap COMMAND GROUP ARGS`.
pub fn uzswap(command: &str, group: &str, args: &[&str]) -> Outcome {
    Job::new(command).arg(group).args(args).uzswap_itself()
}

/// Checks that `uzswap COMMAND GROUP ARGS` is refused with status 2 and a line of these words.
pub fn refused(command: &str, group: &str, args: &[&str], words: &[&str]) {
    let _ = uzswap(command, group, args).expect_refused(2, words);
}

/// What `uzswap stat --json` says of a group.
pub fn stat(group: &str) -> serde_json::Value {
    uzswap("stat", group, &["--json"])
        .expect_success("stat")
        .json()
}

/// Fills `mib` MiB that do not compress, says "full" and, for each line of stdin, checks it.
pub const NOISE: &str = "
import hashlib, os, sys, time
pages = [os.urandom(1 << 20) for _ in range(int(sys.argv[1]))]
sums = [hashlib.md5(page).digest() for page in pages]
print('full', flush=True)
go = sys.argv[2]
while not os.path.exists(go):
    time.sleep(0.02)
right = all(hashlib.md5(page).digest() == sum for page, sum in zip(pages, sums))
print('right' if right else 'WRONG', flush=True)
";

/// A job in `group` that fills `mib` MiB with noise and checks it once `go` is there.
fn noise(group: &str, mib: u64, go: &std::path::Path) -> Option<Job> {
    find_or_skip("python3", "python3")?;
    let job = Job::python(NOISE).arg(mib.to_string()).arg(go);
    Some(job.option("--group", group))
}

#[test]
fn two_commands_share_one_limit() {
    let (group, scratch) = (fresh("share"), Scratch::new());
    let job = Job::idle(&scratch, 100).option("--group", &group);
    let first = job
        .clone()
        .ram_mib(96)
        .option("--swap", "none")
        .start_until("idle");
    let second = job.start_until("idle");
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        let stats = stat(&group);
        assert_eq!(stats["group"], group.as_str());
        assert_eq!(number(&stats, "ram_limit"), 96 * MIB);
        assert_eq!(number(&stats, "processes"), 2, "{stats}");
        assert!(number(&stats, "ram_granted") <= 96 * MIB, "{stats}");
        assert!(number(&stats, "zswapped") > 100 * MIB, "{stats}");
        std::thread::sleep(Duration::from_millis(50));
    }
    for live in [&first, &second] {
        let own = live.stat();
        assert_eq!(number(&own, "processes"), 1, "of its run alone: {own}");
        assert_eq!(number(&own, "ram_limit"), 96 * MIB);
    }
    for live in [first, second] {
        let outcome = end_idle(live);
        assert_eq!(outcome.text(), "idle\nright\n");
        outcome.expect_within(24 * MIB);
    }
    refused("stat", &group, &[], &[&group, "no group"]);
}

/// Tells an idle job to end.
fn end_idle(live: Live) -> Outcome {
    live.end_by(libc::SIGTERM)
}

#[test]
fn whoever_ends_first_the_others_keep_their_limit_and_what_is_on_swap() {
    let (group, scratch) = (fresh("order"), Scratch::new());
    let go = scratch.join("go");
    let Some(job) = noise(&group, 60, &go) else {
        return;
    };
    let short = Job::idle(&scratch, 20).option("--group", &group);
    let first = short.ram_mib(64).option("--swap", DISK).start_until("idle");
    let second = job.clone().start_until("full");
    assert_eq!(end_idle(first).text(), "idle\nright\n");
    // The devices are the second's now, and whoever joins gets them from there.
    let third = job.start_until("full");
    wait_until("much is on swap", || {
        number(&stat(&group), "pswpout") * 4096 > 50 * MIB
    });
    assert_eq!(number(&stat(&group), "ram_limit"), 64 * MIB);
    std::fs::write(&go, "").expect("a file in a scratch directory");
    for live in [third, second] {
        let outcome = live.wait().expect_success("a job that goes on alone");
        assert_eq!(outcome.text(), "full\nright\n");
        assert!(outcome.stat("pswpin") > 0, "{}", outcome.stats);
    }
    refused("stat", &group, &[], &[&group, "no group"]);
}

#[test]
fn a_killed_supervisor_takes_its_own_command_and_nothing_else() {
    let (group, scratch) = (fresh("killed"), Scratch::new());
    let go = scratch.join("go");
    let Some(job) = noise(&group, 40, &go) else {
        return;
    };
    let first = job
        .clone()
        .ram_mib(64)
        .option("--swap", DISK)
        .start_until("full");
    let second = job.clone().start_until("full");
    first.signal(libc::SIGKILL);
    let _ = first.wait();
    wait_until("what the killed one had is free", || {
        number(&stat(&group), "ram_granted") < 50 * MIB
    });
    let third = job.start_until("full");
    std::fs::write(&go, "").expect("a file in a scratch directory");
    for live in [second, third] {
        let outcome = live
            .wait()
            .expect_success("a job beside a killed supervisor");
        assert_eq!(outcome.text(), "full\nright\n");
    }
    // Of a group whose only supervisor is killed nothing is left in the way.
    let alone = Job::idle(&scratch, 10)
        .option("--group", &group)
        .ram_mib(64);
    let live = alone.start_until("idle");
    live.signal(libc::SIGKILL);
    let _ = live.wait();
    let words = [&*group, "was killed", "uzswap run --group"];
    refused("set", &group, &["max=96M"], &words);
    let again = alone.start_until("idle");
    assert_eq!(number(&stat(&group), "ram_limit"), 64 * MIB);
    assert_eq!(end_idle(again).text(), "idle\nright\n");
}

#[test]
fn a_child_has_a_limit_of_its_own_within_its_parents() {
    let (group, scratch) = (fresh("nested"), Scratch::new());
    let (a, b) = (format!("{group}/a"), format!("{group}/b"));
    let job = |name: &str| Job::idle(&scratch, 60).option("--group", name);
    let outer = job(&group)
        .ram_mib(128)
        .option("--swap", "none")
        .start_until("idle");
    let in_a = job(&a).ram_mib(32).start_until("idle");
    let in_b = job(&b).ram_mib(512).start_managed();
    let granted = |name: &str| number(&stat(name), "ram_granted");
    wait_until("all are there", || number(&stat(&group), "processes") == 3);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        assert!(granted(&a) <= 32 * MIB, "{}", stat(&a));
        assert!(granted(&group) <= 128 * MIB, "{}", stat(&group));
    }
    assert_eq!(number(&stat(&b), "ram_limit"), 128 * MIB, "its parent's");
    let up = uzswap("set", &a, &["max=48M"]).expect_success("set max");
    assert_eq!(up.text(), "max 32 MiB -> 48 MiB\n");
    let _ = uzswap("set", &a, &["max=24M"]).expect_success("set max");
    assert!(granted(&a) <= 24 * MIB, "{}", stat(&a));
    let mut in_b = in_b;
    in_b.wait_for("idle");
    for live in [outer, in_a] {
        assert_eq!(end_idle(live).text(), "idle\nright\n");
    }
    let outcome = end_idle(in_b);
    outcome.expect_stderr(&[&b, "512 MiB", "128 MiB", "the least holds"]);
}

#[test]
fn what_is_wrong_with_a_group_is_said_in_one_line() {
    let (group, scratch) = (fresh("bad"), Scratch::new());
    for command in ["stat", "set", "top"] {
        refused(command, &group, &[], &["no group", &group, "uzswap top"]);
    }
    refused("reclaim", &group, &["1M"], &["no group", &group]);
    let live = Job::idle(&scratch, 10)
        .option("--group", &group)
        .ram_mib(64)
        .start_until("idle");
    let run = |options: &[&str]| {
        let job = Job::new("run").args(["--group", &group]).args(options);
        job.args(["--", "true"]).uzswap_itself()
    };
    let limit = run(&["--ram", "32M"]);
    let _ = limit.expect_refused(2, &["has a limit already", "uzswap set", "max=32MiB"]);
    let codec = run(&["--compressor", "zstd"]);
    let _ = codec.expect_refused(
        2,
        &["--compressor", "runs already", "leave --compressor out"],
    );
    refused(
        "stat",
        &format!("{group}/x"),
        &[],
        &["no group", "no group in it"],
    );
    let both = ["ram=64M", "max=64M"];
    refused("set", &group, &both, &["max", "ram", "same limit"]);
    refused(
        "set",
        &group,
        &["max=1M"],
        &["at least", "nothing was changed"],
    );
    let name = Job::line("run --group a//b -- true").uzswap_itself();
    let _ = name.expect_refused(125, &["a//b", "name"]);
    if root_or_skip("another user") && is_root() {
        let theirs = Job::idle(&scratch, 10)
            .user(User::Ordinary)
            .option("--group", format!("{group}-theirs"))
            .start_until("idle");
        let ours = format!("run --group {group}-theirs -- true");
        let refusal = Job::line(&ours).uzswap_itself();
        let _ = refusal.expect_refused(2, &["belongs to user 65534", "another name"]);
        assert_eq!(end_idle(theirs).text(), "idle\nright\n");
    }
    assert_eq!(
        number(&stat(&group), "ram_limit"),
        64 * MIB,
        "nothing was changed"
    );
    assert_eq!(end_idle(live).text(), "idle\nright\n");
}
