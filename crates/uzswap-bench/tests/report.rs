//! Results are written, read again and shown; a file of another format is refused with one line.

mod fixtures;

use std::fs;

use fixtures::{codecs, rounds};
use uzswap_bench::compare::{self, Figure, Goal, Outcome, pair};
use uzswap_bench::report;
use uzswap_bench::results::{Results, Suite};
use uzswap_corpus::{Refused, Scratch};

fn usemem() -> compare::Measured {
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
    let ratio = ("uzswap", "kernel-zswap");
    compare::Measured {
        title: "Memory under a limit".into(),
        notes: vec!["1024 MiB of data.".into()],
        sides: [
            ("native", "native"),
            ("kernel-zswap", "kernel zswap, lzo"),
            ("uzswap", "uzswap, lz4"),
        ]
        .map(pair)
        .to_vec(),
        figures: vec![
            Figure::new("random_us", "random", "µs per access").in_chart("Waiting for a page"),
            Figure::new("kbps", "throughput", "KB/s")
                .more_is_better()
                .in_chart("Throughput"),
        ],
        ratios: [ratio, ("uzswap", "kernel-swap")].map(pair).to_vec(),
        goals: vec![
            Goal::new("random_us", Some("1 thread"), ratio, 0.6),
            Goal::new("random_us", Some("2 threads"), ratio, 0.4),
            Goal::new("kbps", None, ratio, 1.5),
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
    let text = fs::read(&path).unwrap();
    assert_eq!(Results::parse(&text).unwrap(), results);
}

#[test]
fn the_page_shows_charts_tables_machine_and_command() {
    let results = results();
    let page = report::page(&results);
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
    let page = report::page(&results);
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
        let error = report::of_file(&path).unwrap_err();
        let line = error.downcast::<Refused>().unwrap().0;
        assert!(line.contains(part) && line.contains("r.json"), "{line}");
        assert!(!line.contains('\n'), "{line}");
    }
    let error = report::of_file(&scratch.path().join("none.json")).unwrap_err();
    assert!(error.to_string().contains("cannot read"));
}
