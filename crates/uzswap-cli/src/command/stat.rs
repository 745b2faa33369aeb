//! *What*: `uzswap stat GROUP|PID`: shows a running group, or one run of it, as a table, as JSON or
//! as Prometheus text.
//!
//! *Invariants*: reads counters only; no process is signalled or stopped.
//! *Locking*: none. *Context*: one thread.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::print;
use crate::args::Stat;
use crate::chosen::Chosen;
use crate::control;
use crate::group_file::Access;
use crate::group_view::totals::{Totals, When, stored_by};
use crate::group_view::{
    PAGE, Part, Sizes, device, elapsed_s, followed, live_processes, name_of, pid_of, text_of,
    tsc_hz,
};
use crate::prometheus::{self, Format};
use crate::report::Report;
use crate::size::Size;
use crate::summary::stalls;
use crate::thrashing;

/// Time over which the table measures rates.
const SAMPLE: Duration = Duration::from_millis(250);

/// Prints the group, or the run of the process, that is named.
pub fn stat(options: &Stat) -> Result<u8> {
    let chosen = Chosen::open(&options.whom, Access::Read)?;
    let group = chosen.part();
    let text = if options.json {
        serde_json::to_string_pretty(&report(&group))? + "\n"
    } else if options.prometheus {
        prometheus::text(&group, &totals(&group), Format::Text, &[])
    } else {
        let table = Table::sample(&group);
        table.run() + &table.swap() + &table.time() + &table.processes()
    };
    print(&text)
}

fn totals(group: &Part<'_>) -> Totals {
    Totals::of(group, When::Now, tsc_hz(group))
}

fn report(group: &Part<'_>) -> Report {
    let mut report = Report::of_group(group, &totals(group), elapsed_s(group));
    report.add("supervisor", group.supervisor());
    let live: Vec<Value> = live_processes(group)
        .map(|process| {
            let sizes = Sizes::of(process);
            json!({
                "pid": pid_of(process),
                "ppid": process.ppid.load(Ordering::Relaxed),
                "name": name_of(process),
                "resident": sizes.resident,
                "zswap": sizes.pool,
                "metadata": sizes.metadata,
                "zswapped": sizes.stored,
                "unmanaged": sizes.unmanaged,
            })
        })
        .collect();
    report.add("live", live);
    report
}

/// One line of the table.
fn line(name: &str, value: impl std::fmt::Display) -> String {
    format!("{name:<12} {value}\n")
}

/// Memory outside the engines' account, of all processes of the run.
fn unmanaged(group: &Part<'_>) -> String {
    let size = |kind| Size(group.outside(kind));
    let most = group
        .runs()
        .max_by_key(|run| run.outside.most.load(Ordering::Relaxed));
    let (name, bytes) = most.map_or_else(Default::default, |run| {
        let most = run.outside.most.load(Ordering::Relaxed);
        (text_of(&run.outside.most_name), most)
    });
    format!(
        "{} = anonymous {} + shared {} + page tables and kernel stacks {}, most by \"{}\" ({}); \
         peak {}",
        Size(group.unmanaged()),
        size(|kinds| &kinds.anonymous),
        size(|kinds| &kinds.shared),
        size(|kinds| &kinds.tables),
        name,
        Size(bytes),
        Size(group.unmanaged_peak()),
    )
}

/// The table, made from two looks at the counters.
struct Table<'a> {
    group: &'a Part<'a>,
    before: Totals,
    now: Totals,
    /// Time between the two.
    sampled: Duration,
}

impl<'a> Table<'a> {
    fn sample(group: &'a Part<'a>) -> Self {
        let before = totals(group);
        let begin = Instant::now();
        std::thread::sleep(SAMPLE);
        Table {
            group,
            before,
            now: totals(group),
            sampled: begin.elapsed(),
        }
    }

    /// A counter's value and its rate: `812 (40/s)`.
    fn count(&self, name: &str) -> String {
        let now = self.now.get(name);
        let risen = u128::from(now.saturating_sub(self.before.get(name)));
        let rate = risen * 1000 / self.sampled.as_millis().max(1);
        format!("{now} ({rate}/s)")
    }

    fn run(&self) -> String {
        let (group, now) = (self.group, &self.now);
        let [resident, pool, metadata] =
            ["resident", "pool_total_size", "metadata"].map(|name| now.get(name));
        let stored = now.get("stored_pages") * PAGE;
        let swapped = now.get("swapped_pages") * PAGE;
        let run = format!(
            "pid {}, {} live of {} processes, {:.1} s",
            group.supervisor(),
            live_processes(group).count(),
            group.nr_started(),
            elapsed_s(group),
        );
        let limit = Size(group.limit()).to_string();
        let follows = match (followed(group), group.follow.range()) {
            (Some(what), Some((lowest, highest))) => {
                let (lowest, highest) = (Size(lowest), Size(highest));
                format!(", follows the {what} (lowest {lowest}, highest {highest})")
            }
            _ => String::new(),
        };
        let own_limit = match group.knobs.ram_per_process.load(Ordering::Relaxed) {
            0 => String::new(),
            own => format!(", {} for each process", Size(own)),
        };
        let in_use = format!(
            "{} = resident {} + pool {} + metadata {} (peak {})",
            Size(resident + pool + metadata),
            Size(resident),
            Size(pool),
            Size(metadata),
            Size(now.get("ram_peak")),
        );
        let in_pool = format!(
            "{} in a pool of {} (by {}, {:.2}:1 at its peak)",
            Size(stored),
            Size(pool),
            stored_by(group, now),
            now.compression_ratio(),
        );
        let faults = format!(
            "{}, refaults {}, p50 {} ns, p99 {} ns, {} mode",
            self.count("faults"),
            self.count("refaults"),
            now.fault_ns(500),
            now.fault_ns(990),
            now.fault_mode(),
        );
        let pages = format!("{}, in {}", self.count("zswpout"), self.count("zswpin"));
        let needed = Size(resident + stored + swapped);
        let controls = control::in_force(group, group.path());
        let controls = match controls.is_empty() {
            true => String::new(),
            false => line("controls", controls),
        };
        [
            group
                .name()
                .map_or_else(String::new, |name| line("group", name)),
            line("run", run),
            line("limit", limit + &follows + &own_limit),
            controls,
            line("in use", in_use),
            line("unmanaged", unmanaged(group)),
            line("stored", in_pool),
            line("would need", format!("{needed} without uzswap")),
            line("faults", faults),
            line("pages out", pages),
        ]
        .concat()
    }

    fn swap(&self) -> String {
        let Some(names) = device::names(self.group) else {
            return String::new();
        };
        let swap = &self.group.config.swap;
        let total = format!(
            "{} of {} in use (peak {}), pages out {}, in {}, {names}",
            Size(swap.used() * PAGE),
            Size(swap.nr_slots() * PAGE),
            Size(swap.peak.load(Ordering::Relaxed) * PAGE),
            self.count("pswpout"),
            self.count("pswpin"),
        );
        let mut text = line("swap", total);
        let devices = device::devices(self.group);
        for device in devices.iter().filter(|_| devices.len() > 1) {
            text += &line("", device);
        }
        text
    }

    fn time(&self) -> String {
        let now = &self.now;
        let mut text = line(
            "time",
            format!(
                "{:.2} s in faults; waited {}; {:.2} s reclaimed in background",
                now.seconds("fault_ticks"),
                stalls(now),
                now.seconds("reclaim_background_ticks"),
            ),
        );
        for thrashing in thrashing::lines(self.group) {
            text += &line("thrashing", thrashing);
        }
        if now.get("densified_pages") > 0 {
            let densified = format!(
                "{} of cold data, {} less in the pool, {:.2} s",
                Size(now.get("densified_pages") * PAGE),
                Size(now.get("densified_bytes")),
                now.seconds("densify_ticks"),
            );
            text += &line("denser", densified);
        }
        text
    }

    fn processes(&self) -> String {
        let mut text = format!(
            "\n{:>9}  {:<15} {:>11} {:>11} {:>11} {:>11} {:>11}\n",
            "PID", "NAME", "IN USE", "RESIDENT", "POOL", "STORED", "UNMANAGED"
        );
        for process in live_processes(self.group) {
            let sizes = Sizes::of(process);
            let _ = writeln!(
                text,
                "{:>9}  {:<15} {:>11} {:>11} {:>11} {:>11} {:>11}",
                pid_of(process),
                name_of(process),
                Size(sizes.in_use()),
                Size(sizes.resident),
                Size(sizes.pool),
                Size(sizes.stored),
                Size(sizes.unmanaged),
            );
        }
        text
    }
}
