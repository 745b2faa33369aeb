//! `uzswap bench` on real programs: small runs complete, interrupted ones keep what they have
//! measured, and killed ones leave nothing behind.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use uzswap_corpus::process;
use uzswap_e2e::{Job, Live, Scratch, find, find_or_skip, root_or_skip, skip, wait_until};

/// A suite, with its temporary files in `scratch`.
fn bench(suite: &str, scratch: &Scratch) -> Job {
    Job::new("bench")
        .args([suite, "--quick", "--json"])
        .arg(scratch.join("results.json"))
        .env("TMPDIR", scratch.path())
}

fn results(scratch: &Scratch) -> Value {
    let text = fs::read(scratch.join("results.json")).expect("results");
    serde_json::from_slice(&text).expect("JSON")
}

fn has_sqlite() -> bool {
    find_or_skip("sqlite3", "sqlite3").is_some()
}

/// Descendants of `pid`: pids and names.
fn descendants(pid: i32) -> Vec<(i32, String)> {
    let all = process::descendants(pid.unsigned_abs()).into_iter().skip(1);
    let named = all.map(|pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        (pid.cast_signed(), name.trim_end().to_owned())
    });
    named.collect()
}

/// Waits until `program` has been started `times` times; the bench's descendants then.
fn wait_for_run(live: &Live, program: &str, times: usize) -> Vec<(i32, String)> {
    let mut seen = BTreeSet::new();
    let mut now = Vec::new();
    wait_until(&format!("{program} runs"), || {
        now = descendants(live.pid());
        seen.extend(
            now.iter()
                .filter(|(_, name)| name == program)
                .map(|&(pid, _)| pid),
        );
        seen.len() >= times
    });
    now
}

fn leftovers(scratch: &Scratch) -> Vec<PathBuf> {
    let entries = fs::read_dir(scratch.path()).expect("a directory");
    entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_dir())
        .collect()
}

#[test]
fn programs_with_less_memory() {
    if !has_sqlite() {
        return;
    }
    let scratch = Scratch::new();
    for (suite, figure) in [("apps", "wall_s"), ("saving", "saved_mib")] {
        let outcome = bench(suite, &scratch)
            .words("--peer native --program sqlite")
            .uzswap_itself()
            .expect_success(suite);
        let text = outcome.text();
        assert!(text.contains("sqlite") && text.contains("uzswap"), "{text}");
        let results = results(&scratch);
        assert_eq!(results["complete"], true, "{results}");
        let text = results.to_string();
        assert!(text.contains(figure), "{suite}: {text}");
        assert!(leftovers(&scratch).is_empty());
    }
    let outcome = bench("apps", &scratch)
        .args(["--program", "no-such"])
        .uzswap_itself();
    let _ = outcome.expect_refused(2, &["'no-such'"]);
}

#[test]
fn requests_to_a_server_with_half_of_its_memory() {
    if find_or_skip("redis-server", "redis-server").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let outcome = bench("tail", &scratch)
        .words("--peer native --mib 64 --rate 20000")
        .uzswap_itself()
        .expect_success("tail");
    let text = outcome.text();
    assert!(text.contains("99.9 % within, µs"), "{text}");
    let results = results(&scratch);
    let runs = results["suites"][0]["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 4, "two jobs on two sides: {results}");
    for run in runs {
        let value = |key: &str| run["values"][key].as_f64();
        let sorted = value("p50_us") <= value("p99_us") && value("p99_us") <= value("p999_us");
        assert!(sorted && value("per_s") > Some(0.0), "{run}");
        let faulted = value("fault_p99_us") > Some(0.0);
        assert_eq!(faulted, run["side"] == "uzswap", "{run}");
    }
    assert!(leftovers(&scratch).is_empty());
}

#[test]
fn an_interrupt_keeps_what_was_measured() {
    if !has_sqlite() {
        return;
    }
    let scratch = Scratch::new();
    let live = bench("apps", &scratch)
        .words("--peer native --program sqlite --rounds 100")
        .start_uzswap_itself();
    // Natively, under uzswap, natively again: the first round is complete.
    let family = wait_for_run(&live, "sqlite3", 3);
    live.signal(libc::SIGINT);
    let outcome = live.wait();
    assert_eq!(outcome.status, 130, "{}", outcome.stderr);
    assert!(outcome.text().contains("sqlite"), "{}", outcome.text());
    assert_eq!(results(&scratch)["complete"], false);
    wait_until("all is ended", || {
        family.iter().all(|(pid, _)| is_gone(*pid))
    });
    assert!(leftovers(&scratch).is_empty());
}

fn is_gone(pid: i32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_killed_bench_leaves_nothing_behind() {
    if !has_sqlite() {
        return;
    }
    let scratch = Scratch::new();
    // A daemon, which would outlive those who started it, if it is installed.
    let (program, process) = if find("redis-server").is_some() && find("redis-cli").is_some() {
        ("redis", "redis-server")
    } else {
        ("sqlite", "sqlite3")
    };
    let live = bench("apps", &scratch)
        .args(["--peer", "native", "--program", program])
        .start_uzswap_itself();
    let family = wait_for_run(&live, process, 1);
    live.signal(libc::SIGKILL);
    assert_eq!(live.wait().status, 128 + libc::SIGKILL);
    wait_until("all is ended", || {
        family.iter().all(|(pid, _)| is_gone(*pid))
    });
    let left = leftovers(&scratch);
    assert!(!left.is_empty(), "it was killed in the middle");
    let next = bench("apps", &scratch)
        .words("--peer native --program sqlite")
        .start_uzswap_itself();
    wait_for_run(&next, "sqlite3", 1);
    assert!(left.iter().all(|dir| !dir.exists()), "{left:?}");
    next.signal(libc::SIGTERM);
    let _ = next.wait();
}

/// The settings that the kernel's side changes.
fn settings() -> Vec<String> {
    let zswap = Path::new("/sys/module/zswap/parameters");
    let mut all: Vec<String> = ["enabled", "compressor", "max_pool_percent"]
        .iter()
        .map(|name| fs::read_to_string(zswap.join(name)).unwrap_or_default())
        .collect();
    for file in [
        "/proc/sys/vm/page-cluster",
        "/proc/sys/vm/swappiness",
        "/proc/swaps",
    ] {
        all.push(fs::read_to_string(file).unwrap_or_default());
    }
    all
}

#[test]
fn the_kernels_settings_are_put_back() {
    if !root_or_skip("swapping by the kernel") || !has_sqlite() {
        return;
    }
    let before = settings();
    let scratch = Scratch::new();
    let start = || {
        bench("apps", &scratch)
            .words("--peer kernel-zswap --program sqlite --rounds 100")
            .start_uzswap_itself()
    };
    // The first run is killed with everything changed. The second restores that first, and is
    // interrupted.
    for (signal, status) in [(libc::SIGKILL, 128 + libc::SIGKILL), (libc::SIGINT, 130)] {
        let live = start();
        // The first run is native, to learn how much memory it takes; the second is under zswap.
        let second = wait_for_run(&live, "sqlite3", 2);
        if second.iter().any(|(_, name)| name == "uzswap") && settings() == before {
            live.signal(libc::SIGINT);
            let outcome = live.wait();
            skip(&format!(
                "the kernel's side cannot be had: {}",
                outcome.stderr
            ));
            return;
        }
        assert_ne!(settings(), before);
        live.signal(signal);
        assert_eq!(live.wait().status, status);
    }
    assert_eq!(settings(), before);
}
