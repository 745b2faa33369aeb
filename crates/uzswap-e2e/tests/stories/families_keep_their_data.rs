//! fork, vfork, posix_spawn, system, popen and exec: parent and children keep their own right data,
//! and each stays within the limit.

use uzswap_e2e::{Job, MIB, Scratch, User, root_or_skip, seed, users};

fn family(user: User, options: &str) {
    let scratch = Scratch::new();
    let outcome = Job::compiled(&scratch, "apps/fork.c", &format!("96 {}", seed()))
        .each_mib(24)
        .user(user)
        .options(options)
        .managed()
        .expect_success("a family of processes");
    assert!(outcome.text().ends_with(": right\n"), "{}", outcome.text());
    outcome.expect_within(16 * MIB);
}

#[test]
fn everyone_keeps_their_data() {
    for &user in users() {
        family(user, "");
    }
}

#[test]
fn everyone_keeps_their_blocks() {
    family(User::Same, "--block 64K");
}

/// Children have no accelerator workers until they start their own.
#[test]
fn everyone_has_workers_of_their_own() {
    family(User::Same, "--accel engines:2 --compressor zstd");
}

#[test]
fn in_other_fault_modes() {
    family(User::Same, "--fault-mode segv");
    if root_or_skip("fault mode thread") {
        family(User::Same, "--fault-mode thread");
    }
}
