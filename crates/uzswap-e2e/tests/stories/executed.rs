//! A program that another one executes finds that one's filters of system calls on it, for good.

use uzswap_e2e::{Job, find_or_skip};

/// KiB between one place of the libraries and the next that is tried; the largest library is larger.
const STEP: usize = 256;
const STEPS: usize = 16;

/// Filters name the text of the program that put them on. Where a program's code lies, is chance; here it is the
/// limit of the stack, below which libraries are mapped: the second program's lie lower each time, so that each of
/// them, ours too, comes to lie where another of the first's lay.
#[test]
fn code_may_lie_where_the_program_befores_lay() {
    if find_or_skip("setarch", "util-linux").is_none() {
        return;
    }
    // Larger than the least that the kernel leaves free for a stack.
    let first = 200_000;
    for step in 0..STEPS {
        let second = first + step * STEP;
        let script = format!(
            "ulimit -Ss {first}; exec sh -c 'ulimit -Ss {second}; exec sh -c \"echo here\"'"
        );
        let outcome = Job::new("setarch")
            .args(["-R", "sh", "-c", &script])
            .ram_mib(64)
            .managed()
            .expect_success(&format!("{} KiB apart", step * STEP));
        assert_eq!(outcome.text(), "here\n");
    }
}
