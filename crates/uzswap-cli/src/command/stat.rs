//! `uzswap stat PID`: what uzswap does for a running group, as a table, JSON or Prometheus text.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use uzswap_group::group::{self, Group, Process};

use crate::args::Stat;
use crate::clock::Moment;
use crate::command::{print, prometheus};
use crate::failure::comm;
use crate::group_file::{self, Access};
use crate::report::{Report, Totals, When, nanoseconds, seconds, stored_by, used_slots};
use crate::size::Size;
use crate::swap_devices::{self, swap_devices};

/// How long the table looks at the counters to tell rates.
const SAMPLE: Duration = Duration::from_millis(250);

/// Prints the group of process `options.pid`.
pub fn stat(options: &Stat) -> Result<u8> {
    let group = group_file::of_process(options.pid, Access::Read)?;
    let text = if options.json {
        serde_json::to_string_pretty(&report(&group))? + "\n"
    } else if options.prometheus {
        prometheus::text(&group, &totals(&group), elapsed_s(&group))
    } else {
        table(&group)
    };
    print(&text)
}

/// Whether there is a process of that number; a slot whose process is not known yet says 0.
fn is_alive(pid: u32) -> bool {
    pid != 0 && group::is_alive(pid)
}

/// Those processes of the group that are there.
pub fn live_processes(group: &Group) -> impl Iterator<Item = &Process> {
    used_slots(group).filter(|p| is_alive(p.pid.load(Ordering::Relaxed)))
}

fn totals(group: &Group) -> Totals {
    Totals::of(group, When::Now, is_alive)
}

/// Ticks in a second of what the group counts.
fn hz(group: &Group) -> u64 {
    group.config.tsc_hz.load(Ordering::Relaxed)
}

/// Seconds since the first process that is still there, or whose slot is, started.
fn elapsed_s(group: &Group) -> f64 {
    let first = used_slots(group)
        .map(|p| p.start_tsc.load(Ordering::Relaxed))
        .min();
    first.map_or(0.0, |first| {
        seconds(Moment::now().ticks().saturating_sub(first), hz(group))
    })
}

fn report(group: &Group) -> Report {
    let mut report = Report::of_group(group, &totals(group), hz(group), elapsed_s(group));
    report.add("supervisor", group.supervisor.load(Ordering::Relaxed));
    let live: Vec<Value> = live_processes(group)
        .map(|process| {
            let [resident, pool, metadata, stored] = sizes(process);
            json!({
                "pid": process.pid.load(Ordering::Relaxed),
                "ppid": process.ppid.load(Ordering::Relaxed),
                "name": comm(&process.comm),
                "resident": resident,
                "zswap": pool,
                "metadata": metadata,
                "zswapped": stored,
            })
        })
        .collect();
    report.add("live", live);
    report
}

/// Resident, pool and metadata, whose sum the limit holds for, then what is stored in the pool; bytes.
pub fn sizes(process: &Process) -> [u64; 4] {
    let counters = &process.counters;
    [
        counters.resident.load(Ordering::Relaxed),
        counters.pool_total_size.load(Ordering::Relaxed),
        counters.metadata.load(Ordering::Relaxed),
        counters.stored_pages.load(Ordering::Relaxed) * 4096,
    ]
}

fn table(group: &Group) -> String {
    let before = totals(group);
    let begin = Moment::now();
    std::thread::sleep(SAMPLE);
    let now = totals(group);
    let hz = hz(group);
    let sampled = begin.elapsed();
    let rate = |name| {
        let n = now.get(name).saturating_sub(before.get(name));
        u128::from(n) * 1000 / sampled.as_millis().max(1)
    };

    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<12} {value}");
    };
    line(
        "run",
        format!(
            "pid {}, {} live of {} processes, {:.1} s",
            group.supervisor.load(Ordering::Relaxed),
            live_processes(group).count(),
            group.nr_started.load(Ordering::Relaxed),
            elapsed_s(group),
        ),
    );
    let limit = Size(group.knobs.ram.load(Ordering::Relaxed));
    line("limit", format!("{limit} for each process"));
    let [resident, pool, metadata] =
        ["resident", "pool_total_size", "metadata"].map(|name| now.get(name));
    line(
        "in use",
        format!(
            "{} = resident {} + pool {} + metadata {} (peak of one process {})",
            Size(resident + pool + metadata),
            Size(resident),
            Size(pool),
            Size(metadata),
            Size(now.get("ram_peak")),
        ),
    );
    let stored = now.get("stored_pages") * 4096;
    line(
        "stored",
        format!(
            "{} in a pool of {} (by {}, {:.2}:1 at its peak)",
            Size(stored),
            Size(pool),
            stored_by(group, &now),
            now.compression_ratio(),
        ),
    );
    let swapped = now.get("swapped_pages") * 4096;
    line(
        "would need",
        format!("{} without uzswap", Size(resident + stored + swapped)),
    );
    let took = |percent| nanoseconds(now.faults().percentile(percent), hz);
    line(
        "faults",
        format!(
            "{} ({}/s), refaults {} ({}/s), p50 {} ns, p99 {} ns, {} mode",
            now.get("faults"),
            rate("faults"),
            now.get("refaults"),
            rate("refaults"),
            took(50),
            took(99),
            now.fault_mode(),
        ),
    );
    line(
        "pages out",
        format!(
            "{} ({}/s), in {} ({}/s)",
            now.get("zswpout"),
            rate("zswpout"),
            now.get("zswpin"),
            rate("zswpin"),
        ),
    );
    if let Some(names) = swap_devices::names(group) {
        let swap = &group.config.swap;
        let size = |slots| Size(slots * 4096);
        line(
            "swap",
            format!(
                "{} of {} in use (peak {}), pages out {} ({}/s), in {} ({}/s), {names}",
                size(swap.used()),
                size(swap.nr_slots()),
                size(swap.peak.load(Ordering::Relaxed)),
                now.get("pswpout"),
                rate("pswpout"),
                now.get("pswpin"),
                rate("pswpin"),
            ),
        );
        let devices = swap_devices(group);
        for device in devices.iter().filter(|_| devices.len() > 1) {
            line("", device.to_string());
        }
    }
    line(
        "time",
        format!(
            "{:.2} s in faults, {:.2} s reclaiming",
            seconds(now.get("fault_ticks"), hz),
            seconds(now.get("reclaim_ticks"), hz),
        ),
    );
    if now.get("densified_pages") > 0 {
        line(
            "denser",
            format!(
                "{} of cold data, {} less in the pool, {:.2} s",
                Size(now.get("densified_pages") << 12),
                Size(now.get("densified_bytes")),
                seconds(now.get("densify_ticks"), hz),
            ),
        );
    }
    if now.get("dictionary_bytes") > 0 {
        line(
            "dictionaries",
            format!(
                "{} compressed by them, {} for them",
                Size(now.get("dictionary_pages") << 12),
                Size(now.get("dictionary_bytes")),
            ),
        );
    }
    processes(group, &mut text);
    text
}

fn processes(group: &Group, text: &mut String) {
    let _ = writeln!(
        text,
        "\n{:>9}  {:<15} {:>11} {:>11} {:>11} {:>11}",
        "PID", "NAME", "IN USE", "RESIDENT", "POOL", "STORED"
    );
    for process in live_processes(group) {
        let [resident, pool, metadata, stored] = sizes(process);
        let _ = writeln!(
            text,
            "{:>9}  {:<15} {:>11} {:>11} {:>11} {:>11}",
            process.pid.load(Ordering::Relaxed),
            comm(&process.comm),
            Size(resident + pool + metadata),
            Size(resident),
            Size(pool),
            Size(stored),
        );
    }
}
