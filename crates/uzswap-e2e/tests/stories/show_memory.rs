//! `--show-memory`: the command and its children see another total of memory, by whatever way they
//! ask, and size themselves to it.

use uzswap_e2e::{HardLimit, Job, Live, MIB, Outcome, Scratch, find_or_skip, skip};

const GIB: u64 = 1 << 30;

/// What a program was told: the way it asked, total, free.
fn told(text: &str) -> Vec<(&str, u64, u64)> {
    let fields = |line: &'_ str| line.split(' ').count() == 3;
    text.lines()
        .filter(|line| fields(line))
        .map(|line| {
            let mut words = line.split(' ');
            let way = words.next().expect("three words");
            let mut number = || words.next().and_then(|word| word.parse().ok());
            let numbers = number().zip(number());
            let (total, free) = numbers.unwrap_or_else(|| panic!("no numbers: {line}"));
            (way, total, free)
        })
        .collect()
}

#[test]
fn every_way_to_ask_has_the_same_answer() {
    for (shown, total) in [("3G", 3 * GIB), ("limit", 48 * MIB)] {
        let scratch = Scratch::new();
        let fifo = scratch.join("fifo");
        let job = Job::compiled(&scratch, "apps/memory_seen.c", &fifo.to_string_lossy());
        let outcome = job
            .ram_mib(48)
            .option("--show-memory", shown)
            .managed()
            .expect_success("asking");
        let text = outcome.text();
        let (before, after) = text.split_once("held\n").expect("it asks twice");
        assert_eq!(told(before).len(), 9, "{text}");
        for (way, seen, free) in told(before) {
            assert_eq!(seen, total, "{way}");
            assert!(free <= total && free > total - 16 * MIB, "{way}: {free}");
        }
        // 64 MiB, most of which is compressed.
        for (way, seen, free) in told(after) {
            assert_eq!(seen, total, "{way}");
            assert!(free <= total.saturating_sub(64 * MIB), "{way}: {free}");
        }
    }
}

#[test]
fn without_the_option_everything_is_native() {
    let scratch = Scratch::new();
    let job = Job::new(scratch.compile("apps/memory_seen.c"));
    let totals = |outcome: &Outcome| -> Vec<(String, u64)> {
        let text = outcome.text();
        let seen = told(&text).into_iter();
        seen.map(|(way, total, _)| (way.to_owned(), total))
            .collect()
    };
    let native = totals(&job.native().expect_success("asking natively"));
    assert_eq!(native.len(), 18);
    for job in [job.clone(), job.clone().option("--show-memory", "native")] {
        let managed = job.ram_mib(48).managed().expect_success("asking");
        assert_eq!(totals(&managed), native);
    }
}

/// What `live` says next.
fn next(live: &mut Live, round: u32) {
    live.signal(libc::SIGUSR1);
    live.wait_for(&format!("round {round}\n"));
}

#[test]
fn it_follows_set_in_the_program_and_its_children() {
    const STORY: &str = "
import os, signal, subprocess
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
for n in range(5):
    with open('/proc/meminfo') as f:
        file = int(f.readline().split()[1]) >> 10
    child = subprocess.run(['awk', '/MemTotal/ { print $2 }', '/proc/meminfo'], capture_output=True)
    print(os.sysconf('SC_PHYS_PAGES') >> 8, file, int(child.stdout) >> 10)
    print('round', n, flush=True)
    signal.sigwait([signal.SIGUSR1])
";
    let mut live = Job::python(STORY)
        .ram_mib(64)
        .option("--show-memory", "limit")
        .start_until("round 0\n");
    for (round, change) in [
        (1, "ram=96M"),
        (2, "show_memory=1G"),
        (3, "show-memory=native"),
        (4, "show_memory=limit"),
    ] {
        let _ = live.uzswap("set", &[change]).expect_success(change);
        next(&mut live, round);
    }
    let bad = live.uzswap("set", &["show_memory=lots"]);
    let _ = bad.expect_refused(2, &["show_memory", "lots", "native", "limit"]);
    let outcome = live.end_by(libc::SIGUSR1);
    let text = outcome.text();
    let native = Job::python("import os; print(os.sysconf('SC_PHYS_PAGES') >> 8)").native();
    let native = native.text();
    let totals = ["64", "96", "1024", native.trim(), "96"];
    let mut want = String::new();
    for (round, total) in totals.iter().enumerate() {
        want += &format!("{total} {total} {total}\nround {round}\n");
    }
    assert_eq!(text, want);
}

#[test]
fn children_that_are_not_managed_run_as_ever() {
    let Some(setarch) = find_or_skip("setarch", "util-linux") else {
        return;
    };
    // With addresses that are not random, a child's text is where its parent's filters look.
    let script = "env -i head -1 /proc/meminfo && head -1 /proc/meminfo";
    for before in [&["env"][..], &[&setarch.to_string_lossy(), "-R"]] {
        let job = Job::new(before[0])
            .args(&before[1..])
            .args(["sh", "-c", script]);
        let native = job.native().text();
        let (machine, _) = native.split_once('\n').expect("a line");
        let outcome = job.ram_mib(64).option("--show-memory", "2G").managed();
        let outcome = outcome.expect_success("a child with an empty environment");
        assert_eq!(
            outcome.text(),
            format!("{machine}\nMemTotal:        2097152 kB\n")
        );
    }
}

#[test]
fn a_cgroup_of_ones_own_has_the_total_as_its_limit_and_others_have_theirs() {
    let Some(own) = HardLimit::new_or_skip(512 * MIB) else {
        return;
    };
    let Some(other) = HardLimit::new_or_skip(256 * MIB) else {
        return;
    };
    let limit_of = |group: &HardLimit| {
        let procs = group.procs();
        let dir = procs.parent().expect("a file in a directory");
        let names = ["memory.max", "memory.limit_in_bytes"];
        let mut files = names.map(|name| dir.join(name)).into_iter();
        files.find(|file| file.exists()).expect("it has a limit")
    };
    let job = Job::new("cat").arg(limit_of(&own)).arg(limit_of(&other));
    let job = job.within(&own).ram_mib(64);
    let outcome = job.clone().managed().expect_success("cat");
    assert_eq!(outcome.text(), format!("{}\n{}\n", 512 * MIB, 256 * MIB));
    let outcome = job.option("--show-memory", "1G").managed();
    let outcome = outcome.expect_success("cat");
    assert_eq!(outcome.text(), format!("{GIB}\n{}\n", 256 * MIB));
}

/// The numbers that `job` prints when 2 GiB are shown.
fn numbers(job: Job, ram_mib: u64) -> Vec<u64> {
    let outcome = job
        .ram_mib(ram_mib)
        .option("--show-memory", "2G")
        .managed()
        .expect_success("a program that asks");
    let text = outcome.text();
    let words = text.split(|c: char| !c.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn free_shows_it() {
    let Some(free) = find_or_skip("free", "procps") else {
        return;
    };
    let shown = numbers(Job::new(free).arg("-b"), 64);
    // Total, used, free, shared, caches, available; and no swap.
    let [total, used, free, 0, 0, available, 0, 0, 0] = shown[..] else {
        panic!("{shown:?}");
    };
    assert_eq!((total, free), (2 * GIB, available));
    assert_eq!(used + free, total);
}

#[test]
fn node_sizes_itself_to_it() {
    let Some(node) = find_or_skip("node", "nodejs") else {
        return;
    };
    const SCRIPT: &str = "const s = require('v8').getHeapStatistics();
        console.log(require('os').totalmem(), require('os').freemem(), s.heap_size_limit)";
    let shown = numbers(Job::new(node).args(["-e", SCRIPT]), 256);
    let [total, free, heap] = shown[..] else {
        panic!("{shown:?}");
    };
    assert_eq!(total, 2 * GIB);
    assert!(free < total && heap < total, "{shown:?}");
}

#[test]
fn java_takes_a_quarter_of_it() {
    let Some(java) = find_or_skip("java", "default-jre-headless") else {
        return;
    };
    let job = Job::new(java).args(["-XX:+PrintFlagsFinal", "-version"]);
    let outcome = job.ram_mib(256).option("--show-memory", "2G").managed();
    let outcome = outcome.expect_success("java");
    let text = outcome.text();
    let line = text.lines().find(|line| line.contains(" MaxHeapSize "));
    let line = line.expect("a flag of every Java");
    assert!(line.contains("536870912"), "{line}");
}

#[test]
fn duckdb_takes_four_fifths_of_it() {
    const SCRIPT: &str = "import duckdb
print(duckdb.sql(\"SELECT current_setting('memory_limit')\").fetchall()[0][0])";
    let job = Job::python(SCRIPT);
    if job.native().status != 0 {
        skip("no duckdb for Python here (pip install duckdb)");
        return;
    }
    let outcome = job.ram_mib(256).option("--show-memory", "2G").managed();
    assert_eq!(outcome.expect_success("duckdb").text(), "1.5 GiB\n");
}
