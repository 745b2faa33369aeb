//! The advice: the codec and the limit that fit best, what to expect of them, and why it may be
//! wrong.
//!
//! *Invariants*: every known reason for doubt is part of the analysis.
//! *Locking*: none.

mod report;

use anyhow::Result;
use serde::Serialize;
use uzswap_corpus::Refused;

use crate::contents::{CODECS, Contents, Sample};
use crate::cost::{Cost, Machine};
use crate::model::{Expected, Setting, Workload};
use crate::observe::Observed;
use crate::watch::{History, NEARLY_ALL_SHARE, Window};
use crate::{PAGE, whole_mib};
use report::mib;
pub use report::range;

/// Slowdown that advice may cost.
const MAX_SLOWDOWN: f64 = 0.10;
/// Share of a processor that a program counts as using, at least.
const MIN_CPU_SHARE: f64 = 0.02;
/// Limits to show predictions for, as shares of the peak.
const SHOWN_LIMITS: [f64; 6] = [0.9, 0.75, 0.6, 0.5, 0.4, 0.3];
/// Ages of the working set to report, seconds.
const WORKING_SET_AGES_S: [f64; 5] = [0.1, 0.3, 1.0, 3.0, 10.0];
/// Limit below which rough figures dominate: uzswap's own memory, and whole folios.
const MIN_RELIABLE_RAM: u64 = 24 << 20;
/// Share of the peak from which memory counts as near it, and the least share of the time for which
/// a program should have been there.
const NEAR_PEAK_SHARE: f64 = 0.8;
const MIN_TIME_NEAR_PEAK: f64 = 0.3;
/// Limit of a denser codec, at most, as a share of a faster one's, to be preferred.
const MAX_DENSER_SHARE: f64 = 0.95;

/// The analysis of a program.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// Name of the process with the most memory.
    pub name: String,
    /// Its pid.
    pub pid: u32,
    /// Number of processes with enough memory.
    pub processes: usize,
    /// Time of the watch, seconds.
    pub watched_s: f64,
    /// Processor time used then, seconds.
    pub cpu_s: f64,
    /// Peak of anonymous memory of a process, bytes.
    pub peak: u64,
    /// Longest time that a read took, and so that a call that maps or unmaps memory waited,
    /// seconds.
    pub longest_look_s: f64,
    /// Contents of its memory.
    pub contents: Contents,
    /// Cost of a fault here, without the codec.
    pub machine: Machine,
    /// Times in seconds, and the bytes touched within them, on average.
    pub working_set: Vec<(f64, u64)>,
    /// Share of the memory untouched in the longest window, and its length in seconds.
    pub cold: Option<(f64, f64)>,
    /// The advice.
    pub advice: Option<Advice>,
    /// Why it may be wrong.
    pub unsure: Vec<String>,
}

/// The limit and the codec that fit best.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// For `--compressor`.
    pub compressor: String,
    /// For `--ram`, bytes: the smallest limit that should cost at most a tenth.
    pub ram: u64,
    /// The same at best.
    pub ram_low: u64,
    /// The same at worst.
    pub ram_high: u64,
    /// Cost of a page.
    pub cost: Cost,
    /// The prediction for it.
    pub expected: Expected,
    /// Predictions for other limits.
    pub others: Vec<Expected>,
}

impl Analysis {
    /// Analyzes a watch, in which all processes together used `cpu_s` seconds of processor time.
    /// `cost` measures the machine with the contents and their bytes.
    ///
    /// # Errors
    /// If nothing was observed.
    pub fn of(
        observed: &Observed,
        cpu_s: f64,
        cost: impl FnOnce(&Contents, &Sample) -> Machine,
    ) -> Result<Self> {
        let Some((largest, sample)) = observed.histories.first().zip(observed.sample.as_ref())
        else {
            return Err(Refused(
                "it ended before anything could be seen: it has too little memory, or lived too briefly".into(),
            )
            .into());
        };
        let contents = Contents::of(sample)?;
        let machine = cost(&contents, sample);
        let work = Workload {
            histories: observed.histories.iter().collect(),
            cpu_s: cpu_s.max(observed.seconds * MIN_CPU_SHARE).max(0.01),
        };
        let advice = largest
            .has_referenced_bits
            .then(|| choose(&work, &contents, machine))
            .flatten();
        let mut analysis = Self {
            name: largest.name.clone(),
            pid: largest.pid,
            processes: observed.histories.len(),
            watched_s: observed.seconds,
            cpu_s,
            peak: largest.peak * PAGE,
            longest_look_s: observed
                .histories
                .iter()
                .map(|l| l.longest_s)
                .fold(0.0, f64::max),
            machine,
            // If referenced bits cannot be cleared, everything seems touched.
            working_set: if largest.has_referenced_bits {
                working_set(largest)
            } else {
                Vec::new()
            },
            cold: cold(largest).filter(|_| largest.has_referenced_bits),
            advice,
            unsure: Vec::new(),
            contents,
        };
        analysis.unsure = analysis.doubts(largest);
        Ok(analysis)
    }

    fn doubts(&self, largest: &History) -> Vec<String> {
        let mut doubts = Vec::new();
        let mut doubt = |applies: bool, why: &str| {
            if applies {
                doubts.push(why.to_owned());
            }
        };
        // The watch.
        doubt(
            !largest.has_referenced_bits,
            "touched memory cannot be measured: /proc/PID/clear_refs cannot be written here",
        );
        let seconds = largest.seconds();
        let why = format!("it was watched for only {seconds:.1} s");
        doubt(seconds < 2.0, &why);
        let near_peak = share_near_peak(largest);
        let why = format!(
            "it had most of its memory for only {} of the time: how it uses it was hardly seen",
            percent(near_peak)
        );
        doubt(near_peak < MIN_TIME_NEAR_PEAK, &why);
        let guessed = self.advice.as_ref().map_or(0.0, |a| a.expected.guessed);
        let why = format!(
            "for {} of the time it touched less than would be resident: how soon it needs the rest is a guess",
            percent(guessed)
        );
        doubt(guessed > 0.3, &why);
        // The contents.
        let why = format!(
            "{} of its memory is huge pages, which have one referenced bit each; uzswap has none",
            percent(largest.huge)
        );
        doubt(largest.huge > 0.1, &why);
        doubt(
            largest.swapped > 0,
            "part of its memory is in the kernel's swap and was not analyzed",
        );
        doubt(
            self.contents.anon < largest.peak / 10 * 6,
            "its contents were sampled when it had much less memory than at its peak",
        );
        doubt(
            self.contents.disturbed,
            "other work took processors away: times are less exact",
        );
        doubt(
            !self.machine.measured,
            "the cost of a fault could not be measured here: times are another machine's",
        );
        doubt(
            self.cpu_s < self.watched_s * 0.1,
            "it was mostly idle: the slowdown is of its processor time, not of its waits",
        );
        // The advice.
        if let Some(advice) = &self.advice {
            let why = format!(
                "below {}, uzswap's own memory and whole folios count for more than the model assumes",
                mib(MIN_RELIABLE_RAM)
            );
            doubt(advice.ram < MIN_RELIABLE_RAM, &why);
            let (low, high) = (advice.ram_low, advice.ram_high);
            let why = format!(
                "the limit may be anywhere from {} to {}",
                mib(low),
                mib(high)
            );
            doubt(high as f64 > low as f64 * 1.5, &why);
        }
        doubts
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// The advice: the codec that needs the smallest limit.
fn choose(work: &Workload, contents: &Contents, machine: Machine) -> Option<Advice> {
    let mut best: Option<Advice> = None;
    for codec in CODECS {
        let cost = machine.cost(contents, codec)?;
        let setting = Setting {
            stored: contents.stored(codec)?,
            need: contents.need,
            cost,
            min_ram: uzswap_core::min_ram(codec),
        };
        let Some(expected) = work.smallest(MAX_SLOWDOWN, &setting, |e| e.slower) else {
            continue;
        };
        if best
            .as_ref()
            .is_some_and(|best| expected.ram as f64 > best.ram as f64 * MAX_DENSER_SHARE)
        {
            continue;
        }
        let smallest = |of| {
            work.smallest(MAX_SLOWDOWN, &setting, of)
                .map_or(expected.ram, |e| e.ram)
        };
        let shown = SHOWN_LIMITS
            .iter()
            .map(|part| whole_mib(work.peak() as f64 * part));
        best = Some(Advice {
            compressor: codec.to_string(),
            ram: expected.ram,
            ram_low: smallest(|e| e.low),
            ram_high: smallest(|e| e.high),
            cost,
            others: work.along(shown, &setting).collect(),
            expected,
        });
    }
    best
}

/// Windows in which the process had at least half of its peak memory.
fn windows_near_peak(history: &History) -> impl Iterator<Item = &Window> {
    history.windows.iter().filter(|window| {
        let last = window.readings.last();
        last.is_some_and(|last| last.anon * 2 >= history.peak)
    })
}

/// Share of the time in which it had most of its peak memory.
fn share_near_peak(history: &History) -> f64 {
    let (mut grown, mut all) = (0.0, 0.0);
    for (_, anon, seconds) in history.slices() {
        all += seconds;
        if anon as f64 >= history.peak as f64 * NEAR_PEAK_SHARE {
            grown += seconds;
        }
    }
    if all > 0.0 { grown / all } else { 0.0 }
}

/// Bytes touched within each age, on average over the windows that are as long.
fn working_set(history: &History) -> Vec<(f64, u64)> {
    let touched = |age: f64| {
        let all: Vec<u64> = windows_near_peak(history)
            .filter_map(|window| {
                let begin = window.readings.first()?.at_s;
                let older = window.readings.iter().position(|r| r.at_s - begin >= age);
                let Some(older) = older else {
                    // The window is shorter: all was touched sooner, or it says nothing.
                    let last = window.readings.last()?;
                    return (last.touched as f64 >= NEARLY_ALL_SHARE * last.anon as f64)
                        .then_some(last.touched);
                };
                let (a, b) = (
                    window.readings.get(older.checked_sub(1)?)?,
                    window.readings.get(older)?,
                );
                let part = (begin + age - a.at_s) / (b.at_s - a.at_s).max(1e-9);
                Some(between(a.touched, b.touched, part))
            })
            .collect();
        let bytes = all.iter().sum::<u64>() * PAGE;
        bytes.checked_div(all.len() as u64)
    };
    let ages = WORKING_SET_AGES_S
        .iter()
        .map(|&age| Some((age, touched(age)?)));
    ages.flatten().collect()
}

/// The value a share `part` of the way from `a` to `b`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between two counts of pages"
)]
fn between(a: u64, b: u64, part: f64) -> u64 {
    (a as f64 + (b as f64 - a as f64) * part) as u64
}

/// The untouched share in the longest window, and its length.
fn cold(history: &History) -> Option<(f64, f64)> {
    let longest = windows_near_peak(history).filter_map(|window| {
        let (first, last) = (window.readings.first()?, window.readings.last()?);
        let part = 1.0 - last.touched as f64 / last.anon.max(1) as f64;
        Some((part, last.at_s - first.at_s))
    });
    // A shorter window says nothing about cold memory.
    longest
        .filter(|(_, seconds)| *seconds >= 1.0)
        .max_by(|a, b| a.1.total_cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::window;

    fn history(readings: &[(f64, u64, u64)]) -> History {
        History {
            windows: vec![window(readings, false)],
            peak: 1000,
            ..History::default()
        }
    }

    #[test]
    fn working_set_and_cold_part() {
        let history = history(&[
            (1.0, 1000, 0),
            (1.1, 1000, 50),
            (2.0, 1000, 100),
            (3.0, 1000, 200),
        ]);
        assert_eq!(
            working_set(&history),
            [(0.1, 50 * PAGE), (0.3, 61 * PAGE), (1.0, 100 * PAGE)]
        );
        assert_eq!(cold(&history), Some((0.8, 2.0)));
    }

    #[test]
    fn the_time_at_most_of_its_memory() {
        let mut grows = history(&[(1.0, 100, 0), (4.0, 700, 50), (5.0, 900, 60)]);
        grows.peak = 1000;
        assert!((share_near_peak(&grows) - 0.25).abs() < 1e-9);
        assert!((share_near_peak(&history(&[(1.0, 1000, 0), (2.0, 1000, 9)])) - 1.0).abs() < 1e-9);
        assert!(share_near_peak(&history(&[])).abs() < 1e-9, "never watched");
    }
}
