//! *What*: `uzswap stat --prometheus` and `run --metrics`: the text exposition format, version
//! 0.0.4, and OpenMetrics 1.0, which names a counter's family without `_total`. One metric for
//! every counter in [`uzswap_group::counters`], under its name and with its meaning as help; then
//! the values that `--json` derives, each swap device and each live process.
//!
//! *Invariants*: names begin with `uzswap_`; counters end in `_total`; sizes are in bytes and times
//! in seconds, and the name says so. Every sample is labelled with the supervisor's pid and with
//! the name of the group, if it has one, and with what else the caller says.
//! *Locking*: none. *Context*: `uzswap stat`; a thread of the supervisor's.

use std::fmt::{Display, Write as _};
use std::sync::atomic::Ordering;

use uzswap_group::counters::{Counter, Counters, Kind, OrderCounters, Unit};
use uzswap_group::group::{FailureReason, Process};

use crate::group_view::device::{SwapDevice, devices};
use crate::group_view::totals::{Totals, compressor, rounded};
use crate::group_view::{PAGE, Part, Sizes, elapsed_s, followed, live_processes, name_of, pid_of};

/// Upper bounds of the histogram of fault times, ns: 1, 2 and 5 of each decade from 1 µs to 1 s.
fn bounds() -> impl Iterator<Item = u32> {
    let decades = (3..9).map(|digits| 10_u32.pow(digits));
    let bounds = decades.flat_map(|decade| [1, 2, 5].map(|n| n * decade));
    bounds.chain([1_000_000_000])
}

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text, 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// The media type of OpenMetrics.
    pub const OPEN_TYPE: &'static str = "application/openmetrics-text";

    /// The value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Every metric of the group, each sample with `labels`.
pub fn text(
    group: &Part<'_>,
    totals: &Totals,
    format: Format,
    labels: &[(&'static str, String)],
) -> String {
    let mut common = vec![("supervisor", group.supervisor().to_string())];
    common.extend(group.name().map(|name| ("group", name)));
    common.extend_from_slice(labels);
    let mut out = Exposition {
        text: String::new(),
        format,
        common,
    };
    run(&mut out, group, totals);
    for what in Counters::ALL {
        let name = metric_name(what);
        out.family(&name, what.meaning);
        match what.unit {
            Unit::Ticks => out.sample(&name, &[], totals.seconds(what.name)),
            Unit::Count | Unit::Bytes => out.sample(&name, &[], totals.get(what.name)),
        }
    }
    orders(&mut out, totals);
    out.family(
        "stall_seconds_total",
        "Time that the program's threads waited for memory, by what for.",
    );
    for (kind, seconds) in totals.stall_s() {
        out.sample("stall_seconds_total", &[("kind", kind)], seconds);
    }
    fault_times(&mut out, totals);
    swap_devices(&mut out, group);
    processes(&mut out, group);
    if format == Format::OpenMetrics {
        out.text.push_str("# EOF\n");
    }
    out.text
}

/// Name of a counter's metric: the counter's, with unit and kind.
fn metric_name(what: &Counter) -> String {
    let name = match what.unit {
        Unit::Ticks => what.name.replace("_ticks", "_seconds"),
        Unit::Bytes if !what.name.contains("_bytes") => format!("{}_bytes", what.name),
        Unit::Bytes | Unit::Count => what.name.to_owned(),
    };
    match what.kind {
        Kind::Counter => name + "_total",
        Kind::Gauge | Kind::Peak => name,
    }
}

/// Metrics of the run that no counter holds.
fn run(out: &mut Exposition, group: &Part<'_>, totals: &Totals) {
    out.family("info", "What runs, in its labels; always 1.");
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("compressor", &compressor(group)),
        ("fault_mode", totals.fault_mode()),
    ];
    out.sample("info", &labels, 1);
    let started = group.nr_started();
    let limit = group.limit();
    let folio = PAGE << group.config.folio_order.load(Ordering::Relaxed);
    let stored = totals.get("stored_pages") * PAGE;
    let pool = totals.get("pool_total_size");
    let ratio = rounded(totals.compression_ratio());
    let failed = u32::from(group.failure().reason.load(Ordering::Acquire) != FailureReason::None);
    let elapsed = rounded(elapsed_s(group));
    let mut one = |name, help, value: &dyn Display| {
        out.family(name, help);
        out.sample(name, &[], value);
    };
    one("processes_total", "Processes managed so far.", &started);
    one(
        "elapsed_seconds",
        "Wall time since the first process started.",
        &elapsed,
    );
    one(
        "ram_limit_bytes",
        "Limit of all processes together.",
        &limit,
    );
    one(
        "ram_limit_follows",
        "1 while the limit follows what cgroups and machine leave.",
        &u32::from(followed(group).is_some()),
    );
    let (lowest, highest) = group.follow.range().unwrap_or((limit, limit));
    one(
        "ram_limit_lowest_bytes",
        "Lowest limit while it followed.",
        &lowest,
    );
    one(
        "ram_limit_highest_bytes",
        "Highest limit while it followed.",
        &highest,
    );
    one(
        "unmanaged_bytes",
        "Memory outside the account: of all processes of the run, as last measured.",
        &group.unmanaged(),
    );
    one(
        "unmanaged_peak_bytes",
        "Highest unmanaged memory.",
        &group.unmanaged_peak(),
    );
    one("folio_bytes", "Folio size.", &folio);
    one("zswap_bytes", "RAM of the compressed pool.", &pool);
    one(
        "zswapped_bytes",
        "Data in the pool, before compression.",
        &stored,
    );
    one(
        "compression_ratio",
        "Data per byte of pool, at the pool's peak.",
        &ratio,
    );
    let thrashes = live_processes(group).any(|p| p.thrashing.percent.load(Ordering::Relaxed) > 0);
    one(
        "thrashing",
        "1 while a process spends nearly all of its time in page faults.",
        &u32::from(thrashes),
    );
    one("failed", "1 if uzswap ended a process.", &failed);
}

fn orders(out: &mut Exposition, totals: &Totals) {
    for (index, what) in OrderCounters::ALL.iter().enumerate() {
        let name = format!("folio_{}", metric_name(what));
        out.family(&name, what.meaning);
        for (order, cells) in totals.orders() {
            out.sample(&name, &[("order", &order)], cells[index]);
        }
    }
}

fn fault_times(out: &mut Exposition, totals: &Totals) {
    let name = "fault_duration_seconds";
    out.family(name, "Time spent handling a page fault.");
    let bucket = format!("{name}_bucket");
    for ns in bounds() {
        let bound = (f64::from(ns) / 1e9).to_string();
        out.sample(&bucket, &[("le", &bound)], totals.faults_within(ns));
    }
    let count = totals.nr_faults_timed();
    out.sample(&bucket, &[("le", "+Inf")], count);
    out.sample(&format!("{name}_sum"), &[], totals.seconds("fault_ticks"));
    out.sample(&format!("{name}_count"), &[], count);
}

fn swap_devices(out: &mut Exposition, group: &Part<'_>) {
    type CellOf = fn(&SwapDevice) -> u64;
    let cells: [(&str, &str, CellOf); 6] = [
        ("size_bytes", "Size of a swap device.", |d| d.total),
        ("used_bytes", "Swap in use, in whole clusters.", |d| d.used),
        ("peak_bytes", "Most swap ever in use.", |d| d.peak),
        ("bytes_in_total", "Bytes read from a swap device.", |d| {
            d.bytes_in
        }),
        ("bytes_out_total", "Bytes written to a swap device.", |d| {
            d.bytes_out
        }),
        ("write_fail_total", "Failed writes to a swap device.", |d| {
            d.write_fail
        }),
    ];
    let devices = devices(group);
    for (key, help, cell) in cells.iter().filter(|_| !devices.is_empty()) {
        let name = format!("swap_device_{key}");
        out.family(&name, help);
        for (number, device) in devices.iter().enumerate() {
            let (number, priority) = (number.to_string(), device.priority.to_string());
            let labels = [
                ("number", number.as_str()),
                ("device", &device.name),
                ("priority", &priority),
            ];
            out.sample(&name, &labels, cell(device));
        }
    }
}

fn processes(out: &mut Exposition, group: &Part<'_>) {
    type ValueOf = fn(&Process) -> u64;
    let values: [(&str, &str, ValueOf); 7] = [
        (
            "resident_bytes",
            "Managed memory of a process in RAM, uncompressed.",
            |p| Sizes::of(p).resident,
        ),
        ("zswap_bytes", "RAM of a process's compressed pool.", |p| {
            Sizes::of(p).pool
        }),
        (
            "metadata_bytes",
            "RAM of a process's tables and buffers.",
            |p| Sizes::of(p).metadata,
        ),
        (
            "zswapped_bytes",
            "Data in a process's pool, before compression.",
            |p| Sizes::of(p).stored,
        ),
        (
            "unmanaged_bytes",
            "Memory of a process outside its account, as last measured.",
            |p| Sizes::of(p).unmanaged,
        ),
        ("faults_total", "Page faults served for a process.", |p| {
            p.counters.faults.load(Ordering::Relaxed)
        }),
        (
            "refaults_total",
            "Page faults of a process on evicted pages.",
            |p| p.counters.refaults.load(Ordering::Relaxed),
        ),
    ];
    let live: Vec<_> = live_processes(group)
        .map(|process| (pid_of(process).to_string(), name_of(process), process))
        .collect();
    for (key, help, value) in values {
        let metric = format!("process_{key}");
        out.family(&metric, help);
        for (pid, name, process) in &live {
            out.sample(&metric, &[("pid", pid), ("name", name)], value(process));
        }
    }
}

struct Exposition {
    text: String,
    format: Format,
    /// Labels of every sample.
    common: Vec<(&'static str, String)>,
}

impl Exposition {
    /// Begins a metric. Its samples must follow at once.
    fn family(&mut self, name: &str, help: &str) {
        let kind = match name {
            "fault_duration_seconds" => "histogram",
            _ if name.ends_with("_total") => "counter",
            _ => "gauge",
        };
        let name = match self.format {
            Format::Text => name,
            Format::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.text, "# HELP uzswap_{name} {help}");
        let _ = writeln!(self.text, "# TYPE uzswap_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.text, "uzswap_{name}");
        let common = self
            .common
            .iter()
            .map(|(label, text)| (*label, text.as_str()));
        let mut mark = '{';
        for (label, text) in common.chain(labels.iter().copied()) {
            let text = text
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let _ = write!(self.text, "{mark}{label}=\"{text}\"");
            mark = ',';
        }
        let _ = writeln!(self.text, "}} {value}");
    }
}
