//! Where a sandbox denies userfaultfd, memory protection takes its place: data is right, the limit
//! holds, and uzswap says which mode it chose and why.

use uzswap_e2e::{HardLimit, Job, MIB, Scratch, seed, users};

fn pattern(scratch: &Scratch, mib: u64) -> Job {
    let args = format!("{mib} 4 mixed 40000 {}", seed());
    Job::compiled(scratch, "pattern/pattern.c", &args)
        .ram_mib(mib / 4)
        .without_userfaultfd(libc::EPERM)
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
        let first = outcome.stderr.lines().next().unwrap_or_default();
        for word in ["segv mode", "userfaultfd", "seccomp"] {
            assert!(first.contains(word), "no {word:?} in {first}");
        }
    }
}

#[test]
fn modes_that_need_userfaultfd_are_refused() {
    let scratch = Scratch::new();
    for mode in ["signal", "thread"] {
        let outcome = pattern(&scratch, 64).option("--fault-mode", mode).managed();
        assert_eq!(outcome.status, 125, "{}", outcome.stderr);
        assert!(outcome.stderr.contains(": "), "{}", outcome.stderr);
        assert_eq!(outcome.text(), "");
    }
}

#[test]
fn the_limit_is_real() {
    let Some(limit) = HardLimit::new_or_skip(138 * MIB) else {
        return;
    };
    let scratch = Scratch::new();
    let outcome = pattern(&scratch, 256).within(&limit).managed();
    assert_eq!(limit.oom_kills(), 0, "{}", outcome.stderr);
    let outcome = outcome.expect_success("256 MiB of pattern in 64 MiB");
    outcome.expect_within(32 * MIB);
}
