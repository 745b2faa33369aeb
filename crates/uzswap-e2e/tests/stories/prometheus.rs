//! `uzswap stat --prometheus` is valid for a Prometheus server and agrees with `--json`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use uzswap_e2e::{DISK, Job, Scratch, find, skip};
use uzswap_group::counters::{Counters, Kind, OrderCounters, StallCounters, Unit};

/// Name and labels of a sample, in order.
type Key = (String, BTreeMap<String, String>);

/// A parsed exposition. Parsing is strict: what the format does not allow fails the story.
#[derive(Debug, Default)]
struct Exposition {
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<Key, f64>,
}

impl Exposition {
    fn read(text: &str) -> Self {
        let mut all = Exposition::default();
        let mut helped = BTreeSet::new();
        let mut family = String::new();
        assert!(text.ends_with('\n'), "the last line ends, too");
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect(line);
                assert!(help.ends_with('.') && !help.contains('\\'), "{line}");
                assert!(helped.insert(name.to_owned()), "twice: {line}");
                family = name.to_owned();
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect(line);
                assert_eq!(name, family, "TYPE follows HELP: {line}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                let counts = kind == "counter";
                assert_eq!(counts, name.ends_with("_total"), "{line}");
                all.kinds.insert(name.to_owned(), kind.to_owned());
            } else {
                let (name, labels, value) = sample(line);
                let base = ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|end| name.strip_suffix(end));
                let of = match all.kinds[&family].as_str() {
                    "histogram" => base.expect(line),
                    _ => &name,
                };
                assert_eq!(of, family, "samples follow their TYPE: {line}");
                assert!(
                    all.samples.insert((name, labels), value).is_none(),
                    "twice: {line}"
                );
            }
        }
        assert_eq!(helped, all.kinds.keys().cloned().collect());
        all
    }

    /// The only sample of that name.
    fn alone(&self, name: &str) -> f64 {
        let of = |key: &&Key| key.0 == name;
        let mut samples = self.samples.keys().filter(of);
        let key = samples.next().unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(samples.next(), None);
        self.samples[key]
    }

    fn with(&self, name: &str, label: &str, text: &str) -> f64 {
        let of = |key: &&Key| key.0 == name && key.1.get(label).is_some_and(|l| l == text);
        let key = self.samples.keys().find(of);
        self.samples[key.unwrap_or_else(|| panic!("no {name} of {label} {text}"))]
    }
}

/// `name{label="text",...} value`.
fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let (name, rest) = line.split_once('{').expect(line);
    assert!(is_name(name) && name.starts_with("uzswap_"), "{line}");
    let (mut rest, value) = rest.rsplit_once("} ").expect(line);
    let mut labels = BTreeMap::new();
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"").expect(line);
        let (text, after) = after.split_once('"').expect(line);
        assert!(is_name(label) && !text.contains('\\'), "{line}");
        assert!(
            labels.insert(label.to_owned(), text.to_owned()).is_none(),
            "{line}"
        );
        rest = after.strip_prefix(',').unwrap_or(after);
    }
    (name.to_owned(), labels, value.parse().expect(line))
}

/// Metric name of a counter, as docs/stats.md describes.
fn name_of(name: &str, kind: Kind, unit: Unit) -> String {
    let name = match unit {
        Unit::Ticks => name.replace("_ticks", "_seconds"),
        Unit::Bytes if !name.contains("_bytes") => format!("{name}_bytes"),
        _ => name.to_owned(),
    };
    let end = if kind == Kind::Counter { "_total" } else { "" };
    format!("uzswap_{name}{end}")
}

#[test]
fn every_counter_is_a_metric_that_says_what_the_json_says() {
    let scratch = Scratch::new();
    let live = Job::compiled(&scratch, "apps/swapped.c", "hold 48 3")
        .ram_mib(32)
        .option("--swap", DISK)
        // It would go on for a moment.
        .flag("--background-reclaim=off")
        .start_until("ready");
    let text = live
        .uzswap("stat", &["--prometheus"])
        .expect_success("stat")
        .text();
    let json = live.stat();
    let metrics = Exposition::read(&text);
    // The process sleeps: no counter moves between the two.
    for what in Counters::ALL {
        let value = metrics.alone(&name_of(what.name, what.kind, what.unit));
        let key = match what.name {
            "fault_ticks" => "fault_s",
            "reclaim_ticks" => "reclaim_s",
            "reclaim_background_ticks" => "reclaim_background_s",
            "densify_ticks" => "densify_s",
            "swap_ticks" => "swap_s",
            "pool_peak" => "zswap_peak",
            name => name,
        };
        assert_eq!(Some(value), json[key].as_f64(), "{key}");
        let meaning = what.meaning;
        assert!(text.contains(&format!(" {meaning}\n")), "{meaning}");
    }
    for (metric, key) in [
        ("ram_limit_bytes", "ram_limit"),
        ("zswapped_bytes", "zswapped"),
        ("compression_ratio", "compression_ratio"),
        ("swap_device_size_bytes", "swap_total"),
        ("swap_device_used_bytes", "swap_used"),
        ("processes_total", "processes"),
    ] {
        let shown = metrics.alone(&format!("uzswap_{metric}"));
        assert_eq!(json[key].as_f64(), Some(shown), "{key}");
    }
    for what in StallCounters::ALL {
        let shown = metrics.with("uzswap_stall_seconds_total", "kind", what.name);
        let stall = &json["stall_s"][what.name];
        assert_eq!(stall.as_f64(), Some(shown), "{}", what.name);
    }
    for (order, cells) in json["orders"].as_object().expect("orders") {
        for what in OrderCounters::ALL {
            let name = format!("uzswap_folio_{}_total", what.name);
            let value = metrics.with(&name, "order", order);
            assert_eq!(cells[what.name].as_f64(), Some(value), "{order} {name}");
        }
    }
    for moved in [
        "faults_total",
        "zswpout_total",
        "swap_bytes_out_total",
        "fault_seconds_total",
        "resident_bytes",
    ] {
        assert!(metrics.alone(&format!("uzswap_{moved}")) > 0.0, "{moved}");
    }
    assert!(metrics.with("uzswap_folio_zswpout_total", "order", "128kB") > 0.0);
    let device = json["swap_device"].as_str().expect("a device");
    assert!(metrics.with("uzswap_swap_device_used_bytes", "device", device) > 0.0);
    let child = &json["live"][0];
    let pid = child["pid"].to_string();
    let resident = metrics.with("uzswap_process_resident_bytes", "pid", &pid);
    assert_eq!(child["resident"].as_f64(), Some(resident));
    times_rise(&metrics);
    a_client_reads(&text, metrics.kinds.len());
    let _ = live.end_by(libc::SIGUSR1);
}

/// The buckets of the fault times are cumulative, and end with all faults.
fn times_rise(metrics: &Exposition) {
    let name = "uzswap_fault_duration_seconds";
    let buckets = metrics
        .samples
        .iter()
        .filter(|(key, _)| key.0 == format!("{name}_bucket"));
    let mut buckets: Vec<(f64, f64)> = buckets
        .map(|(key, value)| {
            (
                key.1["le"].replace('+', "").parse().expect("a bound"),
                *value,
            )
        })
        .collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert!(buckets.is_sorted_by_key(|(_, count)| *count), "{buckets:?}");
    let count = metrics.alone(&format!("{name}_count"));
    assert_eq!(buckets.last(), Some(&(f64::INFINITY, count)));
    assert!(count > 100.0, "{count}");
    assert!(buckets[0].1 < count, "{buckets:?}");
    let sum = metrics.alone(&format!("{name}_sum"));
    assert_eq!(sum, metrics.alone("uzswap_fault_seconds_total"));
}

/// Prometheus' own client library for Python reads it, and finds as many metrics.
fn a_client_reads(text: &str, metrics: usize) {
    const READ: &str = "
import sys
try: from prometheus_client.parser import text_string_to_metric_families as read
except ImportError: sys.exit(77)
families = list(read(open(sys.argv[1]).read()))
assert all(f.documentation and f.type in ('counter', 'gauge', 'histogram') and f.samples for f in families), families
print(len(families))
";
    let scratch = Scratch::new();
    let file = scratch.join("metrics");
    std::fs::write(&file, text).expect("a file");
    let python = find("python3").expect("python3 is installed");
    let read = Command::new(python)
        .args(["-c", READ])
        .arg(&file)
        .output()
        .expect("python3 starts");
    if read.status.code() == Some(77) {
        return skip("prometheus_client is not installed (package python3-prometheus-client)");
    }
    let said = String::from_utf8_lossy(&read.stdout);
    assert!(
        read.status.success(),
        "{}",
        String::from_utf8_lossy(&read.stderr)
    );
    assert_eq!(said.trim().parse(), Ok(metrics));
}
