//! What a program has outside uzswap's control is measured, named, and never passed over: fixed
//! mappings, shared memory, stacks, unmanaged programs.

use std::path::PathBuf;

use std::time::Duration;

use uzswap_e2e::{Job, MIB, Outcome, Scratch, number, wait_until, workspace};

/// Runs `job`, which takes 100 MiB and says "held", until that has been measured, and checks that
/// it is what `kind` (a key of the statistics) says, to 4 MiB.
fn measured(job: &Job, kind: &str) -> Outcome {
    measured_for(job, kind, Duration::ZERO)
}

/// As [`measured`], of a job that stays for a while then.
fn measured_for(job: &Job, kind: &str, time: Duration) -> Outcome {
    let live = job.start_until("held\n");
    let near = |bytes: u64| bytes.abs_diff(100 * MIB) <= 4 * MIB;
    wait_until("100 MiB are measured", || near(number(&live.stat(), kind)));
    let table = live.uzswap("stat", &[]);
    let table = table.expect_success("stat").text();
    assert!(table.contains("most by \"outside"), "{table}");
    std::thread::sleep(time);
    let outcome = live.end_by(libc::SIGTERM);
    assert_eq!(outcome.text(), "held\n");
    // The last measurement may have met it half ended.
    let peak = outcome.stat("unmanaged_peak");
    let is_peak = near(peak) || (outcome.stat("processes") > 1 && peak > 100 * MIB);
    // While two processes touch what they share, their parts are of different moments.
    assert!(is_peak, "{}", outcome.stats);
    // It did not stay silent about it.
    assert!(
        !outcome.stderr.contains("M): nothing had to be evicted"),
        "{}",
        outcome.stderr
    );
    outcome.expect_stderr(&["outside uzswap", "outside uzswap at the peak: "]);
    outcome
}

fn outside(scratch: &Scratch, how: &str) -> Job {
    Job::compiled(scratch, "apps/outside.c", &format!("{how} 100"))
}

#[test]
fn anonymous_memory_at_fixed_addresses() {
    let scratch = Scratch::new();
    let outcome = measured(
        &outside(&scratch, "fixed").ram_mib(256),
        "unmanaged_anonymous",
    );
    outcome.expect_stderr(&["MiB anonymous memory of outside (mapped at fixed addresses)"]);
    assert!(outcome.stat("ram_peak") < 16 * MIB, "{}", outcome.stats);
}

/// In two processes, and counted once.
#[test]
fn shared_memory() {
    let scratch = Scratch::new();
    let outcome = measured(
        &outside(&scratch, "shared").ram_mib(256),
        "unmanaged_shared",
    );
    outcome.expect_stderr(&["MiB shared memory of outside"]);
}

/// In two processes, and counted once.
#[test]
fn memory_that_a_fork_child_has_not_changed() {
    let scratch = Scratch::new();
    let _ = measured(
        &outside(&scratch, "forked").ram_mib(256),
        "unmanaged_anonymous",
    );
}

#[test]
fn stacks_of_threads() {
    let scratch = Scratch::new();
    let outcome = measured(
        &outside(&scratch, "stacks").ram_mib(256),
        "unmanaged_anonymous",
    );
    outcome.expect_stderr(&["MiB stacks of outside"]);
}

/// A static copy of the program, which loads no library. Without a group in its environment it is
/// not managed.
fn unmanaged(scratch: &Scratch) -> PathBuf {
    let source = workspace().join("tests/programs/apps/outside.c");
    scratch.compile_path(&source, &["-static", "-pthread"])
}

#[test]
fn an_unmanaged_child() {
    let scratch = Scratch::new();
    let job = Job::new("bash")
        .args([
            "-c",
            "trap 'kill $!; wait' TERM; env -i \"$0\" plain 100 & wait; exit 0",
        ])
        .arg(unmanaged(&scratch))
        .ram_mib(256);
    let outcome = measured(&job, "unmanaged_anonymous");
    outcome.expect_stderr(&["MiB anonymous memory of outside"]);
}

#[test]
fn managed_memory_is_not_outside() {
    let scratch = Scratch::new();
    let live = Job::idle(&scratch, 128).ram_mib(64).start_until("idle\n");
    std::thread::sleep(Duration::from_millis(1500));
    let outcome = live.end_by(libc::SIGTERM);
    let peak = outcome.stat("unmanaged_peak");
    assert!((MIB / 2..6 * MIB).contains(&peak), "{}", outcome.stats);
}

#[test]
fn more_than_the_limit_is_one_warning() {
    let scratch = Scratch::new();
    let job = outside(&scratch, "fixed").ram_mib(64);
    // One look alone may be wrong.
    let outcome = measured_for(&job, "unmanaged_anonymous", Duration::from_secs(3));
    let warnings = outcome
        .stderr
        .matches("outside uzswap's control alone takes");
    assert_eq!(warnings.count(), 1, "{}", outcome.stderr);
    outcome.expect_stderr(&["of the limit of 64 MiB", "--over-limit=end"]);
}

/// The option or its environment variable; the command and what it has started end.
#[test]
fn more_than_the_limit_ends_the_command_if_asked() {
    let scratch = Scratch::new();
    let job = Job::new("bash")
        .args(["-c", "env -i \"$0\" plain 100; echo survived"])
        .arg(unmanaged(&scratch))
        .ram_mib(64)
        .flag("--quiet");
    for job in [
        job.clone().option("--over-limit", "end"),
        job.env("UZSWAP_OVER_LIMIT", "end"),
    ] {
        let words = [
            "bash",
            "was ended",
            "alone takes",
            "64 MiB",
            "anonymous memory of outside",
        ];
        let outcome = job.managed().expect_refused(125, &words);
        assert!(!outcome.text().contains("survived"));
        let failure = &outcome.stats["failure"];
        assert_eq!(failure["reason"], "unmanaged");
        assert!(number(failure, "needed") > 64 * MIB, "{failure}");
    }
}
