//! The layout is the architecture: imports point down only. A rank for each module of the engine; a
//! module imports from lower ranks and from its own folder. Flows have ranks of their own.
#![cfg(not(loom))]
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a failed index fails the test"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What may import what, lowest first. Modules of one rank do not import each other.
const RANKS: &[&[&str]] = &[
    &["page"],
    &["memory", "start_error", "masked", "accel"],
    &["account"],
    &["op"],
    &["arena", "store", "backing", "policy"],
    &["parts"],
    &["flow"],
    &["start"],
    &["engine"],
];

/// The flows, lowest first.
#[rustfmt::skip]
const FLOWS: &[&[&str]] = &[
    &["pool_max"],
    &["access", "decode", "readahead", "others", "sample", "share", "sizes", "stall", "writeback"],
    &["compact", "drop", "load"],
    &["recompress"],
    &["block_exit", "shrink"],
    &["evict"],
    &["reclaim"],
    &["high"],
    &["codecs"],
    &["workers"],
    &["densify", "follow"],
    &["give_up"],
    &["reclaimer"],
    &["overlapped_read", "reserve", "shut"],
    &["unshare"],
    &["fault", "swapoff"],
    &["pin", "request", "space"],
    &["fork_policy", "remap", "threads"],
    &["fork"],
];

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// The statements of `text` that import, without `use` and the semicolon. Tests may import what
/// they like.
fn use_statements(text: &str) -> Vec<String> {
    let mut statements = Vec::new();
    let mut open: Option<String> = None;
    for line in text
        .lines()
        .take_while(|line| !line.starts_with("#[cfg(test)]"))
    {
        let begins = ["use ", "pub use ", "pub(crate) use "];
        if let Some(begin) = begins.iter().find(|begin| line.starts_with(**begin)) {
            open = Some(line[begin.len()..].to_owned());
        } else if let Some(open) = &mut open {
            open.push_str(line.trim());
        }
        if let Some(done) = open.take_if(|open| open.ends_with(';')) {
            statements.push(done.trim_end_matches(';').to_owned());
        }
    }
    statements
}

/// The paths that `text`, a module's, imports, from the crate's root.
fn imports(text: &str, module: &[&str]) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    for path in use_statements(text)
        .iter()
        .flat_map(|path| open_braces(path))
    {
        let mut path: Vec<&str> = path.split("::").map(str::trim).collect();
        let mut base = module.to_vec();
        match path[0] {
            "crate" => base.clear(),
            "super" | "self" => {}
            _ => continue,
        }
        while ["crate", "super", "self"].contains(&path[0]) {
            if path.remove(0) == "super" {
                base.pop();
            }
        }
        base.extend(path);
        found.insert(base.into_iter().map(str::to_owned).collect());
    }
    found
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d`, `a::c::e`.
fn open_braces(path: &str) -> Vec<String> {
    let Some(at) = path.find('{') else {
        return vec![path.to_owned()];
    };
    let inner = &path[at + 1..path.rfind('}').unwrap()];
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in inner.chars() {
        match c {
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        parts.last_mut().unwrap().push(c);
    }
    let parts = parts.iter().map(|part| part.trim());
    let parts = parts.filter(|part| !part.is_empty());
    parts
        .flat_map(|part| open_braces(&format!("{}{part}", &path[..at])))
        .collect()
}

fn rank_of(ranks: &[&[&str]], module: &str) -> Option<usize> {
    ranks.iter().position(|rank| rank.contains(&module))
}

/// Why an import from `module` of `path` runs back, if it does.
fn runs_back(module: &[&str], path: &[String]) -> Option<String> {
    let (from, to) = (module[0], path[0].as_str());
    let (Some(own), Some(other)) = (rank_of(RANKS, from), rank_of(RANKS, to)) else {
        return Some("no rank".to_owned());
    };
    if from == to {
        let (Some(from), Some(to)) = (module.get(1), path.get(1)) else {
            return None;
        };
        if module[0] != "flow" || from == to {
            return None;
        }
        return match (rank_of(FLOWS, from), rank_of(FLOWS, to)) {
            (Some(own), Some(other)) if own > other => None,
            (Some(_), Some(_)) => Some("a flow not below it".to_owned()),
            _ => Some("a flow without a rank".to_owned()),
        };
    }
    (own <= other).then(|| format!("rank {other} from rank {own}"))
}

#[test]
fn imports_point_down() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut wrong = Vec::new();
    let mut seen = BTreeMap::new();
    for file in files {
        let name = file.strip_prefix(&root).unwrap().with_extension("");
        let name = name.to_str().unwrap().to_owned();
        let module: Vec<&str> = name.split('/').collect();
        if module == ["lib"] || module.last() == Some(&"tests") {
            continue;
        }
        for path in imports(&fs::read_to_string(&file).unwrap(), &module) {
            *seen.entry(module[0].to_owned()).or_insert(0) += 1;
            if let Some(why) = runs_back(&module, &path) {
                wrong.push(format!("{name} imports {}: {why}", path.join("::")));
            }
        }
    }
    assert!(seen.len() > 10, "the test reads nothing: {seen:?}");
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// The modules that form a circle of imports with `module`, itself among them; none if there is
/// none.
fn circle<'a>(graph: &'a BTreeMap<String, BTreeSet<String>>, module: &'a str) -> Vec<&'a str> {
    let (mut open, mut seen) = (vec![module], BTreeSet::new());
    while let Some(at) = open.pop() {
        for next in &graph[at] {
            if next == module {
                seen.insert(at);
                return seen.into_iter().collect();
            }
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    Vec::new()
}

/// Not within a folder either. A parent and its children may know each other.
#[test]
fn no_modules_import_each_other_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let name_of = |file: &Path| {
        let name = file.strip_prefix(&root).unwrap().with_extension("");
        name.to_str().unwrap().to_owned()
    };
    let modules: BTreeSet<String> = files.iter().map(|file| name_of(file)).collect();
    let is_family = |one: &str, other: &str| {
        one.starts_with(&format!("{other}/")) || other.starts_with(&format!("{one}/"))
    };
    let mut graph = BTreeMap::new();
    for file in &files {
        let name = name_of(file);
        let module: Vec<&str> = name.split('/').collect();
        let text = fs::read_to_string(file).unwrap();
        let imported = imports(&text, &module).into_iter().filter_map(|path| {
            let prefixes = (1..=path.len()).rev().map(|len| path[..len].join("/"));
            prefixes.into_iter().find(|prefix| modules.contains(prefix))
        });
        let others = imported.filter(|other| *other != name && !is_family(&name, other));
        graph.insert(name.clone(), others.collect::<BTreeSet<_>>());
    }
    for module in &modules {
        let circle = circle(&graph, module);
        assert!(
            circle.is_empty(),
            "{module} is in a circle among {circle:?}"
        );
    }
}

#[test]
fn an_arrow_that_runs_back_is_found() {
    let text = "use crate::flow::{fault::Fault, load::{Brought, LoadError}};";
    let imports = imports(text, &["store", "page"]);
    assert_eq!(imports.len(), 3, "{imports:?}");
    for path in &imports {
        assert!(runs_back(&["store", "page"], path).is_some());
        assert!(runs_back(&["engine"], path).is_none());
    }
    let load = ["flow", "load", "bring_in"].map(str::to_owned);
    let fault = ["flow", "fault", "serve"].map(str::to_owned);
    assert!(runs_back(&["flow", "fault"], &load).is_none());
    assert!(runs_back(&["flow", "load"], &fault).is_some());
}

/// A newcomer is sent to files that are there.
#[test]
fn every_file_that_the_architecture_names_exists() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(crates.join("../ARCHITECTURE.md")).unwrap();
    let named = text.split('`').skip(1).step_by(2);
    let files = named.filter(|name| name.ends_with(".rs") || name.contains("/src/"));
    let mut missing = Vec::new();
    let mut nr = 0;
    for file in files {
        nr += 1;
        let inside = Path::new("uzswap-core/src").join(file);
        if !crates.join(file).exists() && !crates.join(inside).exists() {
            missing.push(file);
        }
    }
    assert!(nr > 20, "the test reads nothing");
    assert!(missing.is_empty(), "{missing:?}");
}
