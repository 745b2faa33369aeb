//! What docs/security.md counts and lists is what the tree has: blocks of `unsafe` by crate, and
//! the crates of others that it uses.
#![allow(missing_docs, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Set, the test writes the table instead of comparing it.
const UPDATE_ENV: &str = "UZSWAP_UPDATE_DOCS";
const BEGIN: &str = "<!-- unsafe: made by the test security_page -->\n";
const END: &str = "<!-- end -->\n";

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The crates, by name, and where each is.
fn crates() -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(tree().join("crates")).expect("there are crates");
    let dirs = entries.map(|entry| entry.expect("readable").path());
    let named = dirs.filter_map(|dir| Some((dir.file_name()?.to_str()?.to_owned(), dir)));
    named.collect()
}

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a folder of sources") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// Blocks, functions and implementations that are unsafe in a source, and its lines; without its
/// tests, which follow all else.
fn count(source: &str) -> (usize, usize) {
    let before_tests = source.split("\n#[cfg(test)]\nmod tests {").next();
    let lines: Vec<_> = before_tests.unwrap_or_default().lines().collect();
    let code = lines.iter().filter_map(|line| line.split("//").next());
    let words = code.flat_map(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_'));
    let is_unsafe = words.filter(|word| *word == "unsafe");
    // An attribute, as that of `no_mangle`, is no block.
    let attributes = lines.iter().filter(|line| line.contains("#[unsafe("));
    (is_unsafe.count() - attributes.count(), lines.len())
}

/// The table of the page.
fn table() -> String {
    let mut table = String::from("\n| crate | unsafe | lines |\n|---|---:|---:|\n");
    let (mut all, mut all_lines) = (0, 0);
    for (name, dir) in crates() {
        let mut files = Vec::new();
        sources(&dir.join("src"), &mut files);
        files.retain(|file| !file.ends_with("tests.rs"));
        let counts = files.iter().map(|file| count(&read(file)));
        let (nr, lines) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        // Lines by the thousand, so that not every change is one of the page.
        let _ = writeln!(table, "| `{name}` | {nr} | {} k |", lines.div_ceil(1000));
        (all, all_lines) = (all + nr, all_lines + lines);
    }
    let _ = writeln!(table, "| all | {all} | {} k |\n", all_lines.div_ceil(1000));
    table
}

#[test]
fn unsafe_is_counted() {
    let path = tree().join("docs/security.md");
    let page = read(&path);
    let (before, rest) = page.split_once(BEGIN).expect("the table's beginning");
    let (written, after) = rest.split_once(END).expect("the table's end");
    let table = table();
    if std::env::var_os(UPDATE_ENV).is_some() {
        let page = [before, BEGIN, &table, END, after].concat();
        fs::write(&path, page).expect("the page can be written");
        return;
    }
    assert!(
        written == table,
        "docs/security.md is stale: run '{UPDATE_ENV}=1 cargo test -p uzswap-cli --test \
         security_page':\n{table}"
    );
}

/// The crates of others that a manifest names, but for those of tests and models.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let mut is_listed = false;
    manifest.lines().filter_map(move |line| {
        if line.starts_with('[') {
            is_listed = matches!(line, "[dependencies]" | "[build-dependencies]");
            return None;
        }
        let (name, _) = line.split_once([' ', '=', '.'])?;
        let is_name = is_listed && !name.is_empty() && !name.starts_with(['#', ' ']);
        (is_name && !name.starts_with("uzswap")).then_some(name)
    })
}

#[test]
fn every_crate_of_others_has_its_reason() {
    let manifests: Vec<_> = crates()
        .values()
        .map(|dir| read(dir.join("Cargo.toml")))
        .collect();
    let used: BTreeSet<_> = manifests
        .iter()
        .flat_map(|text| dependencies(text))
        .collect();
    let page = read(tree().join("docs/security.md"));
    let (_, list) = page
        .split_once("\n## Crates of others\n")
        .expect("the list");
    let rows = list.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: BTreeSet<_> = rows.filter_map(|row| row.split('`').next()).collect();
    assert_eq!(listed, used, "docs/security.md lists what is used, and why");
}
