//! Each C program in `tests/programs/guard` and `tests/programs/maps` checks system calls or
//! mappings. It succeeds natively, and just as well while its memory is being evicted; linked
//! statically, too, where each call is trapped.
//!
//! A program may have a line `// uzswap: OPTION...` with options of `uzswap run`, such as `--ram
//! 48M`, and a line `// modes: MODE...` with the fault modes that it is for, if not all.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uzswap_e2e::{Job, Scratch, User, root_or_skip, workspace};

fn programs(kind: &str) -> Vec<PathBuf> {
    let dir = workspace().join("tests/programs").join(kind);
    let mut found: Vec<PathBuf> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|e| e == "c" || e == "cc" || e == "cpp")
        })
        .collect();
    found.sort();
    found
}

fn directive(source: &Path, name: &str) -> Vec<String> {
    let text = fs::read_to_string(source).expect("sources are text");
    let prefix = format!("// {name}:");
    text.lines()
        .take(40)
        .find_map(|line| line.strip_prefix(&prefix))
        .map(|rest| rest.split_whitespace().map(str::to_owned).collect())
        .unwrap_or_default()
}

fn run_all(kind: &str, link: &[&str]) {
    let mut failed = Vec::new();
    let found = programs(kind);
    for source in &found {
        let name = source
            .file_stem()
            .expect("sources have names")
            .to_string_lossy()
            .into_owned();
        let scratch = Scratch::new();
        let program = scratch.compile_path(source, link);
        let mut job = Job::new(program)
            .cwd(scratch.path())
            .timeout(Duration::from_secs(300));
        let native = job.native();
        assert_eq!(
            native.status,
            0,
            "{name} alone: {}\n{}",
            native.text(),
            native.stderr
        );
        let options = directive(source, "uzswap");
        if options.is_empty() {
            job = job.ram_mib(24);
        }
        job = job.options(&options.join(" "));
        let mut modes = vec![("signal", User::Same), ("segv", User::Same)];
        if root_or_skip("fault mode thread") {
            modes.extend([("signal", User::Ordinary), ("thread", User::Same)]);
        }
        let only = directive(source, "modes");
        modes.retain(|(mode, _)| only.is_empty() || only.iter().any(|named| named == mode));
        for (mode, user) in modes {
            let outcome = job
                .clone()
                .option("--fault-mode", mode)
                .user(user)
                .managed();
            if outcome.status != 0 {
                failed.push(format!(
                    "{name}, {mode} mode, as {user:?}: status {}\n{}\n{}",
                    outcome.status,
                    outcome.text(),
                    outcome.stderr
                ));
            }
        }
    }
    assert!(
        failed.is_empty(),
        "{} failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
    assert!(!found.is_empty(), "no programs in tests/programs/{kind}");
}

#[test]
fn system_calls() {
    run_all("guard", &[]);
}

#[test]
fn mappings() {
    run_all("maps", &[]);
}

#[test]
fn system_calls_of_static_programs() {
    run_all("guard", &["-static"]);
}

#[test]
fn mappings_of_static_programs() {
    run_all("maps", &["-static"]);
}
