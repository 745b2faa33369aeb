//! *What*: the lines that `uzswap run` prints to stderr after the command has ended.
//!
//! *Locking*: none. *Context*: `uzswap run`.

use std::sync::atomic::Ordering;

use crate::group_view::totals::{Totals, stored_by};
use crate::group_view::{PAGE, Part, device};
use crate::outside::Causes;
use crate::size::Size;

/// The summary's lines, without the prefix `uzswap: `.
pub fn lines(group: &Part<'_>, totals: &Totals, causes: &Causes, elapsed_s: f64) -> Vec<String> {
    let limit = limit(group);
    let processes = match group.nr_started() {
        0 | 1 => String::new(),
        n => format!(" for {n} processes"),
    };
    let peak = Size(totals.get("ram_peak"));
    let beside = beside(group);
    let mut lines = Vec::new();
    if totals.get("zswpout") == 0 {
        lines.push(format!(
            "peak {peak} ({limit}{processes}){beside}: nothing had to be evicted"
        ));
    } else {
        lines.push(format!(
            "peak {peak} instead of {} ({limit}{processes}){beside}; cold memory stored \
             {:.2}:1 by {}",
            Size(totals.get("need_peak")),
            totals.compression_ratio(),
            stored_by(group, totals),
        ));
        let took = |permille| duration(totals.fault_ns(permille));
        lines.push(format!(
            "{} faults ({} refaults), half within {}, 99 % within {}; {:.2} s in faults, of \
             {:.2} s ({} mode)",
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
    lines.extend(over_limit(group, totals));
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

/// The limit, and where it was while it followed.
fn limit(group: &Part<'_>) -> String {
    let now = Size(group.limit());
    match group.follow.range() {
        Some((lowest, highest)) if lowest < highest => {
            let (lowest, highest) = (Size(lowest), Size(highest));
            format!("limit {now}, auto: {lowest} to {highest}")
        }
        Some(_) => format!("limit {now}, auto"),
        None => format!("limit {now}"),
    }
}

/// That the limit was exceeded, although nobody allowed it. Of one that followed the highest
/// counts: what was above a lower one was there before.
fn over_limit(group: &Part<'_>, totals: &Totals) -> Option<String> {
    /// Less is what measurements differ by.
    const MIN_SHOWN: u64 = 1 << 20;
    let highest = group.follow.range().map_or(0, |(_, highest)| highest);
    let limit = group.limit().max(highest);
    let excess = totals.get("ram_peak").saturating_sub(limit);
    if excess > 0 && totals.get("over_limit_pages") > 0 {
        return Some(format!(
            "the limit was exceeded by up to {}: other processes held all of it, and no process is \
             ended for that",
            Size(excess)
        ));
    }
    let excess = (group.own_node().total_peak() * PAGE).saturating_sub(limit);
    (excess >= MIN_SHOWN && !may_exceed(group)).then(|| {
        // No eviction makes room for what takes more than all of it.
        let until = match group.unmanaged_peak() < limit {
            true => ", until memory was evicted for it",
            false => "",
        };
        format!(
            "with what is outside uzswap the limit was exceeded by up to {}{until}",
            Size(excess)
        )
    })
}

/// Whether whoever does not fit goes on.
fn may_exceed(group: &Part<'_>) -> bool {
    group.config.over_limit_allow.load(Ordering::Relaxed) != 0
}

/// How much was outside the account, for the first line.
fn beside(group: &Part<'_>) -> String {
    match outside_peak(group) {
        Some(outside) => format!(" and {outside} outside uzswap"),
        // The supervisor itself has some.
        None if group.unmanaged_peak() == 0 => {
            " and, as /proc cannot be read, nobody knows how much outside uzswap".to_owned()
        }
        None => String::new(),
    }
}

/// The most that was outside the account; none if it is not worth a word.
fn outside_peak(group: &Part<'_>) -> Option<Size> {
    const MIN_SHOWN: u64 = 1 << 20;
    let peak = group.unmanaged_peak();
    (peak >= MIN_SHOWN).then_some(Size(peak))
}

/// What was outside the account at the peak.
pub fn outside(group: &Part<'_>, causes: &Causes) -> Option<String> {
    let peak = outside_peak(group)?;
    Some(format!(
        "{peak} outside uzswap at the peak: {}",
        causes.named()
    ))
}

/// How much went to swap, and how many writes failed; nothing if there was none.
fn swap(group: &Part<'_>, totals: &Totals) -> Vec<String> {
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
