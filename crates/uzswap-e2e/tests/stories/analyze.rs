//! `uzswap analyze`: real programs are watched, told about, and not disturbed; what cannot be watched is refused with one line.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;
use uzswap_e2e::{Job, Live, MIB, Outcome, Scratch, User, is_root, skip};

fn analyze(args: &[&str]) -> Job {
    Job::new("analyze").args(args.iter().copied())
}

fn json(outcome: &Outcome) -> Value {
    serde_json::from_slice(&outcome.stdout)
        .unwrap_or_else(|why| panic!("{why}: {}\n{}", outcome.text(), outcome.stderr))
}

fn idle(scratch: &Scratch, mib: &str) -> Live {
    let mut live = Job::new(scratch.compile("apps/idle.c"))
        .arg(mib)
        .start_native();
    live.wait_for("idle\n");
    live
}

/// One line that holds every one of `parts`, and status 2.
fn refused(job: &Job, parts: &[&str]) {
    let outcome = job.uzswap_itself();
    let line = outcome.stderr.trim_end();
    assert_eq!(outcome.status, 2, "{line}");
    assert!(
        line.starts_with("uzswap: ") && !line.contains('\n'),
        "{line}"
    );
    for part in parts {
        assert!(line.contains(part), "{part:?} is not in: {line}");
    }
}

#[test]
fn a_command_is_watched_and_told_about() {
    let scratch = Scratch::new();
    // 64 MiB, accessed at random over and over.
    let outcome = analyze(&["--json", "--"])
        .arg(scratch.compile("pattern/pattern.c"))
        .args(["64", "1", "random", "2000000", "1"])
        .uzswap_itself()
        .expect_success("analyze");
    let told = json(&outcome);
    let peak = told["peak"].as_u64().expect("a peak");
    assert!((60 * MIB..80 * MIB).contains(&peak), "{told}");
    let part = |key: &str| told["contents"][key].as_f64().expect(key);
    for key in ["zero", "same_filled", "incompressible"] {
        assert!((0.0..=1.0).contains(&part(key)), "{key}: {told}");
    }
    let codecs = told["contents"]["codecs"].as_array().expect("codecs");
    for (codec, block) in [("lz4", 4096), ("pz:3", 4096), ("zstd:1", 65536)] {
        assert!(
            codecs
                .iter()
                .any(|c| c["codec"] == codec && c["block"] == block),
            "{codec} at {block}: {told}"
        );
    }
    let advice = &told["advice"];
    let ram = |key: &str| {
        advice[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key} in {told}"))
    };
    assert!(
        ram("ram_low") <= ram("ram") && ram("ram") <= ram("ram_high"),
        "{told}"
    );
    assert!(ram("ram") <= peak + peak / 8, "{told}");
}

#[test]
fn the_advice_is_verified() {
    let scratch = Scratch::new();
    let outcome = analyze(&["--verify", "--"])
        .arg(scratch.compile("pattern/pattern.c"))
        .args(["64", "1", "random", "300000", "1"])
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
    let live = idle(&scratch, "64");
    let pid = live.pid().to_string();
    let outcome = analyze(&["--json", "--for", "3s", "--pid", &pid])
        .uzswap_itself()
        .expect_success("analyze");
    let told = json(&outcome);
    assert!(told["peak"].as_u64() >= Some(60 * MIB), "{told}");
    // It touches nothing: next to all is cold, and one is told that time says little of it.
    assert!(told["cold"][0].as_f64() > Some(0.9), "{told}");
    // So it is just what uzswap is for.
    assert!(told["advice"]["ram"].as_u64() < Some(32 * MIB), "{told}");
    let unsure = told["unsure"].to_string();
    assert!(unsure.contains("idle"), "{told}");
    live.signal(libc::SIGTERM);
    let outcome = live.wait().expect_success("idle");
    assert!(outcome.text().contains("right"), "{}", outcome.text());
}

#[test]
fn an_interrupt_gives_what_is_known() {
    let scratch = Scratch::new();
    let target = idle(&scratch, "64");
    let pid = target.pid().to_string();
    let begin = Instant::now();
    let live = analyze(&["--json", "--for", "10m", "--pid", &pid]).start_uzswap_itself();
    std::thread::sleep(Duration::from_secs(3));
    live.signal(libc::SIGINT);
    let outcome = live.wait();
    assert!(begin.elapsed() < Duration::from_secs(200));
    assert_eq!(outcome.status, 130, "{}", outcome.stderr);
    assert!(json(&outcome)["peak"].as_u64() >= Some(60 * MIB));
    target.signal(libc::SIGTERM);
    let _ = target.wait();
}

#[test]
fn who_cannot_be_watched() {
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
        assert!(outcome.stderr.contains(command), "{}", outcome.stderr);
    }
    let outcome = analyze(&["--", "true"]).uzswap_itself();
    assert_eq!(outcome.status, 2, "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("ended before"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_process_that_is_managed_already() {
    let scratch = Scratch::new();
    let mut live = Job::new(scratch.compile("apps/idle.c"))
        .arg("64")
        .ram_mib(32)
        .start_managed();
    live.wait_for("idle\n");
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
    if !is_root() {
        skip("needs root, to be somebody else");
        return;
    }
    let pid = std::process::id().to_string();
    refused(
        &analyze(&["--pid", &pid]).user(User::Ordinary),
        &["another user", "CAP_SYS_PTRACE"],
    );
}
