//! The header is what the library has, and the examples in C and C++ do what they say, built with
//! the machine's compilers.
#![allow(missing_docs, reason = "a test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where the libraries are, built with the profile of this test.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let me = std::env::current_exe().unwrap();
        let profile = me.ancestors().nth(2).unwrap().to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--lib", "-p", "uzswap-capi"]);
        cargo.arg("--target-dir").arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.current_dir(here()).status().unwrap().success());
        // As it is installed: by the name that programs look for.
        let link = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libuzswap.so.0");
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(profile.join("libuzswap.so"), link).unwrap();
        profile
    })
}

fn exists(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Builds `source` with `compiler`, linked with `library`, and returns the program.
fn build(compiler: &str, source: &Path, options: &[&str], library: &Path) -> Option<PathBuf> {
    if !exists(compiler) {
        println!("skipped: there is no {compiler} here");
        return None;
    }
    let kind = library.extension().unwrap().to_str().unwrap();
    let name = format!("{}-{kind}", source.file_stem().unwrap().to_str().unwrap());
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = Command::new(compiler);
    command
        .args(["-Wall", "-Wextra", "-Werror", "-O1"])
        .args(options);
    command
        .arg("-I")
        .arg(here().join("include"))
        .arg(source)
        .arg("-o")
        .arg(&program);
    command.arg(library).args(["-lpthread", "-ldl", "-lm"]);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(program)
}

fn run(program: &Path) {
    let output = Command::new(program)
        .env("LD_LIBRARY_PATH", env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    println!("{out}{err}");
    assert!(
        output.status.success(),
        "{}: {:?}\n{out}{err}",
        program.display(),
        output.status
    );
}

#[test]
fn the_example_in_c() {
    for library in ["libuzswap.so", "libuzswap.a"] {
        let source = here().join("examples/table.c");
        if let Some(program) = build("gcc", &source, &["-std=c11"], &built().join(library)) {
            run(&program);
        }
    }
}

#[test]
fn the_example_in_cpp() {
    let source = here().join("examples/words.cpp");
    if let Some(program) = build(
        "g++",
        &source,
        &["-std=c++17"],
        &built().join("libuzswap.so"),
    ) {
        run(&program);
    }
}

#[test]
fn everything_from_c() {
    let source = here().join("tests/everything.c");
    if let Some(program) = build("gcc", &source, &["-std=c11"], &built().join("libuzswap.so")) {
        run(&program);
    }
}

/// Words of `text` that begin with `uzswap_` and are followed by `(`.
fn functions(text: &str) -> BTreeSet<String> {
    let starts = text.match_indices("uzswap_").map(|(at, _)| &text[at..]);
    let named = starts.filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        rest[end..].starts_with('(').then(|| rest[..end].to_owned())
    });
    named.collect()
}

#[test]
fn the_header_names_what_the_library_exports() {
    let header = fs::read_to_string(here().join("include/uzswap.h")).unwrap();
    let code: Vec<&str> = header
        .split("/*")
        .map(|part| part.split("*/").last().unwrap())
        .collect();
    let declared = functions(&code.concat());
    assert!(declared.len() > 20, "{declared:?}");
    let library = built().join("libuzswap.so");
    let nm = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library)
        .output();
    let Ok(output) = nm else {
        println!("skipped: there is no nm here");
        return;
    };
    let symbols = String::from_utf8(output.stdout).unwrap();
    let exported: BTreeSet<String> = symbols
        .lines()
        .filter_map(|line| line.split(' ').next_back())
        .map(str::to_owned)
        .collect();
    assert_eq!(declared, exported);
}
