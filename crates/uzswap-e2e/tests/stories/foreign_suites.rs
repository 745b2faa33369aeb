//! Tests that other projects have written of their programs come out the same under uzswap, one by
//! one: `scripts/foreign-suites`, which runs them all, in its short form.

use std::process::Command;

use serde_json::Value;
use uzswap_e2e::{Scratch, skip, uzswap, workspace};

/// Runs one suite's short form at half of its memory. Tests that differ only now and then are told
/// apart by the script, which repeats them.
fn same_results(suite: &str) {
    let scratch = Scratch::new();
    let records = scratch.join("records.json");
    let output = Command::new(workspace().join("scripts/foreign-suites"))
        .args(["--short", "--limits", "half", "--json"])
        .arg(&records)
        .arg("--uzswap")
        .arg(uzswap())
        .arg(suite)
        .env("TMPDIR", scratch.path())
        .output()
        .expect("python3 is installed");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let said = String::from_utf8_lossy(&output.stdout);
    if let Some(reason) = said.lines().find_map(|line| line.strip_prefix("SKIPPED ")) {
        return skip(reason);
    }
    let records: Value = serde_json::from_slice(&std::fs::read(records).expect("it was written"))
        .expect("it is JSON");
    let records = records.as_array().expect("it is a list");
    assert!(!records.is_empty(), "{told}");
    for record in records {
        assert!(record["tests"].as_u64() > Some(0), "{record}");
    }
    // What the limit asks for was done.
    assert!(
        records
            .iter()
            .any(|record| record["pages_stored"].as_u64() > Some(0)),
        "{told}"
    );
}

#[test]
fn pythons_own_tests() {
    same_results("cpython");
}

#[test]
fn stressors_that_verify_what_they_do() {
    same_results("stress-ng");
}
