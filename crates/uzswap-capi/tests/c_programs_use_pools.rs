//! The header is what the library has, and the examples in C and C++ do what they say, built with
//! the machine's compilers.
#![allow(missing_docs, reason = "a test")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
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

/// The test of an adapter, if the library that it adapts to is here, with its files in `place`.
fn adapted(test: &str, file: &str, place: Option<&Path>, library: &str) {
    let include = place.map_or(Path::new("/usr").into(), Path::to_owned);
    if !include.join(file).exists() {
        println!("skipped: there is no {file} here");
        return;
    }
    let [headers, libraries] = ["include", "lib"].map(|part| include.join(part));
    let libraries = libraries.to_str().unwrap();
    let path = format!("-Wl,-rpath,{libraries}");
    let mut options = vec!["-std=gnu11", "-L", libraries, &path];
    if place.is_some() {
        options.extend(["-I", headers.to_str().unwrap()]);
    }
    options.extend(["-Wl,--no-as-needed", library]);
    let source = here().join("tests").join(test);
    if let Some(program) = build("gcc", &source, &options, &built().join("libuzswap.so")) {
        run(&program);
    }
}

#[test]
fn an_arena_of_jemalloc() {
    let place = std::env::var_os("UZSWAP_TEST_JEMALLOC").map(PathBuf::from);
    adapted(
        "jemalloc.c",
        "include/jemalloc/jemalloc.h",
        place.as_deref(),
        "-ljemalloc",
    );
}

/// UMF comes as a wheel: `UZSWAP_TEST_UMF` names the directory that has its include and lib.
#[test]
fn a_provider_of_umf() {
    let place = std::env::var_os("UZSWAP_TEST_UMF").map(PathBuf::from);
    adapted("umf.c", "include/umf.h", place.as_deref(), "-lumf");
}

/// With AddressSanitizer, which has a SIGSEGV handler, interposed functions and shadow memory.
#[test]
fn under_address_sanitizer() {
    let source = here().join("tests/everything.c");
    let options = [
        "-std=c11",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-g",
    ];
    let probe = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sanitized.c");
    fs::write(&probe, "int main(void) { return 0; }").unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(options)
        .arg(&probe)
        .arg("-o")
        .arg(probe.with_extension(""));
    if !gcc.output().is_ok_and(|output| output.status.success()) {
        println!("skipped: gcc has no sanitizers here");
        return;
    }
    if let Some(program) = build("gcc", &source, &options, &built().join("libuzswap.so")) {
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
        .filter(|symbol| *symbol != "libuzswap.so.0")
        .map(|symbol| {
            let (name, version) = symbol.split_once('@').unwrap_or((symbol, ""));
            assert_eq!(version.trim_start_matches('@'), "libuzswap.so.0", "{name}");
            name.to_owned()
        })
        .collect();
    assert_eq!(declared, exported);
}
