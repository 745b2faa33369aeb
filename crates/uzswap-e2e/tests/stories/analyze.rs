//! `uzswap analyze` watches programs without disturbing them, and refuses in one line what it
//! cannot watch.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;
use uzswap_e2e::{Job, Live, MIB, Scratch, User, number, root_or_skip};

fn analyze(args: &[&str]) -> Job {
    Job::new("analyze").args(args.iter().copied())
}

fn idle(scratch: &Scratch) -> Live {
    let mut live = Job::idle(scratch, 64).start_native();
    live.wait_for("idle\n");
    live
}

/// Refused with status 2 and one line of ours that has all `words`.
fn refused(job: &Job, words: &[&str]) {
    let outcome = job.uzswap_itself().expect_refused(2, words);
    assert!(outcome.stderr.starts_with("uzswap: "), "{}", outcome.stderr);
}

#[test]
fn a_command_is_analyzed() {
    let scratch = Scratch::new();
    // 64 MiB, accessed at random over and over.
    let outcome = analyze(&["--json", "--"])
        .arg(scratch.compile("pattern/pattern.c"))
        .words("64 1 random 2000000 1")
        .uzswap_itself()
        .expect_success("analyze");
    let analysis = outcome.json();
    let peak = number(&analysis, "peak");
    assert!((60 * MIB..80 * MIB).contains(&peak), "{analysis}");
    let part = |key: &str| analysis["contents"][key].as_f64().expect(key);
    for key in ["zero", "same_filled", "incompressible"] {
        assert!((0.0..=1.0).contains(&part(key)), "{key}: {analysis}");
    }
    let codecs = analysis["contents"]["codecs"].as_array().expect("codecs");
    for (codec, block) in [("lz4", 4096), ("pz:3", 4096), ("zstd:1", 65536)] {
        let is_it = |cell: &Value| cell["codec"] == codec && cell["block"] == block;
        assert!(codecs.iter().any(is_it), "{codec} at {block}: {analysis}");
    }
    let advice = &analysis["advice"];
    let [low, ram, high] = ["ram_low", "ram", "ram_high"].map(|key| number(advice, key));
    assert!(low <= ram && ram <= high, "{analysis}");
    assert!(ram <= peak + peak / 8, "{analysis}");
}

#[test]
fn the_advice_is_verified() {
    let scratch = Scratch::new();
    let outcome = analyze(&["--verify", "--"])
        .arg(scratch.compile("pattern/pattern.c"))
        .words("64 1 random 300000 1")
        .uzswap_itself()
        .expect_success("analyze");
    let text = outcome.text();
    for part in [
        "resident; ",
        "basis: ",
        "verified: ",
        "expected",
        "of processor time instead of",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn a_live_process_is_watched_and_goes_on() {
    let scratch = Scratch::new();
    let live = idle(&scratch);
    let pid = live.pid().to_string();
    let outcome = analyze(&["--json", "--for", "3s", "--pid", &pid])
        .uzswap_itself()
        .expect_success("analyze");
    let analysis = outcome.json();
    assert!(analysis["peak"].as_u64() >= Some(60 * MIB), "{analysis}");
    // It touches nothing, so nearly all of it is cold; and `analyze` says that an idle process
    // shows little.
    assert!(analysis["cold"][0].as_f64() > Some(0.9), "{analysis}");
    assert!(
        analysis["advice"]["ram"].as_u64() < Some(32 * MIB),
        "{analysis}"
    );
    let unsure = analysis["unsure"].to_string();
    assert!(unsure.contains("idle"), "{analysis}");
    let outcome = live.end_by(libc::SIGTERM);
    assert!(outcome.text().contains("right"), "{}", outcome.text());
}

#[test]
fn an_interrupt_gives_the_analysis_so_far() {
    let scratch = Scratch::new();
    let target = idle(&scratch);
    let pid = target.pid().to_string();
    let begin = Instant::now();
    let live = analyze(&["--json", "--for", "10m", "--pid", &pid]).start_uzswap_itself();
    std::thread::sleep(Duration::from_secs(3));
    live.signal(libc::SIGINT);
    let outcome = live.wait();
    assert!(begin.elapsed() < Duration::from_secs(200));
    assert_eq!(outcome.status, 130, "{}", outcome.stderr);
    assert!(outcome.json()["peak"].as_u64() >= Some(60 * MIB));
    target.signal(libc::SIGTERM);
    let _ = target.wait();
}

#[test]
fn processes_and_commands_that_cannot_be_watched() {
    refused(&analyze(&["--pid", "4194304"]), &["no process 4194304"]);
    refused(&analyze(&["--pid", "many"]), &["--pid"]);
    refused(&analyze(&["--for", "soon", "--pid", "1"]), &["soon"]);
    refused(&analyze(&[]), &["COMMAND"]);
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        refused(&analyze(&["--pid", "2"]), &["thread of the kernel"]);
    }
    for (command, status) in [("no-such-command", 127), ("/etc/passwd", 126)] {
        let outcome = analyze(&["--", command]).uzswap_itself();
        assert_eq!(outcome.status, status, "{}", outcome.stderr);
        outcome.expect_stderr(&[command]);
    }
    let outcome = analyze(&["--", "true"]).uzswap_itself();
    assert_eq!(outcome.status, 2, "{}", outcome.stderr);
    outcome.expect_stderr(&["ended before"]);
}

#[test]
fn a_process_that_is_managed_already() {
    let scratch = Scratch::new();
    let live = Job::idle(&scratch, 64).ram_mib(32).start_until("idle\n");
    let pid = live.pid().to_string();
    refused(
        &analyze(&["--pid", &pid]),
        &["under uzswap already", "uzswap stat"],
    );
    live.signal(libc::SIGTERM);
    let _ = live.wait();
}

#[test]
fn another_users_process() {
    if !root_or_skip("being another user") {
        return;
    }
    let pid = std::process::id().to_string();
    refused(
        &analyze(&["--pid", &pid]).user(User::Ordinary),
        &["another user", "CAP_SYS_PTRACE"],
    );
}
