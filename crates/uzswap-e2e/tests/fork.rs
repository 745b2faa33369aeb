//! fork, vfork, posix_spawn, system, popen and exec: parent and children keep their own right data,
//! and each stays within the limit.

use uzswap_e2e::{Job, MIB, Scratch, User, is_root, seed, skip, users};

fn family(user: User, fault_mode: &str, block: &str) {
    let scratch = Scratch::new();
    let outcome = Job::new(scratch.compile("apps/fork.c"))
        .args(["96", &seed().to_string()])
        .ram_mib(24)
        .option("--fault-mode", fault_mode)
        .option("--block", block)
        .user(user)
        .managed()
        .expect_success("a family of processes");
    assert!(outcome.text().ends_with(": right\n"), "{}", outcome.text());
    outcome.expect_within(16 * MIB);
}

#[test]
fn everyone_keeps_their_data() {
    for &user in users() {
        family(user, "signal", "4K");
    }
}

#[test]
fn everyone_keeps_their_blocks() {
    family(User::Same, "signal", "64K");
}

#[test]
fn without_userfaultfd() {
    family(User::Same, "segv", "4K");
}

#[test]
fn with_handler_threads() {
    if !is_root() {
        skip("handler threads need root");
        return;
    }
    family(User::Same, "thread", "4K");
}
