//! Results are written, read again and shown; a file of another format is refused with one line.

use std::fs;

use uzswap_bench::compare::{self, Figure, Goal, Outcome};
use uzswap_bench::results::{Results, Suite};
use uzswap_corpus::Refused;
use uzswap_corpus::Scratch;
use uzswap_corpus::codecs::{self, Cell, Program};
use uzswap_corpus::rounds::Round;

fn rounds() -> Vec<Round> {
    [false, true, false]
        .map(|disturbed| Round {
            spin_ratio: if disturbed { 1.9 } else { 1.02 },
            spin_alone_s: 0.2,
            disturbed,
        })
        .to_vec()
}

fn codecs() -> codecs::Measured {
    let cell = |codec: &str, block, packed, us: [f64; 3]| Cell {
        codec: codec.into(),
        block,
        program: "node".into(),
        bytes: 4 << 20,
        compressed: packed - 1000,
        packed,
        compress_us: us.to_vec(),
        decompress_us: us.map(|us| us / 4.0).to_vec(),
    };
    codecs::Measured {
        programs: vec![Program {
            name: "node".into(),
            pages: 1024,
            same_filled: 16,
        }],
        rounds: rounds(),
        cells: vec![
            // The round in the middle was disturbed: what it says does not count.
            cell("kernel lz4", 4096, 1 << 21, [4.0, 99.0, 6.0]),
            cell("zstd:1", 4096, 1 << 20, [10.0, 99.0, 10.0]),
            cell("zstd:1", 65536, (1 << 20) - 4096, [7.0, 99.0, 7.0]),
        ],
    }
}

fn usemem() -> compare::Measured {
    let pair = |of: &str, to: &str| (of.to_owned(), to.to_owned());
    let mut runs = Vec::new();
    for round in 0..3 {
        for job in ["1 thread", "2 threads"] {
            for (side, us) in [("native", 0.05), ("kernel-zswap", 12.0), ("uzswap", 6.0)] {
                let speed = 1000.0 / us;
                let values = [("random_us", us), ("kbps", speed)];
                runs.push(Outcome {
                    round,
                    job: job.into(),
                    side: side.into(),
                    values: values.map(|(key, value)| (key.to_owned(), value)).into(),
                });
            }
        }
    }
    let goal = |figure: &str, job: Option<&str>, bound| Goal {
        figure: figure.into(),
        job: job.map(str::to_owned),
        ratio: pair("uzswap", "kernel-zswap"),
        bound,
    };
    compare::Measured {
        title: "Memory under a limit".into(),
        notes: vec!["1024 MiB of data.".into()],
        sides: vec![
            pair("native", "native"),
            pair("kernel-zswap", "kernel zswap, lzo"),
            pair("uzswap", "uzswap, lz4"),
        ],
        figures: vec![
            Figure::new("random_us", "random", "µs per access").in_chart("Waiting for a page"),
            Figure {
                more_is_better: true,
                ..Figure::new("kbps", "throughput", "KB/s").in_chart("Throughput")
            },
        ],
        ratios: vec![
            pair("uzswap", "kernel-zswap"),
            pair("uzswap", "kernel-swap"),
        ],
        goals: vec![
            goal("random_us", Some("1 thread"), 0.6),
            goal("random_us", Some("2 threads"), 0.4),
            goal("kbps", None, 1.5),
        ],
        rounds: rounds(),
        runs,
    }
}

fn results() -> Results {
    let mut results = Results::new("0.1.0", "uzswap bench all --json 'a <b> & c.json'".into());
    results.suites = vec![Suite::Codecs(codecs()), Suite::Usemem(usemem())];
    results
}

#[test]
fn written_results_can_be_read() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.path().join("r.json");
    let results = results();
    results.write(&path).unwrap();
    assert_eq!(Results::read(&path).unwrap(), results);
}

#[test]
fn the_page_shows_charts_tables_machine_and_command() {
    let results = results();
    let page = uzswap_bench::report::page(&results);
    assert_eq!(page.matches("<svg").count(), 4, "two charts and two");
    assert_eq!(page.matches("<table>").count(), 3);
    // Each chart comes before the table of its suite.
    assert!(page.find("<svg").unwrap() < page.find("<table>").unwrap());
    for part in [
        "µs of processor time for 4 KiB",
        "µs per access, lower is better",
        "KB/s, higher is better",
        "ratio, packed",
        "random, 2 threads",
        "kernel zswap, lzo",
        "1 disturbed by other work",
        "without the 1.5 % that are same-filled",
        "uzswap bench all --json 'a &lt;b&gt; &amp; c.json'",
        "width=device-width",
        "prefers-color-scheme: dark",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.contains(&results.machine.kernel));
    // Self-contained: nothing to load, nothing to run.
    for other in [
        "http",
        "<script",
        "<link rel=\"stylesheet",
        "@import",
        "url(",
    ] {
        assert!(!page.contains(other), "{other}");
    }
    assert!(!page.contains("NaN") && !page.contains("Interrupted"));
}

#[test]
fn tables_hold_medians_of_quiet_rounds_and_ratios() {
    let text = results().suites[0].section().to_string();
    assert!(
        text.contains("| kernel lz4 | 4K | 2.00 | 2.00 | 5.00 | 1.25 | 1.00 | 1.00 |"),
        "{text}"
    );
    assert!(
        text.contains("| zstd:1 | 4K | 4.00 | 4.00 | 10.00 | 2.50 | 2.00 | 2.00 |"),
        "{text}"
    );
    let text = results().suites[1].section().to_string();
    for row in [
        // A side that took no part has neither a column nor a ratio.
        "| figure | job | native | kernel zswap, lzo | uzswap, lz4 | uzswap, lz4 ÷ kernel zswap, lzo |",
        "| random, µs per access | 1 thread | 0.05 | 12.00 | 6.00 | 0.50 (goal ≤ 0.60) |",
        "| random, µs per access | 2 threads | 0.05 | 12.00 | 6.00 | 0.50 (goal ≤ 0.40, missed) |",
        "| throughput, KB/s | 1 thread | 20000 | 83.33 | 166.7 | 2.00 (goal ≥ 1.50) |",
    ] {
        assert!(text.contains(row), "{row} in\n{text}");
    }
}

#[test]
fn how_far_rounds_differ_is_shown() {
    let mut measured = usemem();
    // The rounds that count are the first and the last.
    for (round, us) in [(0, 4.0), (1, 99.0), (2, 8.0)] {
        for run in &mut measured.runs {
            if (run.round, run.side.as_str()) == (round, "uzswap") {
                run.values.insert("random_us".into(), us);
            }
        }
    }
    let text = measured.section().to_string();
    assert!(text.contains("| 6.00 ±33 % | 0.50"), "{text}");
}

#[test]
fn the_page_says_what_was_skipped_and_why() {
    let mut results = results();
    results.skipped = vec!["kernel zswap, lzo: needs root".into()];
    results.complete = false;
    let page = uzswap_bench::report::page(&results);
    assert!(page.contains("Left out: kernel zswap, lzo: needs root"));
    assert!(page.contains("Interrupted"));
}

#[test]
fn damaged_files_are_refused_with_one_line() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.path().join("r.json");
    results().write(&path).unwrap();
    let good = fs::read_to_string(&path).unwrap();
    for (text, part) in [
        (good[..good.len() / 2].to_owned(), "cut short"),
        (
            good.replace("\"version\": 1,", "\"version\": 7,"),
            "version 7",
        ),
        (good.replace("\"packed\"", "\"pucked\""), "damaged"),
        ("{\"a\": 1}".into(), "not written by"),
        ("[]".into(), "not written by"),
        ("what is this".into(), "not written by"),
        (String::new(), "not written by"),
    ] {
        fs::write(&path, text).unwrap();
        let error = Results::read(&path).unwrap_err();
        let line = error.downcast::<Refused>().unwrap().0;
        assert!(line.contains(part) && line.contains("r.json"), "{line}");
        assert!(!line.contains('\n'), "{line}");
    }
    let error = Results::read(&scratch.path().join("none.json")).unwrap_err();
    assert!(error.to_string().contains("cannot read"));
}
