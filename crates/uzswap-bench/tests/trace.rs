//! A trace is written line by line, read again and drawn; a file of another format, or cut short,
//! is refused with one line.

mod fixtures;

use std::fs;
use std::path::Path;

use fixtures::{sample, start_trace};
use uzswap_bench::report;
use uzswap_bench::trace::{End, Trace};
use uzswap_corpus::{Refused, Scratch};

fn write(path: &Path, samples: u32, end: bool) {
    let mut writer = start_trace(path);
    for tenth in 0..samples {
        writer.sample(sample(tenth)).unwrap();
    }
    if end {
        let end = End {
            exit_status: 3,
            elapsed_s: 10.25,
        };
        writer.end(end).unwrap();
    }
}

fn refusal(path: &Path) -> String {
    let error = report::of_file(path).unwrap_err();
    let line = error.downcast::<Refused>().unwrap().0;
    assert!(!line.contains('\n'), "{line}");
    line
}

#[test]
fn a_trace_is_read_and_drawn() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.path().join("t.jsonl");
    write(&path, 100, true);
    let trace = Trace::parse(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(trace.samples, (0..100).map(sample).collect::<Vec<_>>());
    let page = report::of_file(&path).unwrap();
    assert_eq!(page.matches("<polyline").count(), 4 + 4 + 2 + 4);
    for part in [
        "MiB",
        "faults/s",
        "pages/s",
        "seconds",
        "after 10.2 s with exit status 3",
        "Compressed by pz:1, in folios of 64 KiB",
        "uzswap run --trace 't&lt;1&gt;' -- job",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // Nothing went to swap: no chart of it.
    assert!(!page.contains("Swap device") && !page.contains("NaN"));
}

#[test]
fn a_trace_of_a_killed_run_is_drawn() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.path().join("t.jsonl");
    for samples in [0, 1, 40] {
        write(&path, samples, false);
        let page = report::of_file(&path).unwrap();
        assert!(page.contains("It has no end"), "{samples} samples");
        assert_eq!(page.contains("No sample was taken"), samples == 0);
        assert!(!page.contains("NaN") && !page.contains("inf,"));
    }
}

#[test]
fn rates_are_differences_of_counters() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.path().join("t.jsonl");
    write(&path, 5000, true);
    let trace = Trace::parse(&fs::read_to_string(&path).unwrap()).unwrap();
    let section = trace.section();
    let faults = section.charts.iter().find(|c| c.title == "Faults").unwrap();
    let uzswap_bench::section::Kind::Lines { series, .. } = &faults.kind else {
        panic!("not curves: {faults:?}");
    };
    assert!((300..=400).contains(&series[0].points.len()));
    for (_, rate, _) in &series[0].points {
        assert!((rate - 10_000.0).abs() < 1.0, "{rate}");
    }
    let last = series[1].points.last().unwrap();
    assert!(
        (last.0 - 499.9).abs() < 1e-6 && (last.1 - 3000.0).abs() < 1.0,
        "{last:?}"
    );
}

#[test]
fn damaged_files_are_refused_with_one_line() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.path().join("t.jsonl");
    write(&path, 20, true);
    let good = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = good.lines().collect();
    for (text, part) in [
        (
            good[..good.len() - 10].to_owned(),
            "cut short, it ends in line 22",
        ),
        (
            good[..lines[0].len()].to_owned(),
            "cut short, it ends in line 1",
        ),
        (good[..40].to_owned(), "cut short"),
        (
            good.replace("\"version\":1,", "\"version\":9,"),
            "version 9",
        ),
        (
            good.replace("\"refaults\"", "\"rewrites\""),
            "damaged in line 2",
        ),
        (good.clone() + lines[1] + "\n", "follows its end"),
        (
            good.replace("uzswap-trace", "other-trace"),
            "not written by",
        ),
    ] {
        fs::write(&path, text).unwrap();
        let line = refusal(&path);
        assert!(line.contains(part) && line.contains("t.jsonl"), "{line}");
    }
    assert!(refusal(&scratch.path().join("none")).contains("cannot read"));
}
