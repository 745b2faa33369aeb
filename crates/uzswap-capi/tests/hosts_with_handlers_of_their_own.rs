//! Pools beside run-times that use SIGSEGV and SIGBUS themselves, in one process: each gets its own
//! faults, whichever was there first.
#![allow(missing_docs, reason = "a test")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{build, built, exists, here, run_with};

fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// A JDK: `JAVA_HOME`, or one below /usr/lib/jvm.
fn jdk() -> Option<PathBuf> {
    let named = std::env::var_os("JAVA_HOME").map(PathBuf::from);
    let installed = fs::read_dir("/usr/lib/jvm").into_iter().flatten();
    let installed = installed.filter_map(|entry| Some(entry.ok()?.path()));
    let mut homes = named.into_iter().chain(installed);
    homes.find(|home| {
        let files = ["include/jni.h", "bin/javac", "lib/server/libjvm.so"];
        files.iter().all(|file| home.join(file).exists())
    })
}

#[test]
fn a_java_virtual_machine() {
    let Some(jdk) = jdk() else {
        println!("skipped: there is no JDK here (JAVA_HOME, /usr/lib/jvm)");
        return;
    };
    let classes = scratch("jvm");
    let mut javac = Command::new(jdk.join("bin/javac"));
    javac.arg("-d").arg(&classes);
    javac.arg(here().join("tests/hosts/Host.java"));
    assert!(javac.status().unwrap().success());
    let include = jdk.join("include");
    let linux = include.join("linux");
    let options = ["-std=gnu11", "-I", include.to_str().unwrap(), "-I"];
    let options = [&options[..], &[linux.to_str().unwrap()]].concat();
    let source = here().join("tests/hosts/jvm.c");
    let Some(program) = build("gcc", &source, &options, &built().join("libuzswap.so")) else {
        return;
    };
    let machine = jdk.join("lib/server/libjvm.so");
    let [machine, classes] = [&machine, &classes].map(|path| path.to_str().unwrap());
    for order in ["first", "last"] {
        for mode in ["signal", "segv"] {
            println!("the machine {order}, {mode}");
            run_with(&program, &[machine, classes, order, mode]);
        }
    }
}

#[test]
fn go_in_an_archive() {
    let has_go = Command::new("go").arg("version").output().is_ok();
    if !has_go || !exists("gcc") {
        println!("skipped: there is no go or no gcc here");
        return;
    }
    let directory = scratch("go");
    let archive = directory.join("archive.a");
    let mut go = Command::new("go");
    go.args(["build", "-buildmode=c-archive", "-o"])
        .arg(&archive);
    go.arg(here().join("tests/hosts/archive.go"));
    go.env("GO111MODULE", "off").env("CGO_ENABLED", "1");
    go.env("GOCACHE", scratch("go-cache"));
    assert!(go.status().unwrap().success());
    // Beside the archive, go puts its header.
    let program = directory.join("go");
    let mut gcc = Command::new("gcc");
    gcc.arg(here().join("tests/hosts/go.c")).arg(&archive);
    gcc.arg("-I")
        .arg(&directory)
        .arg("-I")
        .arg(here().join("include"));
    gcc.arg("-o")
        .arg(&program)
        .arg(built().join("libuzswap.so"))
        .arg("-lpthread");
    assert!(gcc.status().unwrap().success());
    for mode in ["signal", "segv"] {
        run_with(&program, &[mode]);
    }
}
