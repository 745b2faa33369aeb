//! `uzswap stat --prometheus`: the text exposition format, version 0.0.4.
//!
//! *What*: a metric for every entry of the lists in [`uzswap_group::counters`], named and explained as there; beside
//! them what `--json` makes of several, and what each process and the swap device has.
//! *Invariants*: names begin with `uzswap_`; what only rises ends in `_total`; sizes are in bytes and times in seconds
//! and say so; pages and events are counted. All samples of a run carry its supervisor's pid.

use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use uzswap_group::counters::{Counter, Counters, Kind, OrderCounters, Unit};
use uzswap_group::group::Group;

use crate::command::stat::{live_processes, sizes};
use crate::failure::comm;
use crate::report::{PAGE, Totals, compressor, rounded, seconds};
use crate::swap_devices::{SwapDevice, swap_devices};

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";

/// Upper ends of the buckets that fault times are told in, ns.
const BOUNDS: [u32; 19] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
];

/// Every metric of the group.
pub fn text(group: &Group, totals: &Totals, elapsed_s: f64) -> String {
    let mut out = Exposition {
        text: String::new(),
        supervisor: group.supervisor.load(Ordering::Relaxed),
    };
    let hz = group.config.tsc_hz.load(Ordering::Relaxed);
    the_run(&mut out, group, totals, elapsed_s);
    for what in Counters::ALL {
        let value = totals.get(what.name);
        let (name, kind) = (name_of(what), kind_of(what.kind));
        out.family(&name, kind, what.meaning);
        match what.unit {
            Unit::Ticks => out.sample(&name, &[], seconds(value, hz)),
            Unit::Count | Unit::Bytes => out.sample(&name, &[], value),
        }
    }
    orders(&mut out, totals);
    fault_times(&mut out, totals, hz);
    swap(&mut out, group);
    processes(&mut out, group);
    out.text
}

/// Name of a counter's metric, by its unit and kind.
fn name_of(what: &Counter) -> String {
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

fn kind_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => COUNTER,
        Kind::Gauge | Kind::Peak => GAUGE,
    }
}

/// What is not in the list of counters.
fn the_run(out: &mut Exposition, group: &Group, totals: &Totals, elapsed_s: f64) {
    out.family("info", GAUGE, "What runs, in its labels; always 1.");
    let compressor = compressor(group);
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("compressor", &compressor),
        ("fault_mode", totals.fault_mode()),
    ];
    out.sample("info", &labels, 1);
    let started = group.nr_started.load(Ordering::Relaxed);
    let limit = group.knobs.ram.load(Ordering::Relaxed);
    let folio = PAGE << group.config.folio_order.load(Ordering::Relaxed);
    let stored = totals.get("stored_pages") * PAGE;
    let pool = totals.get("pool_total_size");
    let ratio = rounded(totals.compression_ratio());
    let failed = u32::from(group.failure.reason.load(Ordering::Acquire) != 0);
    for (name, kind, help, value) in [
        (
            "processes_total",
            COUNTER,
            "Processes that were managed.",
            &started as &dyn Display,
        ),
        (
            "elapsed_seconds",
            GAUGE,
            "Wall time since the first process started.",
            &rounded(elapsed_s),
        ),
        (
            "ram_limit_bytes",
            GAUGE,
            "The limit for each process.",
            &limit,
        ),
        (
            "folio_bytes",
            GAUGE,
            "Memory that is reclaimed as one.",
            &folio,
        ),
        (
            "zswap_bytes",
            GAUGE,
            "RAM that the compressed pool takes.",
            &pool,
        ),
        (
            "zswapped_bytes",
            GAUGE,
            "What is stored in the pool, before compression.",
            &stored,
        ),
        (
            "compression_ratio",
            GAUGE,
            "Bytes stored for each byte of pool, at its peak.",
            &ratio,
        ),
        ("failed", GAUGE, "1 if a process had to be ended.", &failed),
    ] {
        out.family(name, kind, help);
        out.sample(name, &[], value);
    }
}

fn orders(out: &mut Exposition, totals: &Totals) {
    for (index, what) in OrderCounters::ALL.iter().enumerate() {
        let name = format!("folio_{}", name_of(what));
        out.family(&name, kind_of(what.kind), what.meaning);
        for (order, cells) in totals.orders() {
            out.sample(&name, &[("order", &order)], cells[index]);
        }
    }
}

fn fault_times(out: &mut Exposition, totals: &Totals, hz: u64) {
    let name = "fault_duration_seconds";
    out.family(
        name,
        "histogram",
        "Time in the fault handler, fault by fault.",
    );
    let bucket = format!("{name}_bucket");
    for ns in BOUNDS {
        let ticks = u128::from(ns) * u128::from(hz) / 1_000_000_000;
        let within = totals
            .faults()
            .within(u64::try_from(ticks).unwrap_or(u64::MAX));
        out.sample(
            &bucket,
            &[("le", &(f64::from(ns) / 1e9).to_string())],
            within,
        );
    }
    let count = totals.faults().count();
    out.sample(&bucket, &[("le", "+Inf")], count);
    out.sample(
        &format!("{name}_sum"),
        &[],
        seconds(totals.get("fault_ticks"), hz),
    );
    out.sample(&format!("{name}_count"), &[], count);
}

/// A number of a swap device.
type CellOf = fn(&SwapDevice) -> u64;

/// The swap devices, one by one.
fn swap(out: &mut Exposition, group: &Group) {
    let devices = swap_devices(group);
    if devices.is_empty() {
        return;
    }
    let cells: [(&str, &str, &str, CellOf); 6] = [
        ("size_bytes", GAUGE, "Size of a swap device.", |d| d.total),
        (
            "used_bytes",
            GAUGE,
            "Of a swap device, clusters that hold anything.",
            |d| d.used,
        ),
        (
            "peak_bytes",
            GAUGE,
            "The most of it that ever was used.",
            |d| d.peak,
        ),
        (
            "bytes_in_total",
            COUNTER,
            "Bytes read from a swap device.",
            |d| d.bytes_in,
        ),
        (
            "bytes_out_total",
            COUNTER,
            "Bytes written to a swap device.",
            |d| d.bytes_out,
        ),
        (
            "write_fail_total",
            COUNTER,
            "Writes to a swap device that failed.",
            |d| d.write_fail,
        ),
    ];
    for (key, kind, help, cell) in cells {
        let name = format!("swap_device_{key}");
        out.family(&name, kind, help);
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

/// Live processes, one by one.
fn processes(out: &mut Exposition, group: &Group) {
    let live: Vec<_> = live_processes(group)
        .map(|process| {
            let pid = process.pid.load(Ordering::Relaxed).to_string();
            (pid, comm(&process.comm), process)
        })
        .collect();
    for (at, (name, help)) in [
        (
            "process_resident_bytes",
            "Managed memory of a process in RAM as it is.",
        ),
        (
            "process_zswap_bytes",
            "RAM that a process's compressed pool takes.",
        ),
        (
            "process_metadata_bytes",
            "RAM that a process's tables and buffers take.",
        ),
        (
            "process_zswapped_bytes",
            "What a process's pool stores, before compression.",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        out.family(name, GAUGE, help);
        for (pid, comm, process) in &live {
            out.sample(name, &[("pid", pid), ("name", comm)], sizes(process)[at]);
        }
    }
    for (name, help, cell) in [
        (
            "process_faults_total",
            "Page faults served for a process.",
            (|counters| &counters.faults) as fn(&Counters) -> &AtomicU64,
        ),
        (
            "process_refaults_total",
            "Faults of a process on pages that had been evicted.",
            |counters| &counters.refaults,
        ),
    ] {
        out.family(name, COUNTER, help);
        for (pid, comm, process) in &live {
            let value = cell(&process.counters).load(Ordering::Relaxed);
            out.sample(name, &[("pid", pid), ("name", comm)], value);
        }
    }
}

struct Exposition {
    text: String,
    supervisor: u32,
}

impl Exposition {
    /// Begins a metric: all its samples follow.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.text, "# HELP uzswap_{name} {help}");
        let _ = writeln!(self.text, "# TYPE uzswap_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(
            self.text,
            "uzswap_{name}{{supervisor=\"{}\"",
            self.supervisor
        );
        for (label, text) in labels {
            let text = text
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let _ = write!(self.text, ",{label}=\"{text}\"");
        }
        let _ = writeln!(self.text, "}} {value}");
    }
}
