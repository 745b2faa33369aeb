//! Generated sources and texts for compilers, sort and xz: large, and the same every time.

use std::fmt::Write;

/// A plain sequence of pseudo-random numbers.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn word(&mut self) -> &'static str {
        const WORDS: [&str; 24] = [
            "order", "left", "harbour", "customer", "blue", "seven", "window", "letter", "north",
            "paper", "delayed", "river", "market", "signal", "yellow", "engine", "copper",
            "winter", "garden", "silent", "bridge", "number", "carried", "stone",
        ];
        // As in any text, some words are far more frequent than others.
        let rank = self.below(24) * self.below(24) / 24;
        WORDS[usize::try_from(rank).unwrap_or(0)]
    }
}

/// C functions with loops, switches and tables.
#[must_use]
pub fn c(seed: u64, functions: u32) -> String {
    let mut numbers = Sequence(seed);
    let mut code = String::from("typedef unsigned long size_t;\n");
    for f in 0..functions {
        let _ = writeln!(
            code,
            "static const short table{f}[] = {{{},{},{},{}}};\nint fn{f}_{}(const int *p, size_t n, int x) {{\n  int s = {f};\n  for (size_t i = 0; i < n; i++) switch ((p[i] + x) % 7) {{",
            numbers.below(9999),
            numbers.below(9999),
            numbers.below(9999),
            numbers.below(9999),
            numbers.word()
        );
        for case in 0..7 {
            let _ = writeln!(
                code,
                "    case {case}: s = s * {} + p[i] / {}; if (s > {}) s -= table{f}[i & 3]; break;",
                numbers.below(50) + 2,
                numbers.below(20) + 1,
                numbers.below(100_000)
            );
        }
        code.push_str("  }\n  return s;\n}\n");
    }
    code
}

/// C++ that instantiates many containers and algorithms.
#[must_use]
pub fn cxx() -> String {
    let mut numbers = Sequence(2);
    let mut code = String::from(
        "#include <algorithm>\n#include <functional>\n#include <map>\n#include <memory>\n#include <regex>\n\
         #include <sstream>\n#include <string>\n#include <unordered_map>\n#include <vector>\n",
    );
    for f in 0..400 {
        let (a, b) = (numbers.word(), numbers.below(90));
        let _ = writeln!(
            code,
            "struct {a}{f} {{ int id; std::string name; double v[{}]; bool operator<(const {a}{f} &o) const {{ return name < o.name; }} }};\n\
             double use{f}(std::vector<{a}{f}> &all) {{\n  std::sort(all.begin(), all.end());\n  std::map<std::string, {a}{f}> by;\n\
             std::unordered_map<int, std::shared_ptr<{a}{f}>> ids;\n  for (auto &x : all) {{ by[x.name + \"{a}\"] = x; ids[x.id * {b}] = std::make_shared<{a}{f}>(x); }}\n\
             double sum = 0;\n  for (auto &[k, x] : by) sum += x.v[0] * {b};\n  return sum + ids.size();\n}}",
            numbers.below(8) + 1
        );
    }
    code
}

/// Rust modules with derives, generics and matches.
#[must_use]
pub fn rust() -> String {
    let mut numbers = Sequence(3);
    let mut code = String::from("use std::collections::{BTreeMap, HashMap};\n");
    for m in 0..700 {
        let (a, b) = (numbers.word(), numbers.below(1000));
        let _ = writeln!(
            code,
            "pub mod {a}_{m} {{\n  use super::*;\n  #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]\n\
             pub struct Row {{ pub id: u64, pub name: String, pub tags: Vec<String>, pub parent: Option<Box<Row>> }}\n\
             #[derive(Clone, Debug)]\n  pub enum Event {{ Put(Row), Drop(u64), Rename {{ id: u64, name: String }} }}\n\
             pub fn apply(rows: &mut BTreeMap<u64, Row>, index: &mut HashMap<String, Vec<u64>>, events: &[Event]) -> Result<u64, String> {{\n\
             let mut n = {b};\n    for event in events {{ match event {{\n\
             Event::Put(row) => {{ index.entry(row.name.clone()).or_default().push(row.id); rows.insert(row.id, row.clone()); n += 1; }}\n\
             Event::Drop(id) => {{ rows.remove(id).ok_or_else(|| format!(\"no {a} {{id}}\"))?; n ^= *id; }}\n\
             Event::Rename {{ id, name }} => {{ rows.get_mut(id).ok_or(\"{b}\")?.name = name.to_uppercase(); }} }} }}\n    Ok(n)\n  }}\n}}"
        );
    }
    code
}

/// About `mib` MiB of lines like those of a log.
#[must_use]
pub fn lines(mib: usize) -> String {
    let mut numbers = Sequence(4);
    let mut text = String::with_capacity((mib << 20) + 4096);
    let mut second = 1_700_000_000_u64;
    while text.len() < mib << 20 {
        second += numbers.below(3);
        let _ = write!(
            text,
            "{second} host-{:02} {:08x} {:>5} ms",
            numbers.below(20),
            numbers.below(1 << 31),
            numbers.below(2000)
        );
        for _ in 0..4 + numbers.below(8) {
            text.push(' ');
            text.push_str(numbers.word());
        }
        text.push('\n');
    }
    text
}
