//! `run --trace` writes samples of a run line by line; they survive a killed uzswap, and `report`
//! draws them.

use std::fs;
use std::path::Path;

use serde_json::Value;
use uzswap_e2e::{Job, MIB, Scratch, number, wait_until};

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).expect("every line is JSON"))
        .collect()
}

/// The page that `uzswap report` makes of a trace.
fn report(scratch: &Scratch, trace: &Path) -> String {
    let page = scratch.join("trace.html");
    let _ = Job::new("report")
        .arg(trace)
        .arg("-o")
        .arg(&page)
        .uzswap_itself()
        .expect_success("report");
    fs::read_to_string(page).expect("a page")
}

#[test]
fn a_run_from_its_first_page_to_its_end() {
    let scratch = Scratch::new();
    let file = scratch.join("trace.jsonl");
    let done = Job::new("run")
        .words("--ram 32M --trace")
        .arg(&file)
        .arg("--")
        .arg(scratch.compile("pattern/pattern.c"))
        .words("128 1 random 400000 1")
        .uzswap_itself()
        .expect_success("pattern");
    let lines = lines(&fs::read_to_string(&file).expect("written"));
    let (head, rest) = lines.split_first().expect("a head");
    let (end, samples) = rest.split_last().expect("an end");
    assert_eq!(head["format"], "uzswap-trace", "{}", done.stderr);
    assert_eq!(end["end"]["exit_status"], 0);
    assert!(samples.len() >= 2);
    for two in samples.windows(2) {
        for key in ["faults", "refaults", "zswpout", "zswpin"] {
            assert!(number(&two[0], key) <= number(&two[1], key), "{key} fell");
        }
        assert!(two[0]["elapsed_s"].as_f64() < two[1]["elapsed_s"].as_f64());
    }
    for sample in samples {
        assert_eq!(number(sample, "ram_limit"), 32 * MIB);
        let in_use = ["resident", "zswap", "metadata"].map(|key| number(sample, key));
        // Counters are read one by one, possibly in the middle of a batch.
        assert!(in_use.iter().sum::<u64>() <= 40 * MIB, "{sample}");
    }
    let last = &samples[samples.len() - 1];
    assert!(number(last, "refaults") > 10_000, "{last}");
    let page = report(&scratch, &file);
    assert!(page.contains("faults/s") && page.contains("with exit status 0"));
}

#[test]
fn the_trace_survives_a_killed_uzswap() {
    let scratch = Scratch::new();
    let file = scratch.join("trace.jsonl");
    let live = Job::idle(&scratch, 64)
        .ram_mib(32)
        // It is killed before it can write them.
        .option("--stats", scratch.join("none.json"))
        .env("UZSWAP_TRACE", &file)
        .start_until("idle\n");
    let written = || fs::read_to_string(&file).expect("written");
    // It goes on while the command is idle: two more samples.
    let before = written().lines().count();
    wait_until("more samples", || written().lines().count() >= before + 2);
    live.signal(libc::SIGKILL);
    let _ = live.wait();
    let text = written();
    let last = lines(&text).pop().expect("lines");
    let held = number(&last, "resident") + number(&last, "zswapped");
    assert!(held >= 64 * MIB, "{last}");
    assert!(report(&scratch, &file).contains("It has no end"));
    // A line that is cut short is refused.
    fs::write(&file, &text[..text.len() - 5]).expect("cut");
    let cut = Job::new("report").arg(&file).uzswap_itself();
    let _ = cut.expect_refused(2, &["cut short"]);
}

#[test]
fn a_file_that_cannot_be_written() {
    for (file, words) in [
        ("/nowhere/t", "/nowhere/t"),
        ("/dev/full", "cannot write the trace"),
    ] {
        let outcome = Job::new("run")
            .args(["--trace", file, "--", "true"])
            .uzswap_itself();
        assert_eq!(outcome.status, 125, "{}", outcome.stderr);
        outcome.expect_stderr(&[words]);
    }
}
