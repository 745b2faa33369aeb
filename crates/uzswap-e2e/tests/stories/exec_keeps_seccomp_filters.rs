//! exec keeps the seccomp filters of the program before.

use uzswap_e2e::{Job, Scratch, find_or_skip};

/// Distance of the addresses tried for the libraries, KiB; the largest library is larger.
const STEP_KIB: usize = 256;
const STEPS: usize = 16;

/// A filter names text addresses of the program that installed it. Here the stack limit, below
/// which libraries are mapped, sets where code lies: the second program's libraries lie lower each
/// time, so that each of them, ours too, comes to lie where another of the first's lay.
#[test]
fn code_may_lie_where_that_of_the_program_before_lay() {
    if find_or_skip("setarch", "util-linux").is_none() {
        return;
    }
    // Larger than the minimum that the kernel reserves for a stack.
    let first = 200_000;
    for step in 0..STEPS {
        let second = first + step * STEP_KIB;
        let script = format!(
            "ulimit -Ss {first}; exec sh -c 'ulimit -Ss {second}; exec sh -c \"echo here\"'"
        );
        let outcome = Job::new("setarch")
            .args(["-R", "sh", "-c", &script])
            .ram_mib(64)
            .managed()
            .expect_success(&format!("{} KiB apart", step * STEP_KIB));
        assert_eq!(outcome.text(), "here\n");
    }
}

/// The kernel has room for some 140 of them.
#[test]
fn a_program_may_execute_another_as_often_as_it_likes() {
    let scratch = Scratch::new();
    let script = scratch.write(
        "again",
        "[ $1 = 0 ] && echo done && exit\nexec sh $0 $(($1 - 1))\n",
    );
    let outcome = Job::new("sh")
        .arg(&script)
        .arg("300")
        .ram_mib(64)
        .managed()
        .expect_success("three hundred programs");
    assert_eq!(outcome.text(), "done\n");
    assert_eq!(outcome.stderr.matches("not managed").count(), 1);
}
