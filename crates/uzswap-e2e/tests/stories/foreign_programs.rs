//! A managed program executes what cannot be managed: static programs, those of another C library
//! or word size, those that change user. They run as they do natively, however they are executed.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use uzswap_e2e::{Job, Scratch, find_or_skip, skip, users, workspace};

/// Compiles `tests/programs/foreign/anywhere.c`. `None`, and a line that says so, if this machine
/// cannot.
fn anywhere(scratch: &Scratch, name: &str, compiler: &str, options: &[&str]) -> Option<PathBuf> {
    let package = if compiler == "gcc" {
        "gcc"
    } else {
        "musl-tools"
    };
    let compiler = find_or_skip(compiler, package)?;
    let program = scratch.join(name);
    let output = Command::new(compiler)
        .args(["-std=gnu17", "-O1", "-o"])
        .arg(&program)
        .arg(workspace().join("tests/programs/foreign/anywhere.c"))
        .args(options)
        .output()
        .expect("the compiler starts");
    if output.status.success() {
        return Some(program);
    }
    let why = String::from_utf8_lossy(&output.stderr);
    skip(&format!("no {name} program can be built here: {why}"));
    None
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
fn a_static_program_has_memory_wherever_it_asks_for_it() {
    let scratch = Scratch::new();
    let Some(program) = anywhere(&scratch, "static", "gcc", &["-static"]) else {
        return;
    };
    let program = program.display();
    // Memory at every hint, in the arena's range, too; with a SIGSYS handler of its own and without.
    same(&shell(format!("{program} exact")), "static");
    same(&shell(format!("{program} exact handler")), "a handler");
    // Unmanaged from the beginning.
    let job = Job::new(scratch.join("static")).arg("exact");
    let native = job.native().expect_success("static, alone");
    let job = job.flag("--allow-unmanaged").managed();
    job.expect_success("static, by itself")
        .expect_same_output(&native);
}

#[test]
fn a_static_program_is_executed_in_every_way() {
    let scratch = Scratch::new();
    if let Some(program) = anywhere(&scratch, "static", "gcc", &["-static"]) {
        in_every_way(&scratch, &program, "exact");
    }
}

#[test]
fn a_static_program_that_lies_anywhere_is_executed_in_every_way() {
    let scratch = Scratch::new();
    if let Some(program) = anywhere(&scratch, "static-pie", "gcc", &["-static-pie"]) {
        in_every_way(&scratch, &program, "handler");
    }
}

#[test]
fn a_program_of_another_c_library_is_executed_in_every_way() {
    let scratch = Scratch::new();
    for (name, options) in [("musl", &[][..]), ("static-musl", &["-static"])] {
        if let Some(program) = anywhere(&scratch, name, "musl-gcc", options) {
            in_every_way(&scratch, &program, "none");
        }
    }
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
        .filter(|line| line.starts_with("UZSWAP_GROUP="));
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
        script += &format!("; {}", program.display());
    }
    let job = Job::new("setarch").args(["-R", "sh", "-c", &script]);
    same(&job, "fixed addresses");
}

/// What a program without our library executes is not managed, and runs.
#[test]
fn the_children_of_a_static_program_run() {
    let scratch = Scratch::new();
    let Some(musl) = anywhere(&scratch, "musl", "musl-gcc", &[]) else {
        return;
    };
    let source = workspace().join("tests/programs/foreign/launches.c");
    let launches = scratch.compile_path(&source, &["-static", "-Wno-unused-result"]);
    let script = format!("{} {}", launches.display(), musl.display());
    same(&shell(script), "a static program's musl children");
}

/// Go's run-time executes by instructions of its own, which nobody sees.
#[test]
fn the_children_of_a_go_program_do_not_have_the_library() {
    let scratch = Scratch::new();
    let Some(program) = anywhere(&scratch, "static", "gcc", &["-static"]) else {
        return;
    };
    let source = workspace().join("tests/programs/foreign/launches.c");
    let launches = scratch.compile_path(&source, &["-DGO", "-Wno-unused-result"]);
    let script = format!("{} {} exact", launches.display(), program.display());
    let job = shell(script).ram_mib(64);
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
