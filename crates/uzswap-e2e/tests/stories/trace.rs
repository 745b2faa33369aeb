//! `run --trace`: a run's life line by line, kept when uzswap is killed, drawn by `report`.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;
use uzswap_e2e::{Job, MIB, Scratch};

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).expect("every line is JSON"))
        .collect()
}

fn number(line: &Value, key: &str) -> u64 {
    line[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key} in {line}"))
}

#[test]
fn a_run_from_its_first_page_to_its_end() {
    let scratch = Scratch::new();
    let file = scratch.join("life.jsonl");
    let done = Job::new("run")
        .args(["--ram", "32M", "--trace"])
        .arg(&file)
        .arg("--")
        .arg(scratch.compile("pattern/pattern.c"))
        .args(["128", "1", "random", "400000", "1"])
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
        // Counters are read one after the other, while a batch may be under way.
        assert!(in_use.iter().sum::<u64>() <= 40 * MIB, "{sample}");
    }
    let last = &samples[samples.len() - 1];
    assert!(number(last, "refaults") > 10_000, "{last}");
    let page = scratch.join("life.html");
    let _ = Job::new("report")
        .arg(&file)
        .arg("-o")
        .arg(&page)
        .uzswap_itself()
        .expect_success("report");
    let page = fs::read_to_string(page).expect("a page");
    assert!(page.contains("faults/s") && page.contains("with exit status 0"));
}

#[test]
fn what_was_written_stays_when_uzswap_is_killed() {
    let scratch = Scratch::new();
    let file = scratch.join("life.jsonl");
    let mut live = Job::new(scratch.compile("apps/idle.c"))
        .arg("64")
        .ram_mib(32)
        // It is killed before it can write them.
        .option("--stats", scratch.join("none.json"))
        .env("UZSWAP_TRACE", &file)
        .start_managed();
    live.wait_for("idle\n");
    let begin = Instant::now();
    let written = || fs::read_to_string(&file).expect("written");
    // Two more samples show that it goes on while the command is idle.
    let before = written().lines().count();
    while written().lines().count() < before + 2 {
        assert!(begin.elapsed() < Duration::from_secs(60), "no more samples");
        std::thread::sleep(Duration::from_millis(20));
    }
    live.signal(libc::SIGKILL);
    let _ = live.wait();
    let text = written();
    let last = lines(&text).pop().expect("lines");
    let held = number(&last, "resident") + number(&last, "zswapped");
    assert!(held >= 64 * MIB, "{last}");
    let page = scratch.join("life.html");
    let _ = Job::new("report")
        .arg(&file)
        .arg("-o")
        .arg(&page)
        .uzswap_itself()
        .expect_success("report");
    assert!(
        fs::read_to_string(page)
            .expect("a page")
            .contains("It has no end")
    );
    // Half a line is no line.
    fs::write(&file, &text[..text.len() - 5]).expect("cut");
    let cut = Job::new("report").arg(&file).uzswap_itself();
    assert_eq!(cut.status, 2, "{}", cut.stderr);
    assert!(cut.stderr.contains("cut short"), "{}", cut.stderr);
}

#[test]
fn a_file_that_cannot_be_written() {
    let done = Job::new("run")
        .args(["--trace", "/nowhere/t", "--", "true"])
        .uzswap_itself();
    assert_eq!(done.status, 125, "{}", done.stderr);
    assert!(done.stderr.contains("/nowhere/t"), "{}", done.stderr);
    let done = Job::new("run")
        .args(["--trace", "/dev/full", "--", "true"])
        .uzswap_itself();
    assert_eq!(done.status, 125, "{}", done.stderr);
    assert!(
        done.stderr.contains("cannot write the trace"),
        "{}",
        done.stderr
    );
}
