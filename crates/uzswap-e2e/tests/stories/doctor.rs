//! `uzswap doctor` says what `uzswap run` then does: the mode, the limit, and whether it can run.

use serde_json::Value;
use uzswap_e2e::{Job, Outcome, number};

/// What the doctor finds where `job` would run.
fn doctor(job: Job) -> (Outcome, Value) {
    let found = job.arg("--json").uzswap_itself();
    let json = found.json();
    (found, json)
}

fn finding<'a>(found: &'a Value, name: &str) -> &'a Value {
    let findings = found["findings"].as_array().expect("findings");
    let one = findings.iter().find(|one| one["name"] == name);
    one.unwrap_or_else(|| panic!("no {name}: {found}"))
}

#[test]
fn it_names_the_mode_that_run_takes() {
    let (said, found) = doctor(Job::new("doctor").env("UZSWAP_RAM", "96M"));
    assert_eq!(said.status, 0, "{}", said.stderr);
    assert_eq!(found["runs"], true);
    assert_eq!(number(&found, "ram_limit"), 96 << 20);
    assert_eq!(finding(&found, "trial")["verdict"], "ok");
    let ran = Job::new("true")
        .ram_mib(96)
        .managed()
        .expect_success("true");
    assert_eq!(found["fault_mode"], ran.stats["fault_mode"]);
}

#[test]
fn without_userfaultfd_it_says_what_is_worse_and_what_to_type() {
    let job = Job::new("doctor").without_userfaultfd(libc::EPERM);
    let (said, found) = doctor(job);
    assert_eq!(said.status, 0, "{}", said.stderr);
    assert_eq!(found["fault_mode"], "segv");
    let mode = finding(&found, "fault mode");
    assert_eq!(mode["verdict"], "worse");
    assert!(
        mode["costs"]
            .as_str()
            .expect("costs")
            .contains("three times")
    );
    let change = mode["change"].to_string();
    assert!(
        change.contains("seccomp=") && change.contains("sysctl"),
        "{change}"
    );
    let text = Job::new("doctor")
        .without_userfaultfd(libc::EPERM)
        .uzswap_itself()
        .text();
    assert!(
        text.contains("to change it: docker run --security-opt"),
        "{text}"
    );
}

#[test]
fn what_run_refuses_fails() {
    let job = Job::new("doctor").env("UZSWAP_FAULT_MODE", "signal");
    let (said, found) = doctor(job.without_userfaultfd(libc::ENOSYS));
    assert_eq!(said.status, 1);
    assert_eq!(found["runs"], false);
    assert_eq!(found["fault_mode"], Value::Null);
    assert_eq!(finding(&found, "fault mode")["verdict"], "fails");
    // A swap file that is none is refused by 'run', too.
    let (said, found) = doctor(Job::new("doctor").env("UZSWAP_SWAP", "/dev/null"));
    assert_eq!(said.status, 1);
    assert_eq!(finding(&found, "swap")["verdict"], "fails");
}
