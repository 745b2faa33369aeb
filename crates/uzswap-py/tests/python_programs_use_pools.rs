//! The package's own tests and doctests, with a Python that has numpy: `UZSWAP_TEST_PYTHON`, or
//! python3.
#![allow(missing_docs, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The package with the extension in it, as a wheel has it.
fn package() -> PathBuf {
    let me = std::env::current_exe().unwrap();
    let profile = me.ancestors().nth(2).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--lib", "-p", "uzswap-py"]);
    cargo.arg("--target-dir").arg(profile.parent().unwrap());
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.current_dir(here()).status().unwrap().success());
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
    let inner = package.join("uzswap");
    fs::create_dir_all(&inner).unwrap();
    for file in fs::read_dir(here().join("../../python/uzswap")).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_file() {
            fs::copy(file.path(), inner.join(file.file_name())).unwrap();
        }
    }
    fs::copy(profile.join("lib_uzswap.so"), inner.join("_uzswap.abi3.so")).unwrap();
    package
}

#[test]
fn arrays_live_in_pools() {
    let python = std::env::var("UZSWAP_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_numpy = Command::new(&python).args(["-c", "import numpy"]).output();
    if !has_numpy.is_ok_and(|output| output.status.success()) {
        println!("skipped: {python} has no numpy: name another with UZSWAP_TEST_PYTHON");
        return;
    }
    let package = package();
    for test in ["test_pools.py", "test_libraries.py"] {
        let status = Command::new(&python)
            .arg(here().join("tests").join(test))
            .env("PYTHONPATH", &package)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .status();
        assert!(status.unwrap().success(), "{test}");
    }
}
