//! Inside a memory cgroup with a hard limit and no swap, a job of 1 GiB finishes under `--ram 256M`
//! and is killed without.

use std::time::Duration;

use uzswap_e2e::{HardLimit, Job, MIB, Scratch, find, long_form, seed, workspace};

/// `--ram` and what no limit covers: code, libraries, stacks, page tables, `uzswap` itself.
const HARD: u64 = 330 * MIB;

#[test]
fn one_gib_in_256_mib() {
    let Some(limit) = HardLimit::new_or_skip(HARD) else {
        return;
    };
    let scratch = Scratch::new();
    let args = format!("1024 4 mixed 200000 {}", seed());
    let job = Job::compiled(&scratch, "pattern/pattern.c", &args)
        .ram_mib(256)
        .within(&limit);
    let outcome = job.managed();
    assert_eq!(
        limit.oom_kills(),
        0,
        "killed for memory: {}",
        outcome.stderr
    );
    let outcome = outcome.expect_success("1 GiB of pattern");
    outcome.expect_within(32 * MIB);
    if let Some(peak) = limit.peak() {
        println!(
            "cgroup peak {} MiB, ram_peak {} MiB",
            peak / MIB,
            outcome.stat("ram_peak") / MIB
        );
    }

    // The hard limit bites: the same job alone does not survive it.
    assert_eq!(job.native().status, 128 + 9);
    assert!(limit.oom_kills() > 0);

    if !long_form() {
        return;
    }
    let before = limit.oom_kills();
    let python = find("python3").expect("python3 is installed");
    let example = workspace().join("examples/group_by.py");
    let job = Job::new(python)
        .arg(example)
        .ram_mib(256)
        .timeout(Duration::from_secs(900));
    let native = job.native().expect_success("the example alone");
    let managed = job
        .within(&limit)
        .managed()
        .expect_success("the example in 256 MiB");
    managed.expect_same_output(&native);
    assert_eq!(limit.oom_kills(), before);
}
