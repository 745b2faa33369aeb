//! `uzswap bench` and `uzswap report` from outside: what they print, write and end with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir =
            std::env::temp_dir().join(format!("uzswap-benches.{}.{name}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn uzswap(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_uzswap"))
        .current_dir(dir)
        .args(args)
        .output()
        .unwrap()
}

/// A corpus of one program: text and numbers.
fn corpus(dir: &Path) {
    let pages: Vec<u8> = (0..4 * 65536_u32)
        .map(|i| {
            if i % 64 < 40 {
                b"every record looks much like the others."[(i % 64) as usize]
            } else {
                (i / 64 * 7919).to_le_bytes()[(i % 3) as usize]
            }
        })
        .collect();
    fs::write(dir.join("records.pages"), pages).unwrap();
}

#[test]
fn codecs_are_measured_on_a_corpus_and_reported() {
    let scratch = Scratch::new("codecs");
    let dir = &scratch.0;
    corpus(dir);
    let args = [
        "bench", "codecs", "--corpus", ".", "--codec", "lz4", "--codec", "zstd:1", "--rounds", "2",
        "--json", "c.json",
    ];
    let done = uzswap(dir, &args);
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{done:?}");
    for part in [
        "| kernel lz4 | 4K |",
        "| lz4 | 16K |",
        "| zstd:1 | 64K |",
        "| records |",
        "Medians of 2 round(s)",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let done = uzswap(dir, &["report", "c.json", "-o", "c.html"]);
    assert!(done.status.success(), "{done:?}");
    let page = fs::read_to_string(dir.join("c.html")).unwrap();
    assert!(page.contains("zstd:1") && page.contains("bench codecs --corpus . --codec lz4"));
}

#[test]
fn what_cannot_be_used_ends_with_one_line_and_status_2() {
    let scratch = Scratch::new("refused");
    let dir = &scratch.0;
    fs::create_dir(dir.join("empty")).unwrap();
    fs::create_dir(dir.join("short")).unwrap();
    fs::write(dir.join("short/x.pages"), [1; 5000]).unwrap();
    fs::write(dir.join("other.json"), "{\"format\": \"something else\"}").unwrap();
    fs::write(
        dir.join("cut.json"),
        "{\"format\": \"uzswap-bench\", \"version\"",
    )
    .unwrap();
    for (args, part) in [
        (&["report", "other.json"][..], "not written by"),
        (&["report", "cut.json"], "cut short"),
        (&["report", "gone.json"], "cannot read"),
        (
            &["bench", "codecs", "--corpus", "gone"],
            "cannot read the corpus",
        ),
        (
            &["bench", "codecs", "--corpus", "empty"],
            "holds no .pages files",
        ),
        (&["bench", "codecs", "--corpus", "short"], "is cut short"),
        (
            &["bench", "usemem", "--peer", "native", "--mib", "1048576"],
            "do not fit",
        ),
    ] {
        let done = uzswap(dir, args);
        let line = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{args:?}: {line}");
        assert!(
            line.starts_with("uzswap: ") && line.contains(part),
            "{args:?}: {line}"
        );
        assert_eq!(line.lines().count(), 1, "{args:?}: {line}");
    }
    assert!(!dir.join("report.html").exists());
}

#[test]
fn the_work_program_is_the_binary_itself() {
    let scratch = Scratch::new("work");
    let done = uzswap(
        &scratch.0,
        &["bench", "work", "--mib", "16", "--threads", "2"],
    );
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{done:?}");
    assert!(
        text.contains("\"threads\":2") && text.contains("us_per_access"),
        "{text}"
    );
}
