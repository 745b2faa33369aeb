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

/// Executes itself as often as its argument says, then prints what the last of them is.
const AGAIN: &str = r#"
if [ "$1" != 0 ]; then exec sh "$0" $(($1 - 1)); fi
while read -r name value; do
    if [ "$name" = Seccomp_filters: ]; then echo "filters $value"; fi
done < /proc/$$/status
while read -r range rest; do
    case $range in ffd00000000-*) echo "the image" ;; esac
    case $rest in *libuzswap*) echo "the library" ;; esac
done < /proc/$$/maps | uniq
"#;

/// Runs it, and returns what it prints.
fn again(times: u32, before: impl FnOnce(Job) -> Job) -> String {
    let scratch = Scratch::new();
    let script = scratch.write("again", AGAIN);
    let job = before(Job::new("sh")).arg(&script).arg(times.to_string());
    let outcome = job.ram_mib(64).managed().expect_success("a chain");
    assert!(
        !outcome.stderr.contains("not managed"),
        "{}",
        outcome.stderr
    );
    outcome.text()
}

/// The kernel has room for some 140 of them, and each names text that another program may come to
/// lie at. Beyond 32 programs are managed without.
#[test]
fn a_program_may_execute_another_as_often_as_it_likes() {
    assert_eq!(again(150, |job| job), "filters 32\nthe image\n");
    assert_eq!(again(30, |job| job), "filters 32\nthe library\n");
}

/// Without random addresses each of them lies where all filters say.
#[test]
fn what_has_the_image_may_lie_where_those_before_lay() {
    if find_or_skip("setarch", "util-linux").is_none() {
        return;
    }
    let fixed = |job: Job| job.arg("-R").arg("sh");
    let text = again(100, |_| fixed(Job::new("setarch")));
    assert_eq!(text, "filters 32\nthe image\n");
}

/// Where programs may not be traced they keep the library for longer.
#[test]
fn what_cannot_have_the_image_has_the_library() {
    let text = again(60, |job| job.without(libc::SYS_ptrace, libc::EPERM));
    assert!(text.ends_with("the library\n"), "{text}");
}
