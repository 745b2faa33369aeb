//! Where a sandbox forbids userfaultfd, memory protection does its work: a program has its data right and keeps within
//! its limit, and is told in which mode and why.

use uzswap_e2e::{HardLimit, Job, MIB, Scratch, seed, skip, users};

fn pattern(scratch: &Scratch, mib: u64) -> Job {
    Job::new(scratch.compile("pattern/pattern.c"))
        .args([mib.to_string(), "4".to_owned(), "mixed".to_owned()])
        .args(["40000".to_owned(), seed().to_string()])
        .ram_mib(mib / 4)
        .without_userfaultfd()
}

#[test]
fn auto_chooses_segv_mode_and_says_why() {
    let scratch = Scratch::new();
    for &user in users() {
        let outcome = pattern(&scratch, 128)
            .user(user)
            .managed()
            .expect_success("pattern without userfaultfd");
        assert!(outcome.text().contains(": right,"), "{}", outcome.text());
        assert_eq!(outcome.stats["fault_mode"], "segv");
        outcome.expect_within(16 * MIB);
        assert!(outcome.stat("zswpin") > 10_000, "{}", outcome.stats);
        let told = outcome.stderr.lines().next().unwrap_or_default();
        for word in ["segv mode", "userfaultfd", "seccomp"] {
            assert!(told.contains(word), "no {word:?} in {told}");
        }
    }
}

#[test]
fn what_needs_userfaultfd_is_refused_with_the_next_step() {
    let scratch = Scratch::new();
    for mode in ["signal", "thread"] {
        let outcome = pattern(&scratch, 64).option("--fault-mode", mode).managed();
        assert_eq!(outcome.status, 125, "{}", outcome.stderr);
        assert!(outcome.stderr.contains(": "), "{}", outcome.stderr);
        assert_eq!(outcome.text(), "");
    }
}

// One test, because the cgroup's name is the process's.
#[test]
fn the_limit_is_real() {
    let limit = match HardLimit::new(138 * MIB) {
        Ok(limit) => limit,
        Err(why) => {
            skip(&why);
            return;
        }
    };
    let scratch = Scratch::new();
    let outcome = pattern(&scratch, 256).within(&limit).managed();
    assert_eq!(limit.oom_kills(), 0, "{}", outcome.stderr);
    let outcome = outcome.expect_success("256 MiB of pattern in 64 MiB");
    outcome.expect_within(32 * MIB);
}
