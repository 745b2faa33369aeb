//! The header is what the library has, and the examples in C and C++ do what they say, built with
//! the machine's compilers.
#![allow(missing_docs, reason = "a test")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use support::{build, built, here, run};

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
