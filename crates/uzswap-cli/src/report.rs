//! What a group's counters say, added up over its processes, under the names of `--stats`.
//!
//! docs/stats.md tells what each key means; the two change together.

use std::sync::atomic::Ordering;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};
use uzswap_group::counters::{Counter, Counters, Histogram, Kind, NR_BUCKETS, OrderCounters, Unit};
use uzswap_group::group::{
    FAILURE_INTERNAL, FAILURE_MAPPINGS, FAILURE_OVER_LIMIT, FAILURE_START, FAULT_MODE_AUTO,
    FAULT_MODE_SEGV, FAULT_MODE_SIGNAL, FAULT_MODE_THREAD, FREE, Group, Process,
};
use uzswap_group::knobs::CODEC_AUTO;

use crate::knob::show_codec;
use crate::swap_devices::{self, swap_devices};

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// Whether the group still runs: what its gauges are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Gauges add up over the live processes.
    Now,
    /// Gauges are those of the process that needed most memory, when it last counted.
    AtEnd,
}

/// Sums over a group.
#[derive(Clone, Debug)]
pub struct Totals {
    cells: Vec<u64>,
    /// By folio order.
    orders: Vec<[u64; OrderCounters::ALL.len()]>,
    faults: Faults,
    /// Most that the pool stored, and the RAM that it took, in the process that needed most.
    peak_stored: u64,
    peak_pool: u64,
    /// Of the process that needed most.
    fault_mode: u32,
}

impl Totals {
    /// Adds up `group`; `is_alive` tells whether a pid still is a process.
    pub fn of(group: &Group, when: When, is_alive: impl Fn(u32) -> bool) -> Self {
        let slots: Vec<&Process> = used_slots(group).collect();
        // Of equals the last one: rather a process than the sum of those that ended.
        let most = [&group.ended]
            .into_iter()
            .chain(slots.iter().copied())
            .max_by_key(|p| p.counters.need_peak.load(Ordering::Relaxed))
            .unwrap_or(&group.ended);
        let mut cells = vec![0_u64; Counters::ALL.len()];
        let mut orders = Vec::new();
        let mut faults = Faults::default();
        for process in slots.iter().copied().chain([&group.ended]) {
            let counts_now = match when {
                When::AtEnd => std::ptr::eq(process, most),
                When::Now => {
                    !std::ptr::eq(process, &raw const group.ended)
                        && is_alive(process.pid.load(Ordering::Relaxed))
                }
            };
            for ((sum, cell), what) in cells
                .iter_mut()
                .zip(process.counters.cells())
                .zip(Counters::ALL)
            {
                let value = cell.load(Ordering::Relaxed);
                match what.kind {
                    Kind::Counter => *sum += value,
                    Kind::Peak => *sum = value.max(*sum),
                    Kind::Gauge if counts_now => *sum += value,
                    Kind::Gauge => {}
                }
            }
            orders.resize(process.orders.len(), [0; OrderCounters::ALL.len()]);
            for (sums, order) in orders.iter_mut().zip(&process.orders) {
                for (sum, cell) in sums.iter_mut().zip(order.cells()) {
                    *sum += cell.load(Ordering::Relaxed);
                }
            }
            faults.add(&process.fault_ticks);
        }
        Totals {
            cells,
            orders,
            faults,
            peak_stored: most.counters.zswapped_peak.load(Ordering::Relaxed),
            peak_pool: most.counters.pool_peak.load(Ordering::Relaxed),
            // Sums of ended processes have no mode; it is the same in all.
            fault_mode: [most]
                .into_iter()
                .chain(slots.iter().copied())
                .map(|p| p.fault_mode.load(Ordering::Relaxed))
                .find(|&mode| mode != FAULT_MODE_AUTO)
                .unwrap_or(FAULT_MODE_AUTO),
        }
    }

    /// A counter by its name.
    pub fn get(&self, name: &str) -> u64 {
        Counters::ALL
            .iter()
            .position(|known| known.name == name)
            .map_or(0, |i| self.cells[i])
    }

    /// Bytes of data for each byte of pool, when the pool held most; 1 if it never held any.
    #[allow(clippy::cast_precision_loss, reason = "a ratio to a few digits")]
    pub fn compression_ratio(&self) -> f64 {
        if self.peak_stored == 0 {
            1.0
        } else {
            // Same-filled pages take no pool memory at all.
            self.peak_stored as f64 / self.peak_pool.max(PAGE) as f64
        }
    }

    /// How faults were served: `signal`, `thread`, or `none` if nothing was managed.
    pub fn fault_mode(&self) -> &'static str {
        match self.fault_mode {
            FAULT_MODE_SIGNAL => "signal",
            FAULT_MODE_THREAD => "thread",
            FAULT_MODE_SEGV => "segv",
            _ => "none",
        }
    }

    /// The cells of [`OrderCounters`] by folio size, from `4kB` on.
    pub fn orders(&self) -> impl Iterator<Item = (String, &[u64; OrderCounters::ALL.len()])> {
        let orders = self.orders.iter().enumerate();
        orders.map(|(order, cells)| (format!("{}kB", 4 << order), cells))
    }

    /// How long the faults took.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }
}

/// Slots that hold or held a process, from the first one on. Later ones are left alone: reading them
/// would bring pages of the shared file into memory.
pub fn used_slots(group: &Group) -> impl Iterator<Item = &Process> {
    group
        .used()
        .iter()
        .filter(|p| p.state.load(Ordering::Acquire) != FREE)
}

/// Durations of faults, in ticks.
#[derive(Clone, Debug)]
pub struct Faults {
    buckets: Vec<u64>,
    max: u64,
}

impl Default for Faults {
    fn default() -> Self {
        Faults {
            buckets: vec![0; NR_BUCKETS],
            max: 0,
        }
    }
}

impl Faults {
    fn add(&mut self, from: &Histogram) {
        for (sum, bucket) in self.buckets.iter_mut().zip(&from.buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
        self.max = self.max.max(from.max.load(Ordering::Relaxed));
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// How many surely took no more than `ticks`: whole buckets, so up to a quarter octave's are left out.
    pub fn within(&self, ticks: u64) -> u64 {
        let ends = (1..).map(Histogram::lower_bound);
        let whole = self
            .buckets
            .iter()
            .zip(ends)
            .filter(|(_, end)| *end <= ticks);
        whole.map(|(count, _)| count).sum()
    }

    /// Ticks that `percent` of the faults did not exceed, read off the buckets' upper ends, which lie
    /// a quarter octave apart; 0 without faults.
    pub fn percentile(&self, percent: u64) -> u64 {
        let rank = (self.count() * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Histogram::lower_bound(index + 1).min(self.max);
            }
        }
        0
    }
}

/// Nanoseconds of `ticks`.
pub fn nanoseconds(ticks: u64, hz: u64) -> u64 {
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(hz.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// Seconds of `ticks`, to the microsecond.
#[allow(
    clippy::cast_precision_loss,
    reason = "microseconds stay exact for 285 years"
)]
pub fn seconds(ticks: u64, hz: u64) -> f64 {
    (nanoseconds(ticks, hz) / 1000) as f64 / 1e6
}

/// Keys and values in the order of docs/stats.md.
#[derive(Debug, Default)]
pub struct Report(Vec<(&'static str, Value)>);

impl Report {
    /// What the group's configuration and counters say. `hz` is the time stamp counter's rate.
    pub fn of_group(group: &Group, totals: &Totals, hz: u64, elapsed_s: f64) -> Self {
        let mut report = Report::default();
        let config = &group.config;
        report.add("version", env!("CARGO_PKG_VERSION"));
        report.add("processes", group.nr_started.load(Ordering::Relaxed));
        report.add("elapsed_s", rounded(elapsed_s));
        report.add("ram_limit", group.knobs.ram.load(Ordering::Relaxed));
        for name in ["ram_peak", "need_peak", "resident", "metadata"] {
            report.add(name, totals.get(name));
        }
        report.add("zswap", totals.get("pool_total_size"));
        report.add("zswapped", totals.get("stored_pages") * PAGE);
        report.add("zswap_peak", totals.get("pool_peak"));
        report.add("zswapped_peak", totals.get("zswapped_peak"));
        report.add("compression_ratio", rounded(totals.compression_ratio()));
        report.add("compressor", compressor(group));
        report.add("compressor_picked", json!(picked(group, totals)));
        report.add("folio", PAGE << config.folio_order.load(Ordering::Relaxed));
        report.add("fault_mode", totals.fault_mode());
        for name in ["faults", "refaults", "reclaim_cancelled"] {
            report.add(name, totals.get(name));
        }
        let ns = |ticks| nanoseconds(ticks, hz);
        report.add(
            "fault_ns",
            json!({
                "p50": ns(totals.faults.percentile(50)),
                "p99": ns(totals.faults.percentile(99)),
                "max": ns(totals.faults.max),
            }),
        );
        report.add("fault_s", seconds(totals.get("fault_ticks"), hz));
        report.add("reclaim_s", seconds(totals.get("reclaim_ticks"), hz));
        report.add("densify_s", seconds(totals.get("densify_ticks"), hz));
        report.add("swap_s", seconds(totals.get("swap_ticks"), hz));
        let swap = &config.swap;
        for (name, slots) in [
            ("swap_total", swap.nr_slots()),
            ("swap_used", swap.used()),
            ("swap_peak", swap.peak.load(Ordering::Relaxed)),
        ] {
            report.add(name, slots * PAGE);
        }
        report.add("swap_device", swap_devices::names(group));
        report.add("swap_devices", json!(swap_devices(group)));
        // The rest under the counters' own names; times were given in seconds, and pool_peak as zswap_peak.
        for Counter { name, unit, .. } in Counters::ALL {
            let told = report.0.iter().any(|(key, _)| key == name);
            if !told && *unit != Unit::Ticks && *name != "pool_peak" {
                report.add(name, totals.get(name));
            }
        }
        let orders = totals.orders().map(|(order, cells)| {
            let cells = OrderCounters::ALL.iter().zip(cells);
            let cells = cells.map(|(what, cell)| (what.name.to_owned(), json!(cell)));
            (order, Value::Object(cells.collect()))
        });
        report.add("orders", Value::Object(orders.collect()));
        report.add("failure", failure(group));
        report
    }

    /// Adds one more key at the end.
    pub fn add(&mut self, key: &'static str, value: impl Into<Value>) {
        self.0.push((key, value.into()));
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// The codec as `--compressor` names it.
pub fn compressor(group: &Group) -> String {
    show_codec(group.knobs.compressor.load(Ordering::Relaxed))
}

/// The codecs that pages are stored with: of `auto` what it picked so far.
fn picked(group: &Group, totals: &Totals) -> Vec<String> {
    let knobs = &group.knobs;
    let denser = is_auto(group) && totals.get("zswpout_denser") > 0;
    let denser = denser.then(|| knobs.denser_codec());
    let codecs = knobs.codec().into_iter().chain(denser);
    codecs.map(|codec| codec.to_string()).collect()
}

fn is_auto(group: &Group) -> bool {
    group.knobs.compressor.load(Ordering::Relaxed) == CODEC_AUTO
}

/// For a person to read: the codec, of `auto` what it picked, and for how much of what was stored.
pub fn stored_by(group: &Group, totals: &Totals) -> String {
    let picked = picked(group, totals).join(" and ");
    let share = totals.get("zswpout_denser") * 100 / totals.get("zswpout").max(1);
    match is_auto(group) {
        false => picked,
        true if totals.get("zswpout_denser") == 0 => format!("{picked} (auto)"),
        true => format!("{picked} (auto, {share} % the latter)"),
    }
}

/// The first process that uzswap had to end, or null.
fn failure(group: &Group) -> Value {
    let failure = &group.failure;
    let reason = match failure.reason.load(Ordering::Acquire) {
        0 => return Value::Null,
        FAILURE_OVER_LIMIT => "over_limit",
        FAILURE_START => "start",
        FAILURE_INTERNAL => "internal",
        FAILURE_MAPPINGS => "mappings",
        _ => "unknown",
    };
    json!({
        "reason": reason,
        "pid": failure.pid.load(Ordering::Relaxed),
        "errno": failure.errno.load(Ordering::Relaxed),
        "step": failure.step.load(Ordering::Relaxed),
        "needed": failure.needed.load(Ordering::Relaxed),
        "limit": failure.limit.load(Ordering::Relaxed),
    })
}

/// To six digits after the point.
pub fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use uzswap_group::group::LIVE;

    /// A zeroed group on the heap: too large for a test's stack.
    fn group() -> Box<Group> {
        // SAFETY: Group is atomics only: all zero is a valid value; the layout is Group's own.
        unsafe {
            let layout = std::alloc::Layout::new::<Group>();
            Box::from_raw(std::alloc::alloc_zeroed(layout).cast::<Group>())
        }
    }

    fn set(process: &Process, name: &str, value: u64) {
        let index = Counters::ALL
            .iter()
            .position(|known| known.name == name)
            .unwrap();
        process.counters.cells()[index].store(value, Ordering::Relaxed);
    }

    fn start(group: &Group, pid: u32) -> &Process {
        group.claim(pid, 1, 0, |_| true)
    }

    #[test]
    fn counters_add_up_and_peaks_do_not() {
        let group = group();
        for (pid, faults, peak) in [(10, 5, 300), (11, 7, 200)] {
            let process = start(&group, pid);
            set(process, "faults", faults);
            set(process, "ram_peak", peak);
        }
        set(&group.ended, "faults", 100);
        set(&group.ended, "ram_peak", 250);
        let totals = Totals::of(&group, When::Now, |_| true);
        assert_eq!(totals.get("faults"), 112);
        assert_eq!(totals.get("ram_peak"), 300);
    }

    #[test]
    fn gauges_are_the_live_processes_now_and_the_largest_process_at_the_end() {
        let group = group();
        for (pid, resident, need) in [(10, 50, 900), (11, 70, 100), (12, 1, 2)] {
            let process = start(&group, pid);
            set(process, "resident", resident);
            set(process, "need_peak", need);
            process
                .fault_mode
                .store(FAULT_MODE_SIGNAL, Ordering::Relaxed);
        }
        let alive = |pid| pid != 12;
        let now = Totals::of(&group, When::Now, alive);
        assert_eq!(now.get("resident"), 120);
        let end = Totals::of(&group, When::AtEnd, |_| false);
        assert_eq!(end.get("resident"), 50);
        assert_eq!(end.fault_mode(), "signal");
    }

    #[test]
    fn a_process_that_ended_and_whose_slot_is_reused_still_counts() {
        let group = group();
        set(start(&group, 10), "zswpout", 3);
        // The same pid again: it has called exec.
        set(start(&group, 10), "zswpout", 4);
        let live = group
            .processes
            .iter()
            .filter(|p| p.state.load(Ordering::Relaxed) == LIVE);
        assert_eq!(live.count(), 1);
        assert_eq!(Totals::of(&group, When::AtEnd, |_| true).get("zswpout"), 7);
    }

    #[test]
    fn the_ratio_is_the_one_at_the_peak() {
        let group = group();
        assert_eq!(
            rounded(Totals::of(&group, When::AtEnd, |_| true).compression_ratio()),
            1.0
        );
        let process = start(&group, 10);
        set(process, "need_peak", 1);
        set(process, "zswapped_peak", 40 * PAGE);
        set(process, "pool_peak", 16 * PAGE);
        let totals = Totals::of(&group, When::AtEnd, |_| true);
        assert_eq!(rounded(totals.compression_ratio()), 2.5);
    }

    #[test]
    fn percentiles_are_within_a_quarter_octave() {
        let histogram = Histogram {
            buckets: [const { std::sync::atomic::AtomicU64::new(0) }; NR_BUCKETS],
            max: 0.into(),
        };
        for ticks in 1..=10_000 {
            histogram.record(ticks);
        }
        let mut faults = Faults::default();
        assert_eq!(faults.percentile(50), 0, "without faults");
        faults.add(&histogram);
        for (percent, exact) in [(1, 100_u64), (50, 5000), (90, 9000), (99, 9900)] {
            let told = faults.percentile(percent);
            assert!(
                told >= exact && told <= exact * 5 / 4,
                "p{percent}: {told} for {exact}"
            );
        }
        assert_eq!(faults.percentile(100), 10_000);
        assert_eq!(faults.max, 10_000);
    }

    #[test]
    fn one_long_fault_does_not_move_the_median() {
        let histogram = Histogram {
            buckets: [const { std::sync::atomic::AtomicU64::new(0) }; NR_BUCKETS],
            max: 0.into(),
        };
        for _ in 0..99 {
            histogram.record(1000);
        }
        histogram.record(1 << 40);
        let mut faults = Faults::default();
        faults.add(&histogram);
        assert!(faults.percentile(99) < 1300, "{}", faults.percentile(99));
        assert_eq!(faults.percentile(100), 1 << 40);
    }

    #[test]
    fn the_json_has_every_key_of_the_contract() {
        let group = group();
        set(start(&group, 10), "need_peak", 1);
        let codec = uzswap_compress::Codec::Zstd { level: -3 };
        group
            .knobs
            .compressor
            .store(codec.to_bits().into(), Ordering::Relaxed);
        let totals = Totals::of(&group, When::AtEnd, |_| true);
        let report = Report::of_group(&group, &totals, 1_000_000_000, 1.25);
        let json: Value = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        for key in "pool_limit_hit written_back_pages reject_reclaim_fail reject_compress_fail \
                    reject_compress_poor reject_alloc_fail reject_kmemcache_fail decompress_fail \
                    pool_total_size stored_pages stored_incompressible_pages same_filled_pages \
                    zswpin zswpout zswpwb pswpin pswpout zswap zswapped ram_limit ram_peak resident \
                    metadata compression_ratio fault_mode compressor faults refaults \
                    reclaim_cancelled fault_ns swap_total swap_used swap_peak orders elapsed_s"
            .split_whitespace()
        {
            assert!(json.get(key).is_some(), "{key} is missing");
        }
        assert_eq!(json["compressor"], "zstd:-3");
        for order in ["4kB", "64kB", "2048kB"] {
            for key in OrderCounters::ALL.iter().map(|what| what.name) {
                assert_eq!(json["orders"][order][key], 0, "{order} {key}");
            }
        }
        assert_eq!(json["orders"].as_object().unwrap().len(), 10);
        for key in ["p50", "p99", "max"] {
            assert_eq!(json["fault_ns"][key], 0);
        }
        let keys: std::collections::HashSet<_> = report.0.iter().map(|(k, _)| k).collect();
        assert_eq!(keys.len(), report.0.len(), "no key twice");
    }
}
