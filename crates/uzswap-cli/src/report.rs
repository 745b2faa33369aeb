//! *What*: `--stats` and `stat --json`: configuration, counters and failure of a group as one JSON
//! object. docs/stats.md tells what each key means and changes together with this file.
//!
//! *Invariants*: no key appears twice; keys keep the order of docs/stats.md.
//! *Locking*: none. *Context*: `uzswap run`, `uzswap stat`.

use std::sync::atomic::Ordering;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};
use uzswap_group::counters::{Counter, Counters, OrderCounters, Unit};
use uzswap_group::group::FailureReason;

use crate::control;
use crate::group_view::device::{self, devices};
use crate::group_view::totals::{Totals, compressor, picked, rounded};
use crate::group_view::{PAGE, Part, followed};

/// Keys and values in the order of docs/stats.md.
#[derive(Debug, Default)]
pub struct Report(Vec<(&'static str, Value)>);

impl Report {
    /// What the group's configuration and counters say.
    pub fn of_group(group: &Part<'_>, totals: &Totals, elapsed_s: f64) -> Self {
        let mut report = Report::default();
        let config = &group.config;
        report.add("version", env!("CARGO_PKG_VERSION"));
        report.add("group", group.name());
        report.add("controls", control::all(group, group.path()));
        report.add("processes", group.nr_started());
        report.add("elapsed_s", rounded(elapsed_s));
        report.add("ram_limit", group.limit());
        report.add("ram_follows", followed(group));
        let range = group.follow.range();
        report.add("ram_limit_lowest", range.map(|(lowest, _)| lowest));
        report.add("ram_limit_highest", range.map(|(_, highest)| highest));
        let own_limit = group.knobs.ram_per_process.load(Ordering::Relaxed);
        report.add(
            "ram_limit_per_process",
            (own_limit != 0).then_some(own_limit),
        );
        report.add("ram_peak_per_process", totals.own_peak);
        report.add("ram_peak", totals.get("ram_peak"));
        report.add("ram_peak_total", group.own_node().total_peak() * PAGE);
        report.add("ram_granted", group.look().last().held.granted * PAGE);
        for name in ["need_peak", "resident", "metadata"] {
            report.add(name, totals.get(name));
        }
        for (name, bytes) in [
            ("unmanaged", group.unmanaged()),
            ("unmanaged_peak", group.unmanaged_peak()),
            (
                "unmanaged_anonymous",
                group.outside(|kinds| &kinds.anonymous),
            ),
            ("unmanaged_shared", group.outside(|kinds| &kinds.shared)),
            ("unmanaged_tables", group.outside(|kinds| &kinds.tables)),
        ] {
            report.add(name, bytes);
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
        report.add(
            "fault_ns",
            json!({
                "p50": totals.fault_ns(500),
                "p99": totals.fault_ns(990),
                "p999": totals.fault_ns(999),
                "max": totals.max_fault_ns(),
            }),
        );
        for (key, counter) in [
            ("fault_s", "fault_ticks"),
            ("reclaim_s", "reclaim_ticks"),
            ("reclaim_background_s", "reclaim_background_ticks"),
            ("densify_s", "densify_ticks"),
            ("swap_s", "swap_ticks"),
        ] {
            report.add(key, totals.seconds(counter));
        }
        report.add(
            "stall_s",
            Value::Object(
                totals
                    .stall_s()
                    .map(|(kind, seconds)| (kind.to_owned(), json!(seconds)))
                    .collect(),
            ),
        );
        report.add("thrashing_s", group.thrashing_s());
        let swap = &config.swap;
        for (name, slots) in [
            ("swap_total", swap.nr_slots()),
            ("swap_used", swap.used()),
            ("swap_peak", swap.peak.load(Ordering::Relaxed)),
        ] {
            report.add(name, slots * PAGE);
        }
        report.add("swap_device", device::names(group));
        report.add("swap_devices", json!(devices(group)));
        // All other counters under their own names; pool_peak is above as zswap_peak.
        for Counter { name, unit, .. } in Counters::ALL {
            let listed = report.0.iter().any(|(key, _)| key == name);
            if !listed && *unit != Unit::Ticks && *name != "pool_peak" {
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

/// The first process that uzswap ended, or null.
fn failure(group: &Part<'_>) -> Value {
    let failure = group.failure();
    let reason = match failure.reason.load(Ordering::Acquire) {
        FailureReason::None => return Value::Null,
        FailureReason::OverLimit => "over_limit",
        FailureReason::Start => "start",
        FailureReason::Internal => "internal",
        FailureReason::Mappings => "mappings",
        FailureReason::ReclaimerKilled => "reclaimer_killed",
        FailureReason::Unmanaged => "unmanaged",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group_view::totals::When;
    use crate::group_view::totals::tests::{group, set, start};

    #[test]
    fn the_json_has_every_key_of_the_contract() {
        let group = group();
        set(start(&group, 10), "need_peak", 1);
        let codec = uzswap_compress::Codec::Zstd { level: -3 };
        group
            .knobs
            .compressor
            .store(codec.to_bits().into(), Ordering::Relaxed);
        let totals = Totals::of(&Part::run(&group, 0), When::AtEnd, 1_000_000_000);
        let report = Report::of_group(&Part::run(&group, 0), &totals, 1.25);
        let json: Value = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        for key in "pool_limit_hit written_back_pages reject_reclaim_fail reject_compress_fail \
                    reject_compress_poor reject_alloc_fail reject_kmemcache_fail decompress_fail \
                    pool_total_size stored_pages stored_incompressible_pages same_filled_pages \
                    zswpin zswpout zswpwb pswpin pswpout zswap zswapped ram_limit ram_follows \
                    ram_limit_lowest ram_limit_highest ram_peak ram_granted \
                    resident metadata unmanaged unmanaged_peak unmanaged_anonymous unmanaged_shared \
                    unmanaged_tables compression_ratio fault_mode compressor faults refaults \
                    reclaim_cancelled fault_ns stall_s thrashing_s swap_total swap_used swap_peak \
                    orders elapsed_s"
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
        for key in ["p50", "p99", "p999", "max"] {
            assert_eq!(json["fault_ns"][key], 0);
        }
        for key in ["decompress", "reclaim", "swap"] {
            assert_eq!(json["stall_s"][key], 0.0);
        }
        let keys: std::collections::HashSet<_> = report.0.iter().map(|(k, _)| k).collect();
        assert_eq!(keys.len(), report.0.len(), "no key twice");
    }
}
