//! Builds the library and programs that use it.
#![allow(dead_code, reason = "each test uses a part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where the libraries are, built with the profile of this test.
pub fn built() -> &'static Path {
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

pub fn exists(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Builds `source` with `compiler`, linked with `library`, and returns the program.
pub fn build(compiler: &str, source: &Path, options: &[&str], library: &Path) -> Option<PathBuf> {
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

pub fn run(program: &Path) {
    run_with(program, &[]);
}

/// Runs a program, which must succeed.
pub fn run_with(program: &Path, arguments: &[&str]) {
    let output = Command::new(program)
        .args(arguments)
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
