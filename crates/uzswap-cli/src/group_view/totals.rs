//! *What*: the group's counters, summed over its processes, and values derived from them.
//!
//! *Invariants*: counters add up over all processes that ever ran, gauges as [`When`] says, peaks
//! are the highest of any one process, but for `ram_peak` and `need_peak`, which are those of all
//! together. *Locking*: none. *Context*: any command.

use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use uzswap_group::counters::{Counters, Kind, OrderCounters, StallCounters};
use uzswap_group::group::{FaultMode, Group, Process};
use uzswap_group::histogram::{Histogram, NR_BUCKETS};
use uzswap_group::knobs::CODEC_AUTO;

use super::{PAGE, Part, is_alive, pid_of};
use crate::knob::show_codec;

/// Which processes' gauges count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// While the group runs: gauges add up over the live processes.
    Now,
    /// After its end: gauges are the last values of the process that needed most memory.
    AtEnd,
}

/// Sums over a group.
#[derive(Clone, Debug)]
pub struct Totals {
    cells: Vec<u64>,
    /// By folio order.
    orders: Vec<[u64; OrderCounters::ALL.len()]>,
    /// In the order of [`StallCounters::ALL`], ticks.
    stalls: [u64; StallCounters::ALL.len()],
    faults: Faults,
    /// Most data that the pool of the process that needed most memory held, and the RAM for it.
    peak_stored: u64,
    peak_pool: u64,
    /// Most memory that any one process had in use, bytes.
    pub own_peak: u64,
    fault_mode: FaultMode,
    /// Rate of the time stamp counter.
    hz: u64,
}

impl Totals {
    /// Adds up `group`, whose times are counted in ticks of a counter that runs at `hz`.
    pub fn of(group: &Part<'_>, when: When, hz: u64) -> Self {
        Self::sum(group, when, hz, is_alive)
    }

    fn sum(group: &Part<'_>, when: When, hz: u64, is_alive: impl Fn(u32) -> bool) -> Self {
        let slots: Vec<&Process> = group.used_slots().collect();
        let ended: Vec<&Process> = group.ended().collect();
        // A real process wins a tie against the sums of those that ended.
        let all = || ended.iter().chain(&slots).copied();
        let most = all().max_by_key(|p| p.counters.need_peak.load(Relaxed));
        let of_most =
            |cell: fn(&Counters) -> &AtomicU64| most.map_or(0, |p| cell(&p.counters).load(Relaxed));
        let mut totals = Totals {
            cells: vec![0; Counters::ALL.len()],
            orders: Vec::new(),
            stalls: [0; StallCounters::ALL.len()],
            faults: Faults::default(),
            own_peak: 0,
            peak_stored: of_most(|counters| &counters.zswapped_peak),
            peak_pool: of_most(|counters| &counters.pool_peak),
            // All processes have the same mode; `ended` has none.
            fault_mode: most
                .into_iter()
                .chain(slots.iter().copied())
                .map(|p| p.fault_mode.load(Relaxed))
                .find(|&mode| mode != FaultMode::Auto)
                .unwrap_or(FaultMode::Auto),
            hz,
        };
        for process in all() {
            let gauges_count = match when {
                When::AtEnd => most.is_some_and(|most| ptr::eq(process, most)),
                When::Now => {
                    slots.iter().any(|slot| ptr::eq(process, *slot)) && is_alive(pid_of(process))
                }
            };
            totals.add(process, gauges_count);
        }
        totals.own_peak = totals.get("ram_peak");
        if group.nr_started() > 1 {
            let node = group.own_node();
            totals.raise("ram_peak", node.peak() * PAGE);
            totals.raise("need_peak", node.need_peak() * PAGE);
        }
        totals
    }

    /// Raises a peak to that of all processes together.
    fn raise(&mut self, name: &str, bytes: u64) {
        if let Some(at) = Counters::ALL.iter().position(|known| known.name == name) {
            self.cells[at] = self.cells[at].max(bytes);
        }
    }

    fn add(&mut self, process: &Process, gauges_count: bool) {
        let cells = process.counters.cells();
        for ((sum, cell), what) in self.cells.iter_mut().zip(cells).zip(Counters::ALL) {
            let value = cell.load(Relaxed);
            match what.kind {
                Kind::Counter => *sum += value,
                Kind::Peak => *sum = value.max(*sum),
                Kind::Gauge if gauges_count => *sum += value,
                Kind::Gauge => {}
            }
        }
        self.orders
            .resize(process.orders.len(), [0; OrderCounters::ALL.len()]);
        for (sums, order) in self.orders.iter_mut().zip(&process.orders) {
            for (sum, cell) in sums.iter_mut().zip(order.cells()) {
                *sum += cell.load(Relaxed);
            }
        }
        for (sum, cell) in self.stalls.iter_mut().zip(process.stalls.cells()) {
            *sum += cell.load(Relaxed);
        }
        self.faults.add(&process.fault_ticks);
    }

    /// A counter by its name.
    pub fn get(&self, name: &str) -> u64 {
        Counters::ALL
            .iter()
            .position(|known| known.name == name)
            .map_or(0, |i| self.cells[i])
    }

    /// The sum of a counter of ticks, in seconds.
    pub fn seconds(&self, name: &str) -> f64 {
        seconds(self.get(name), self.hz)
    }

    /// How long the program's threads waited for memory, seconds, by kind.
    pub fn stall_s(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let kinds = StallCounters::ALL.iter().map(|what| what.name);
        kinds.zip(self.stalls.map(|ticks| seconds(ticks, self.hz)))
    }

    /// How long `permille` of the faults took at most, ns, to a quarter octave.
    pub fn fault_ns(&self, permille: u64) -> u64 {
        nanoseconds(self.faults.quantile(permille), self.hz)
    }

    /// The longest fault, ns.
    pub fn max_fault_ns(&self) -> u64 {
        nanoseconds(self.faults.max, self.hz)
    }

    /// How many faults surely took no more than `ns`. The bucket that holds `ns` is left out.
    pub fn faults_within(&self, ns: u32) -> u64 {
        let ticks = u128::from(ns) * u128::from(self.hz) / 1_000_000_000;
        self.faults.within(u64::try_from(ticks).unwrap_or(u64::MAX))
    }

    /// How many faults were timed.
    pub fn nr_faults_timed(&self) -> u64 {
        self.faults.count()
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
            FaultMode::Signal => "signal",
            FaultMode::Thread => "thread",
            FaultMode::Segv => "segv",
            FaultMode::Auto => "none",
        }
    }

    /// The cells of [`OrderCounters`] by folio size, from `4kB` on.
    pub fn orders(&self) -> impl Iterator<Item = (String, &[u64; OrderCounters::ALL.len()])> {
        let orders = self.orders.iter().enumerate();
        orders.map(|(order, cells)| (format!("{}kB", 4 << order), cells))
    }
}

/// Durations of faults, in ticks.
#[derive(Clone, Debug)]
struct Faults {
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
            *sum += bucket.load(Relaxed);
        }
        self.max = self.max.max(from.max.load(Relaxed));
    }

    fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Faults in the buckets that end at `ticks` or before.
    fn within(&self, ticks: u64) -> u64 {
        let ends = (1..).map(Histogram::lower_bound);
        let buckets = self.buckets.iter().zip(ends);
        let whole = buckets.filter(|(_, end)| *end <= ticks);
        whole.map(|(count, _)| count).sum()
    }

    /// Upper end of the bucket that `permille` of the faults lie in or below; 0 without faults.
    fn quantile(&self, permille: u64) -> u64 {
        let rank = (self.count() * permille).div_ceil(1000).max(1);
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

/// The codec as `--compressor` names it.
pub fn compressor(group: &Group) -> String {
    show_codec(group.knobs.compressor.load(Relaxed))
}

/// The codecs that pages were stored with so far; with `auto` those it picked, the denser one
/// without its level, which changes.
pub fn picked(group: &Group, totals: &Totals) -> Vec<String> {
    let knobs = &group.knobs;
    let denser = is_auto(group) && totals.get("zswpout_denser") > 0;
    let denser = knobs.denser_codecs().first().filter(|_| denser);
    let fast = knobs.codec().map(|codec| codec.to_string());
    let denser = denser.map(|codec| codec.id().name().to_owned());
    fast.into_iter().chain(denser).collect()
}

fn is_auto(group: &Group) -> bool {
    group.knobs.compressor.load(Relaxed) == CODEC_AUTO
}

/// The codec; with `auto` what it picked and the share of the denser codec.
pub fn stored_by(group: &Group, totals: &Totals) -> String {
    let picked = picked(group, totals).join(" and ");
    let share = totals.get("zswpout_denser") * 100 / totals.get("zswpout").max(1);
    match is_auto(group) {
        false => picked,
        true if totals.get("zswpout_denser") == 0 => format!("{picked} (auto)"),
        true => format!("{picked} (auto, {share} % the latter)"),
    }
}

/// Rounded to six decimals.
pub fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use uzswap_group::group::Identity;

    /// A zeroed group on the heap: too large for a test's stack.
    pub fn group() -> Box<Group> {
        // SAFETY: Group is atomics only: all zero is a valid value; the layout is Group's own.
        unsafe {
            let layout = std::alloc::Layout::new::<Group>();
            Box::from_raw(std::alloc::alloc_zeroed(layout).cast::<Group>())
        }
    }

    pub fn set(process: &Process, name: &str, value: u64) {
        let index = Counters::ALL
            .iter()
            .position(|known| known.name == name)
            .unwrap();
        process.counters.cells()[index].store(value, Relaxed);
    }

    pub fn start(group: &Group, pid: u32) -> &Process {
        group.claim(
            0,
            Identity {
                pid,
                ..Identity::default()
            },
            |_| true,
        )
    }

    #[test]
    fn counters_add_up_and_peaks_do_not() {
        let group = group();
        for (pid, faults, peak) in [(10, 5, 300), (11, 7, 200)] {
            let process = start(&group, pid);
            set(process, "faults", faults);
            set(process, "ram_peak", peak);
        }
        set(&group.runs[0].ended, "faults", 100);
        set(&group.runs[0].ended, "ram_peak", 250);
        let totals = Totals::sum(&Part::run(&group, 0), When::Now, 1, |_| true);
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
            process.fault_mode.store(FaultMode::Signal, Relaxed);
        }
        let alive = |pid| pid != 12;
        let now = Totals::sum(&Part::run(&group, 0), When::Now, 1, alive);
        assert_eq!(now.get("resident"), 120);
        let end = Totals::of(&Part::run(&group, 0), When::AtEnd, 1);
        assert_eq!(end.get("resident"), 50);
        assert_eq!(end.fault_mode(), "signal");
    }

    #[test]
    fn a_process_that_ended_and_whose_slot_is_reused_still_counts() {
        let group = group();
        set(start(&group, 10), "zswpout", 3);
        // The same pid again: it has called exec.
        set(start(&group, 10), "zswpout", 4);
        let live = group.processes.iter().filter(|p| p.is_live());
        assert_eq!(live.count(), 1);
        assert_eq!(
            Totals::of(&Part::run(&group, 0), When::AtEnd, 1).get("zswpout"),
            7
        );
    }

    #[test]
    fn the_ratio_is_the_one_at_the_peak() {
        let group = group();
        assert_eq!(
            rounded(Totals::of(&Part::run(&group, 0), When::AtEnd, 1).compression_ratio()),
            1.0
        );
        let process = start(&group, 10);
        set(process, "need_peak", 1);
        set(process, "zswapped_peak", 40 * PAGE);
        set(process, "pool_peak", 16 * PAGE);
        let totals = Totals::of(&Part::run(&group, 0), When::AtEnd, 1);
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
        assert_eq!(faults.quantile(500), 0, "without faults");
        faults.add(&histogram);
        for (permille, exact) in [(10, 100_u64), (500, 5000), (900, 9000), (999, 9990)] {
            let estimate = faults.quantile(permille);
            assert!(
                estimate >= exact && estimate <= exact * 5 / 4,
                "{permille} permille: {estimate} for {exact}"
            );
        }
        assert_eq!(faults.quantile(1000), 10_000);
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
        assert!(faults.quantile(990) < 1300, "{}", faults.quantile(990));
        assert_eq!(faults.quantile(1000), 1 << 40);
    }
}
