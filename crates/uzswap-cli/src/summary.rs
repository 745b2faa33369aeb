//! *What*: the lines that `uzswap run` prints to stderr after the command has ended.
//!
//! *Locking*: none. *Context*: `uzswap run`.

use std::sync::atomic::Ordering;

use uzswap_group::group::Group;

use crate::group_view::totals::{Totals, stored_by};
use crate::group_view::{PAGE, device};
use crate::outside::Causes;
use crate::size::Size;

/// The summary's lines, without the prefix `uzswap: `.
pub fn lines(group: &Group, totals: &Totals, causes: &Causes, elapsed_s: f64) -> Vec<String> {
    let limit = Size(group.knobs.ram.load(Ordering::Relaxed));
    let processes = match group.nr_started.load(Ordering::Relaxed) {
        0 | 1 => String::new(),
        n => format!(" for {n} processes"),
    };
    let peak = Size(totals.get("ram_peak"));
    let beside = beside(group);
    let mut lines = Vec::new();
    if totals.get("zswpout") == 0 {
        lines.push(format!(
            "peak {peak} (limit {limit}{processes}){beside}: nothing had to be evicted"
        ));
    } else {
        lines.push(format!(
            "peak {peak} instead of {} (limit {limit}{processes}){beside}; cold memory stored {:.2}:1 by {}",
            Size(totals.get("need_peak")),
            totals.compression_ratio(),
            stored_by(group, totals),
        ));
        let took = |permille| duration(totals.fault_ns(permille));
        lines.push(format!(
            "{} faults ({} refaults), half within {}, 99 % within {}; {:.2} s in faults, of {:.2} s \
             ({} mode)",
            totals.get("faults"),
            totals.get("refaults"),
            took(500),
            took(990),
            totals.seconds("fault_ticks"),
            elapsed_s,
            totals.fault_mode(),
        ));
        lines.push(format!(
            "waited {}; {:.2} s reclaimed in background",
            stalls(totals),
            totals.seconds("reclaim_background_ticks"),
        ));
    }
    lines.extend(over_limit(totals, limit));
    lines.extend(swap(group, totals));
    lines.extend(outside(group, causes));
    lines.extend(unmanaged(totals));
    lines
}

/// What the program's threads waited for: `0.50 s for pages, 0.31 s for room, 0.02 s for swap`.
pub fn stalls(totals: &Totals) -> String {
    let kinds = totals.stall_s().map(|(kind, seconds)| {
        let what = match kind {
            "decompress" => "pages",
            "reclaim" => "room",
            other => other,
        };
        format!("{seconds:.2} s for {what}")
    });
    kinds.collect::<Vec<_>>().join(", ")
}

/// That the limit was exceeded, although nobody allowed it.
fn over_limit(totals: &Totals, limit: Size) -> Option<String> {
    let excess = totals.get("ram_peak").saturating_sub(limit.0);
    (excess > 0 && totals.get("over_limit_pages") > 0).then(|| {
        format!(
            "the limit was exceeded by up to {}: other processes held all of it, and no process is \
             ended for that",
            Size(excess)
        )
    })
}

/// How much was outside the account, for the first line.
fn beside(group: &Group) -> String {
    match outside_peak(group) {
        Some(outside) => format!(" and {outside} outside uzswap"),
        // The supervisor itself has some.
        None if group.unmanaged_peak.load(Ordering::Relaxed) == 0 => {
            " and, as /proc cannot be read, nobody knows how much outside uzswap".to_owned()
        }
        None => String::new(),
    }
}

/// The most that was outside the account; none if it is not worth a word.
fn outside_peak(group: &Group) -> Option<Size> {
    const MIN_SHOWN: u64 = 1 << 20;
    let peak = group.unmanaged_peak.load(Ordering::Relaxed);
    (peak >= MIN_SHOWN).then_some(Size(peak))
}

/// What was outside the account at the peak.
pub fn outside(group: &Group, causes: &Causes) -> Option<String> {
    let peak = outside_peak(group)?;
    Some(format!(
        "{peak} outside uzswap at the peak: {}",
        causes.named()
    ))
}

/// How much went to swap, and how many writes failed; nothing if there was none.
fn swap(group: &Group, totals: &Totals) -> Vec<String> {
    let device = device::names(group).unwrap_or_default();
    let written = totals.get("pswpout") * PAGE;
    let peak = group.config.swap.peak.load(Ordering::Relaxed) * PAGE;
    let moved = (written > 0).then(|| {
        format!(
            "swap: {} of memory written to {} of {device}, {} read back",
            Size(written),
            Size(peak),
            Size(totals.get("pswpin") * PAGE),
        )
    });
    let bad = totals.get("swap_write_fail");
    let failed = (bad > 0).then(|| {
        let other = match group.config.swap.devices().count() {
            1 => "",
            _ => " or went to another device",
        };
        format!("swap: {bad} writes to {device} failed: their data stayed in RAM{other}")
    });
    moved.into_iter().chain(failed).collect()
}

/// Address space left to the kernel, each part of a MiB or more with its reason.
fn unmanaged(totals: &Totals) -> Option<String> {
    const MIN_SHOWN: u64 = 1 << 20;
    let parts: Vec<String> = [
        ("unmanaged_fixed", "mapped at fixed addresses"),
        ("unmanaged_stack", "stacks"),
        (
            "unmanaged_special",
            "executable, shared or huge-page mappings",
        ),
    ]
    .into_iter()
    .map(|(name, why)| (totals.get(name), why))
    .filter(|(bytes, _)| *bytes >= MIN_SHOWN)
    .map(|(bytes, why)| format!("{} of {why}", Size(bytes)))
    .collect();
    (!parts.is_empty()).then(|| {
        format!(
            "address space, not memory, that is not managed: {}",
            parts.join(", ")
        )
    })
}

/// Two or three digits: `950 ns`, `4.8 µs`, `12 ms`.
fn duration(ns: u64) -> String {
    let (mut unit, mut value) = (0, ns * 10);
    while unit < 3 && value >= 10_000 {
        unit += 1;
        value /= 1000;
    }
    let unit = ["ns", "µs", "ms", "s"][unit];
    if value >= 100 || value.is_multiple_of(10) {
        format!("{} {unit}", value / 10)
    } else {
        format!("{}.{} {unit}", value / 10, value % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_are_short() {
        assert_eq!(duration(0), "0 ns");
        assert_eq!(duration(950), "950 ns");
        assert_eq!(duration(4_810), "4.8 µs");
        assert_eq!(duration(12_700_000), "12 ms");
        assert_eq!(duration(7_000_000_000), "7 s");
    }
}
