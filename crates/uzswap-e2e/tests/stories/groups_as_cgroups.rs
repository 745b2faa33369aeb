//! What a group may have, by the kernel's words: with the meaning of the kernel's own tests of
//! zswap in cgroups, one story each, and of the other controls.

use std::path::Path;
use std::time::{Duration, Instant};

use uzswap_e2e::{DISK, Job, Live, MIB, Outcome, Scratch, find_or_skip, number, wait_until};

use crate::groups::{fresh, refused, stat, uzswap};

/// A tree that a command which does nothing keeps there, so that its groups can be set up before
/// anything runs in them.
struct Tree {
    name: String,
    scratch: Scratch,
    keepers: Vec<Live>,
}

impl Tree {
    fn new(story: &str, ram: u64, options: &str) -> Self {
        let (name, scratch) = (fresh(story), Scratch::new());
        let keeper = Job::idle(&scratch, 1).options(options).ram_mib(ram);
        let keepers = vec![keeper.option("--group", &name).start_until("idle")];
        Tree {
            name,
            scratch,
            keepers,
        }
    }

    /// Adds a group of `ram` MiB in it. Returns its name.
    fn group(&mut self, child: &str, ram: u64) -> String {
        let name = format!("{}/{child}", self.name);
        let keeper = Job::idle(&self.scratch, 1).ram_mib(ram);
        let keeper = keeper.option("--group", &name).start_until("idle");
        self.keepers.push(keeper);
        name
    }

    /// A job of `mib` MiB, which compress well, in a group.
    fn idle(&self, group: &str, mib: u64) -> Live {
        let job = Job::idle(&self.scratch, mib).option("--group", group);
        job.start_until("idle")
    }

    /// A job of `mib` MiB of noise in a group, which ends once `go` is there.
    fn noise(&self, group: &str, mib: u64, go: &Path) -> Option<Job> {
        find_or_skip("python3", "python3")?;
        let job = Job::python(crate::groups::NOISE)
            .arg(mib.to_string())
            .arg(go);
        Some(job.option("--group", group))
    }
}

fn set(group: &str, change: &str) {
    let _ = uzswap("set", group, &[change]).expect_success(change);
}

fn end(live: Live) -> Outcome {
    let outcome = live.end_by(libc::SIGTERM);
    assert_eq!(outcome.text(), "idle\nright\n");
    outcome
}

/// A value of a group's statistics.
fn value(group: &str, key: &str) -> u64 {
    number(&stat(group), key)
}

/// Looks for a second whether `is_so`.
fn stays(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        assert!(is_so(), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_a_group_stores_is_counted_for_it_and_all_above() {
    let mut tree = Tree::new("usage", 256, "--swap none");
    let (a, b) = (tree.group("a", 64), tree.group("b", 64));
    let live = tree.idle(&a, 100);
    let of = |group: &str| ["zswap", "zswapped", "zswpout"].map(|key| value(group, key));
    assert!(of(&a)[1] > 30 * MIB && of(&a)[0] > 0, "{}", stat(&a));
    assert_eq!(of(&b), [0, 0, 0], "{}", stat(&b));
    assert_eq!(of(&tree.name), of(&a), "the root has what lies in it");
    end(live);
    assert!(value(&a, "zswpout") > 0, "what has ended counts still");
}

#[test]
fn zswap_max_is_obeyed_and_zero_makes_the_pool_a_passage() {
    let mut tree = Tree::new("poolmax", 256, &format!("--swap {DISK}"));
    for (child, most) in [("some", 4 * MIB), ("none", 0)] {
        let (group, go) = (tree.group(child, 48), tree.scratch.join(child));
        set(&group, &format!("zswap.max={most}"));
        let Some(job) = tree.noise(&group, 64, &go) else {
            return;
        };
        let live = job.start_managed();
        // A batch passes through.
        let margin = 2 * MIB;
        wait_until("much has been written", || {
            let stats = stat(&group);
            assert!(number(&stats, "zswap") <= most + margin, "{stats}");
            number(&stats, "pswpout") * 4096 > 20 * MIB
        });
        std::fs::write(&go, "").expect("a file in a scratch directory");
        let outcome = live.wait().expect_success("a job behind a small pool");
        assert_eq!(outcome.text(), "full\nright\n");
        assert!(
            outcome.stat("zswap_peak") <= most + margin,
            "{}",
            outcome.stats
        );
    }
}

#[test]
fn without_swap_what_the_pool_may_not_hold_stays_resident() {
    let mut tree = Tree::new("resident", 256, "--swap none --over-limit allow");
    let (group, go) = (tree.group("a", 32), tree.scratch.join("go"));
    set(&group, "zswap.max=4M");
    let Some(job) = tree.noise(&group, 60, &go) else {
        return;
    };
    let live = job.start_until("full");
    let stats = stat(&group);
    assert!(number(&stats, "zswap") <= 6 * MIB, "{stats}");
    assert!(number(&stats, "resident") > 50 * MIB, "{stats}");
    std::fs::write(&go, "").expect("a file in a scratch directory");
    let outcome = live
        .wait()
        .expect_success("a job that may exceed its limit");
    assert_eq!(outcome.text(), "full\nright\n");
    assert!(outcome.stat("zswap_peak") <= 6 * MIB, "{}", outcome.stats);
}

#[test]
fn writeback_is_a_groups_own_and_inherited_downwards() {
    let mut tree = Tree::new("writeback", 256, &format!("--swap {DISK}"));
    let (a, b) = (tree.group("a", 128), tree.group("b", 128));
    let below = tree.group("a/below", 128);
    set(&a, "zswap.writeback=off");
    for (group, goes) in [(&a, false), (&below, false), (&b, true)] {
        let live = tree.idle(group, 40);
        let _ = uzswap("reclaim", group, &["30M"]).expect_success("reclaim");
        let written = uzswap("reclaim", group, &["64K", "--writeback-only"]);
        if goes {
            let _ = written.expect_success("writeback");
        } else {
            let _ = written.expect_refused(1, &["zswap.writeback is off", group, "set"]);
        }
        assert_eq!(value(group, "pswpout") > 0, goes, "{}", stat(group));
        end(live);
    }
    set(&a, "zswap.writeback=on");
    let live = tree.idle(&below, 40);
    let _ = uzswap("reclaim", &below, &["30M"]).expect_success("reclaim");
    let written = uzswap("reclaim", &below, &["64K", "--writeback-only"]);
    let _ = written.expect_success("writeback");
    assert!(value(&below, "pswpout") > 0, "{}", stat(&below));
    end(live);
}

#[test]
fn where_writeback_is_off_a_full_pool_writes_nothing() {
    let options = format!("--swap {DISK} --over-limit allow");
    let mut tree = Tree::new("off", 256, &options);
    let (a, go) = (tree.group("a", 32), tree.scratch.join("go"));
    set(&tree.name, "zswap.writeback=off");
    let Some(job) = tree.noise(&a, 60, &go) else {
        return;
    };
    let live = job.start_until("full");
    assert_eq!(value(&a, "pswpout"), 0, "{}", stat(&a));
    assert!(value(&a, "reject_writeback_off") > 0, "{}", stat(&a));
    std::fs::write(&go, "").expect("a file in a scratch directory");
    let outcome = live.wait().expect_success("a job that may exceed");
    assert_eq!(outcome.text(), "full\nright\n");
}

#[test]
fn what_was_written_back_comes_in_again() {
    let mut tree = Tree::new("swapin", 256, &format!("--swap {DISK}"));
    let (a, go) = (tree.group("a", 32), tree.scratch.join("go"));
    let Some(job) = tree.noise(&a, 60, &go) else {
        return;
    };
    let live = job.start_until("full");
    assert!(value(&a, "swapped_pages") * 4096 > 20 * MIB, "{}", stat(&a));
    // What is read along goes into the pool, but not there where it has no room.
    set(&a, "zswap.max=0");
    let ahead = value(&a, "swap_ra");
    std::fs::write(&go, "").expect("a file in a scratch directory");
    let outcome = live.wait().expect_success("a job that is on swap");
    assert_eq!(outcome.text(), "full\nright\n");
    let stats = &outcome.stats;
    assert!(outcome.stat("pswpin") * 4096 > 20 * MIB, "{stats}");
    assert_eq!(outcome.stat("swap_ra"), ahead, "{stats}");
}

#[test]
fn a_group_over_its_pool_writes_its_own_and_not_its_neighbours() {
    let mut tree = Tree::new("shrinker", 256, &format!("--swap {DISK}"));
    let (a, b) = (tree.group("a", 96), tree.group("b", 96));
    let neighbour = tree.idle(&b, 60);
    let _ = uzswap("reclaim", &b, &["50M"]).expect_success("reclaim");
    let kept = value(&b, "zswapped");
    assert!(kept > 40 * MIB, "{}", stat(&b));
    set(&a, "zswap.max=2M");
    let go = tree.scratch.join("go");
    let Some(job) = tree.noise(&a, 60, &go) else {
        return;
    };
    let live = job.start_until("full");
    let _ = uzswap("reclaim", &a, &["40M"]);
    assert!(value(&a, "zswpwb") * 4096 > 20 * MIB, "{}", stat(&a));
    assert_eq!(value(&b, "zswpwb"), 0, "{}", stat(&b));
    assert_eq!(value(&b, "zswapped"), kept);
    std::fs::write(&go, "").expect("a file in a scratch directory");
    assert_eq!(live.wait().expect_success("noise").text(), "full\nright\n");
    end(neighbour);
}

/// Fills 40 MiB; the child that it leaves behind has them.
const LEAVES: &str = "
import os, sys, time
held = bytearray(b'abcdefgh' * (5 << 20))
said, done = os.pipe()
if os.fork() == 0:
    os.close(done)
    os.read(said, 1)
    # Half of them are its own from now on.
    for at in range(0, 20 << 20, 4096): held[at] = ord('a')
    print('alone', flush=True)
    while not os.path.exists(sys.argv[1]): time.sleep(0.02)
    right = held == bytearray(b'abcdefgh' * (5 << 20))
    open(sys.argv[1] + '.said', 'w').write('right' if right else 'WRONG')
    os._exit(0)
# Its end of the pipe is closed by its end.
os._exit(0)
";

#[test]
fn what_is_charged_stays_with_the_group_when_its_process_ends() {
    if find_or_skip("python3", "python3").is_none() {
        return;
    }
    let mut tree = Tree::new("charge", 256, "--swap none");
    let (a, go) = (tree.group("a", 128), tree.scratch.join("go"));
    // The shell is the command, so that the run goes on while the child is there.
    let leaves = tree.scratch.write("leaves.py", LEAVES);
    let script = format!(
        "python3 {} {1}; while ! [ -e {1}.said ]; do sleep 0.1; done",
        leaves.display(),
        go.display()
    );
    let job = Job::new("sh").arg("-c").arg(script).option("--group", &a);
    let live = job.start_until("alone");
    let held = |group: &str| value(group, "ram_granted");
    stays("the child's memory counts", || held(&a) > 38 * MIB);
    assert!(held(&tree.name) >= held(&a));
    std::fs::write(&go, "").expect("a file in a scratch directory");
    let outcome = live.wait().expect_success("a job that leaves a child");
    assert!(outcome.text().contains("alone"));
    let said = std::fs::read_to_string(format!("{}.said", go.display()));
    assert_eq!(said.expect("the child said so"), "right");
    wait_until("all of it is free", || held(&a) < 4 * MIB);
}

/// Goes over `mib` MiB again and again, until `go` is there.
const BUSY: &str = "
import os, sys
held = bytearray(b'abcdefgh' * (int(sys.argv[1]) << 17))
print('busy', flush=True)
while not os.path.exists(sys.argv[2]):
    for at in range(0, len(held), 4096): held[at] = 97
print('right' if held == bytearray(b'abcdefgh' * (len(held) // 8)) else 'WRONG', flush=True)
";

#[test]
fn nobody_takes_memory_of_a_group_below_its_low() {
    if find_or_skip("python3", "python3").is_none() {
        return;
    }
    let mut tree = Tree::new("low", 128, "--swap none");
    let (kept, free) = (tree.group("kept", 128), tree.group("free", 128));
    let (busy, go) = (tree.group("busy", 128), tree.scratch.join("go"));
    set(&kept, "low=64M");
    let (one, two) = (tree.idle(&kept, 40), tree.idle(&free, 40));
    // Of the same age, and clearly colder than what is busy.
    std::thread::sleep(Duration::from_secs(2));
    let job = Job::python(BUSY).arg("80").arg(&go);
    let third = job.option("--group", &busy).start_until("busy");
    wait_until("the other gives", || value(&free, "zswapped") > 10 * MIB);
    stays("it keeps what it has", || value(&kept, "zswapped") == 0);
    assert!(value(&kept, "resident") >= 40 * MIB, "{}", stat(&kept));
    // On request the others go first, too.
    let _ = uzswap("reclaim", &tree.name, &["8M"]).expect_success("reclaim");
    assert_eq!(value(&kept, "zswapped"), 0, "{}", stat(&kept));
    std::fs::write(&go, "").expect("a file in a scratch directory");
    assert_eq!(third.wait().expect_success("busy").text(), "busy\nright\n");
    end(one);
    end(two);
}

#[test]
fn low_gives_way_before_the_limit_does() {
    let mut tree = Tree::new("gives", 128, "--swap none");
    let (kept, other) = (tree.group("kept", 128), tree.group("other", 128));
    let go = tree.scratch.join("go");
    set(&kept, "low=100M");
    let live = tree.idle(&kept, 80);
    let Some(job) = tree.noise(&other, 60, &go) else {
        return;
    };
    let noise = job.start_until("full");
    assert!(value(&kept, "zswapped") > 10 * MIB, "{}", stat(&kept));
    assert_eq!(value(&tree.name, "over_limit_pages"), 0);
    assert!(value(&tree.name, "ram_peak") <= 128 * MIB);
    std::fs::write(&go, "").expect("a file in a scratch directory");
    assert_eq!(noise.wait().expect_success("noise").text(), "full\nright\n");
    end(live);
}

#[test]
fn above_high_a_group_evicts_and_is_not_ended() {
    let mut tree = Tree::new("high", 256, "--swap none");
    let a = tree.group("a", 200);
    let granted = || value(&a, "ram_granted");
    let before = tree.idle(&a, 120);
    assert!(granted() > 120 * MIB, "{}", stat(&a));
    set(&a, "high=48M");
    assert!(granted() <= 50 * MIB, "at once: {}", stat(&a));
    assert_eq!(value(&a, "high_limit_hit"), 0, "by request");
    end(before);
    let live = tree.idle(&a, 120);
    assert!(granted() <= 52 * MIB, "{}", stat(&a));
    assert!(value(&a, "high_limit_hit") > 0);
    end(live);
    // Data that do not compress go above it, slowly, and are not ended.
    let (b, go) = (tree.group("b", 200), tree.scratch.join("go"));
    set(&b, "high=20M");
    let Some(job) = tree.noise(&b, 20, &go) else {
        return;
    };
    std::fs::write(&go, "").expect("a file in a scratch directory");
    let outcome = job.managed().expect_success("a job above high");
    assert_eq!(outcome.text(), "full\nright\n");
    assert!(outcome.stat("high_limit_hit") > 0, "{}", outcome.stats);
}

#[test]
fn swap_max_bounds_what_a_group_has_on_swap() {
    let mut tree = Tree::new("swapmax", 256, &format!("--swap {DISK} --over-limit allow"));
    let (a, go) = (tree.group("a", 32), tree.scratch.join("go"));
    // Of the least in a row.
    set(&tree.name, "swap.max=8M");
    set(&a, "swap.max=64M");
    let Some(job) = tree.noise(&a, 60, &go) else {
        return;
    };
    let live = job.start_until("full");
    let swapped = || value(&a, "swapped_pages") * 4096;
    assert!(swapped() > 7 * MIB, "{}", stat(&a));
    stays("no more is there than may be", || swapped() <= 8 * MIB);
    std::fs::write(&go, "").expect("a file in a scratch directory");
    assert_eq!(live.wait().expect_success("noise").text(), "full\nright\n");
}

#[test]
fn controls_are_shown_and_a_wrong_one_changes_nothing() {
    let mut tree = Tree::new("controls", 128, "--swap none");
    let a = tree.group("a", 64);
    let said = uzswap("set", &a, &["memory.zswap.max=0", "high=32M"]);
    let said = said.expect_success("set");
    assert_eq!(said.text(), "zswap.max max -> 0 B\nhigh max -> 32 MiB\n");
    let wrong = [
        ("low=max", "low"),
        ("zswap.writeback=maybe", "on|off"),
        ("swap.max=many", "swap.max"),
        ("pool.max=1M", "pool.max"),
    ];
    for (change, words) in wrong {
        refused("set", &a, &["high=40M", change], &[words]);
    }
    let both = ["high=40M", "max=1M"];
    refused("set", &a, &both, &["at least", "nothing was changed"]);
    let controls = &stat(&a)["controls"];
    assert_eq!(controls["high"], 32 * MIB);
    assert_eq!(controls["zswap.max"], 0);
    assert_eq!(controls["zswap.writeback"], true);
    assert_eq!(controls["swap.max"], serde_json::Value::Null);
    let table = uzswap("stat", &a, &[]).expect_success("stat");
    let text = table.text();
    assert!(text.contains("high 32 MiB, zswap.max 0 B\n"), "{text}");
    let metrics = uzswap("stat", &a, &["--prometheus"]).expect_success("stat");
    assert!(metrics.text().contains(&format!(",group=\"{a}\"}}")));
    let top = uzswap("top", &tree.name, &[]).expect_success("top");
    let text = top.text();
    let lines: Vec<_> = text.lines().map(str::trim_start).collect();
    let tree = lines.iter().position(|line| line.starts_with("controls-"));
    let tree = tree.unwrap_or_else(|| panic!("no line of the tree: {text}"));
    assert!(lines[tree + 2].starts_with("a/ "), "{text}");
}
