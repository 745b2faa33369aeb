//! An ordinary user gets signal mode and right data, and a clear line when asking for what needs
//! root.

use std::fs;

use uzswap_e2e::{Job, MIB, Scratch, User, is_root, seed, skip, users};

fn ordinary() -> User {
    if is_root() {
        User::Ordinary
    } else {
        User::Same
    }
}

#[test]
fn auto_chooses_signal_mode_and_the_data_is_right() {
    let scratch = Scratch::new();
    let args = format!("256 4 mixed 50000 {}", seed());
    let outcome = Job::compiled(&scratch, "pattern/pattern.c", &args)
        .ram_mib(32)
        .user(ordinary())
        .managed()
        .expect_success("pattern as an ordinary user");
    assert_eq!(outcome.stats["fault_mode"], "signal");
    outcome.expect_within(16 * MIB);
}

#[test]
fn handler_threads_are_refused_with_the_next_step() {
    let allowed =
        fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").is_ok_and(|v| v.trim() == "1");
    if allowed {
        skip("vm.unprivileged_userfaultfd is 1: nothing to refuse");
        return;
    }
    let outcome = Job::new("run")
        .words("--fault-mode thread -- echo no")
        .user(ordinary())
        .uzswap_itself();
    assert_eq!(outcome.status, 125, "{}", outcome.stderr);
    assert_eq!(outcome.text(), "");
    outcome.expect_stderr(&["thread", "root", "signal"]);
}

#[test]
fn no_new_privileges_but_where_the_filters_can_do_without() {
    for &user in users() {
        let job = Job::new("grep").args(["NoNewPrivs", "/proc/self/status"]);
        let native = job.clone().user(user).native().expect_success("grep");
        let managed = job.ram_mib(64).user(user).managed().expect_success("grep");
        if user == User::Same && is_root() {
            assert_eq!(managed.text(), native.text(), "root has CAP_SYS_ADMIN");
        } else {
            assert_eq!(managed.text(), "NoNewPrivs:\t1\n");
        }
    }
}
