//! A managed program executes programs that the library cannot be preloaded into: static ones,
//! those of another C library, are managed all the same; those of another word size, those that
//! change user, and those that nobody says a group to run as they do natively. However they are
//! executed.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use uzswap_e2e::{Job, Scratch, find_or_skip, users, workspace};

/// Compiles `tests/programs/foreign/anywhere.c`. `None`, and a line that says so, if this machine
/// cannot.
fn anywhere(scratch: &Scratch, name: &str, compiler: &str, options: &[&str]) -> Option<PathBuf> {
    scratch.compile_by(compiler, "foreign/anywhere.c", name, options)
}

/// Runs a job natively and managed, as every user; both end well and say the same.
fn same(job: &Job, what: &str) {
    for &user in users() {
        let job = job.clone().ram_mib(64).flag("--quiet").user(user);
        let native = job.native().expect_success(&format!("{what}, alone"));
        let managed = job.managed().expect_success(&format!("{what}, managed"));
        managed.expect_same_output(&native);
        assert_eq!(managed.stderr, native.stderr, "{what}");
    }
}

/// A shell script, managed.
fn shell(script: String) -> Job {
    Job::new("sh").args(["-c", &script])
}

/// Everything that `tests/programs/foreign/launches.c` does, with one program.
fn in_every_way(scratch: &Scratch, program: &Path, arg: &str) {
    let source = workspace().join("tests/programs/foreign/launches.c");
    let launches = scratch.compile_path(&source, &["-Wno-unused-result"]);
    let job = Job::new(launches).arg(program).arg(arg);
    same(&job, &program.display().to_string());
}

#[test]
fn an_unmanaged_program_has_memory_wherever_it_asks_for_it() {
    let scratch = Scratch::new();
    let Some(program) = anywhere(&scratch, "static", "gcc", &["-static"]) else {
        return;
    };
    let program = program.display();
    // Memory at every hint, in the arena's range, too; with a SIGSYS handler of its own and
    // without.
    same(&shell(format!("env -i {program} exact")), "static");
    same(
        &shell(format!("env -i {program} exact handler")),
        "a handler",
    );
}

/// Managed however it is executed, but without an environment, and like the native run in all that
/// it says but for its group.
fn managed_in_every_way(scratch: &Scratch, program: &Path, arg: &str) {
    let source = workspace().join("tests/programs/foreign/launches.c");
    let launches = scratch.compile_path(&source, &["-Wno-unused-result"]);
    for &user in users() {
        let job = Job::new(&launches).args([program.as_os_str(), arg.as_ref()]);
        let job = job.ram_mib(64).flag("--quiet").user(user);
        let native = job.native().expect_success("alone");
        let managed = job.managed().expect_success("managed");
        let text = managed.text();
        let grouped = text.matches("UZSWAP_GROUP_FILE=").count();
        assert_eq!(
            grouped,
            native.text().matches("right").count() - 1,
            "{text}"
        );
        // Nothing of the library, which it could not load.
        let rest = text
            .lines()
            .filter(|line| !line.starts_with("UZSWAP_GROUP_FILE="));
        assert!(rest.eq(native.text().lines()), "{text}");
        assert_eq!(managed.stderr, native.stderr);
    }
}

#[test]
fn programs_of_no_or_another_c_library_are_executed_in_every_way() {
    for (name, compiler, options) in [
        ("static", "gcc", &["-static"][..]),
        ("static-pie", "gcc", &["-static-pie"]),
        ("musl", "musl-gcc", &[]),
        ("static-musl", "musl-gcc", &["-static"]),
    ] {
        let scratch = Scratch::new();
        if let Some(program) = anywhere(&scratch, name, compiler, options) {
            managed_in_every_way(&scratch, &program, "handler");
        }
    }
}

/// Where tracing is forbidden, they run as they do natively.
#[test]
fn what_cannot_be_traced_is_executed_unmanaged() {
    let scratch = Scratch::new();
    let Some(program) = anywhere(&scratch, "static", "gcc", &["-static"]) else {
        return;
    };
    let job = shell(format!("{} exact", program.display()))
        .ram_mib(64)
        .flag("--quiet")
        .without(libc::SYS_ptrace, libc::EPERM);
    let native = job.native().expect_success("alone");
    let managed = job.managed().expect_success("not traced");
    let text = managed.text();
    assert!(text.ends_with(&*native.text()), "{text}");
    // As the command itself it is refused, unless that is allowed.
    let job = Job::new(program)
        .arg("exact")
        .without(libc::SYS_ptrace, libc::EPERM);
    let _ = job
        .managed()
        .expect_refused(125, &["traced", "--allow-unmanaged"]);
    let allowed = job.flag("--allow-unmanaged").managed();
    allowed
        .expect_success("allowed")
        .expect_stderr(&["nothing was managed"]);
}

#[test]
fn a_program_of_32_bits_is_executed_in_every_way() {
    let scratch = Scratch::new();
    if let Some(program) = anywhere(&scratch, "32-bit", "gcc", &["-m32"]) {
        in_every_way(&scratch, &program, "exact");
    }
}

#[test]
fn a_set_user_id_program_is_executed_in_every_way() {
    let scratch = Scratch::new();
    let program = anywhere(&scratch, "set-user-id", "gcc", &[]).expect("gcc makes programs");
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).expect("it is ours");
    in_every_way(&scratch, &program, "none");
}

/// What is managed stays so: its environment names our library, and nothing else changes.
#[test]
fn a_program_that_can_be_managed_is_executed_in_every_way() {
    let scratch = Scratch::new();
    let program = anywhere(&scratch, "dynamic", "gcc", &[]).expect("gcc makes programs");
    let source = workspace().join("tests/programs/foreign/launches.c");
    let launches = scratch.compile_path(&source, &["-Wno-unused-result"]);
    let job = Job::new(launches).arg(program).ram_mib(64);
    let native = job.native().expect_success("alone");
    let managed = job.managed().expect_success("managed");
    let text = managed.text();
    let named = text
        .lines()
        .filter(|line| line.starts_with("UZSWAP_GROUP_FILE="));
    // All but one of them, which goes without an environment.
    assert_eq!(named.count(), native.text().matches("right").count() - 1);
    let rest = text.lines().filter(|line| !line.contains("uzswap"));
    assert!(rest.eq(native.text().lines()), "{text}");
}

/// Without address space randomisation its text would lie where a managed program's is.
#[test]
fn where_addresses_are_not_random_it_has_its_own_all_the_same() {
    if find_or_skip("setarch", "util-linux").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let dynamic = anywhere(&scratch, "dynamic", "gcc", &[]).expect("gcc makes programs");
    let mut script = format!("env -i {}", dynamic.display());
    if let Some(program) = anywhere(&scratch, "static-pie", "gcc", &["-static-pie"]) {
        script += &format!("; env -i {}", program.display());
    }
    let job = Job::new("setarch").args(["-R", "sh", "-c", &script]);
    same(&job, "fixed addresses");
}

/// What an unmanaged program executes is not managed, and runs.
#[test]
fn the_children_of_an_unmanaged_program_run() {
    let scratch = Scratch::new();
    let Some(musl) = anywhere(&scratch, "musl", "musl-gcc", &[]) else {
        return;
    };
    let source = workspace().join("tests/programs/foreign/launches.c");
    let launches = scratch.compile_path(&source, &["-static", "-Wno-unused-result"]);
    let script = format!("env -i {} {}", launches.display(), musl.display());
    same(&shell(script), "an unmanaged program's musl children");
}

/// Once a program filters its calls nobody looks at what it executes: a Go program then gets the
/// library, whose functions its run-time does not call to execute.
#[test]
fn the_children_of_an_unmanaged_go_program_do_not_have_the_library() {
    let scratch = Scratch::new();
    let Some(program) = anywhere(&scratch, "static", "gcc", &["-static"]) else {
        return;
    };
    let source = workspace().join("tests/programs/foreign/launches.c");
    let launches = scratch.compile_path(&source, &["-DGO", "-Wno-unused-result"]);
    let strict = workspace().join("tests/programs/foreign/strict.c");
    let other = Scratch::new();
    let lenient = other.compile_path(&strict, &["-DLENIENT"]);
    let [lenient, launches, program] = [&lenient, &launches, &program].map(|it| it.display());
    let job = shell(format!("{lenient} {launches} {program} exact")).ram_mib(64);
    let native = job.native().expect_success("alone");
    let managed = job.managed().expect_success("managed");
    managed.expect_same_output(&native);
    let told = "a Go program is not managed";
    assert!(managed.stderr.contains(told), "{}", managed.stderr);
}

/// exec looks at what it executes. It must not where that may be forbidden.
#[test]
fn a_program_that_filters_its_calls_executes_a_static_one() {
    let (scratch, other) = (Scratch::new(), Scratch::new());
    let source = workspace().join("tests/programs/foreign/strict.c");
    let program = scratch.compile_path(&source, &["-static"]);
    let job = Job::new(other.compile_path(&source, &[])).arg(program);
    same(&job, "a strict filter");
}
