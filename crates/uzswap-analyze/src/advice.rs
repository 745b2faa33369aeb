//! What it comes to, in words and in figures.
//!
//! *What*: the codec and the limit that fit best, what to expect of them, on what grounds, and why one may be wrong.
//! *Invariants*: whatever makes the estimate doubtful is said beside it.
//! *Locking*: none.

use std::fmt;

use anyhow::Result;
use serde::Serialize;
use uzswap_corpus::Refused;

use crate::contents::{CODECS, Contents, Sample};
use crate::cost::{Cost, Machine};
use crate::model::{Expected, Setting, Work};
use crate::observe::Seen;
use crate::watch::{ALL, Life, Window};
use crate::{MIB, PAGE};

/// Most that a program may become slower by, for the advice.
const SLOWER: f64 = 0.10;
/// A program that uses less of a processor than this is reckoned as if it did use so much.
const IDLE: f64 = 0.02;
/// Limits that are shown, as parts of the peak.
const SHOWN: [f64; 6] = [0.9, 0.75, 0.6, 0.5, 0.4, 0.3];
/// Times that the working set is told for, seconds.
const AGES: [f64; 5] = [0.1, 0.3, 1.0, 3.0, 10.0];
/// Below such a limit, what is reckoned roughly decides: what uzswap takes itself, and folios that come and go as a whole.
const LITTLE: u64 = 24 << 20;
/// Most of the memory; and having had it for less than this part of the time is brief.
const MOST: f64 = 0.8;
const BRIEF: f64 = 0.3;
/// Waiting that is told, seconds.
const WAITED: f64 = 0.05;
/// A denser codec must save so much to be worth more time.
const DENSER: f64 = 0.95;

/// Everything that was found out.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// The process with the most memory.
    pub name: String,
    /// Its number.
    pub pid: u32,
    /// Processes that count.
    pub processes: usize,
    /// Seconds that they were watched.
    pub watched_s: f64,
    /// Processor time that they used then, seconds.
    pub cpu_s: f64,
    /// Most anonymous memory of one process, bytes.
    pub peak: u64,
    /// Longest time that reading took at once, seconds: so long at most a call that maps or unmaps memory had to wait.
    pub longest_look_s: f64,
    /// What is in it.
    pub contents: Contents,
    /// What a fault costs here, without the codec.
    pub machine: Machine,
    /// Seconds, and the bytes that were touched within so many, on average.
    pub working_set: Vec<(f64, u64)>,
    /// Part of the memory that stayed untouched in a window, and how long that was in seconds.
    pub cold: Option<(f64, f64)>,
    /// What to do.
    pub advice: Option<Advice>,
    /// Why that may be wrong.
    pub unsure: Vec<String>,
}

/// The limit and the codec that fit best.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// For `--compressor`.
    pub compressor: String,
    /// For `--ram`, bytes: the smallest under which it should be at most a tenth slower.
    pub ram: u64,
    /// The same if everything goes well.
    pub ram_low: u64,
    /// The same if nothing does.
    pub ram_high: u64,
    /// What a page costs with it.
    pub cost: Cost,
    /// What to expect of it.
    pub expected: Expected,
    /// What to expect of other limits.
    pub others: Vec<Expected>,
}

impl Analysis {
    /// Reckons; `cpu_s` is the processor time of everything, `cost` measures the machine, given contents and their bytes.
    ///
    /// # Errors
    /// If there is nothing to reckon with.
    pub fn of(
        seen: &Seen,
        cpu_s: f64,
        cost: impl FnOnce(&Contents, &Sample) -> Machine,
    ) -> Result<Self> {
        let Some((largest, sample)) = seen.lives.first().zip(seen.sample.as_ref()) else {
            return Err(Refused(
                "it ended before anything could be seen: it has too little memory, or lived too briefly".into(),
            )
            .into());
        };
        let contents = Contents::of(sample)?;
        let machine = cost(&contents, sample);
        let work = Work {
            lives: seen.lives.iter().collect(),
            cpu_s: cpu_s.max(seen.seconds * IDLE).max(0.01),
        };
        let advice = largest
            .marks
            .then(|| choose(&work, &contents, machine))
            .flatten();
        let mut analysis = Self {
            name: largest.name.clone(),
            pid: largest.pid,
            processes: seen.lives.len(),
            watched_s: seen.seconds,
            cpu_s,
            peak: largest.peak * PAGE,
            longest_look_s: seen.lives.iter().map(|l| l.longest_s).fold(0.0, f64::max),
            machine,
            // Where marks cannot be cleared, everything seems touched.
            working_set: if largest.marks {
                working_set(largest)
            } else {
                Vec::new()
            },
            cold: cold(largest).filter(|_| largest.marks),
            advice,
            unsure: Vec::new(),
            contents,
        };
        analysis.unsure = analysis.doubts(largest);
        Ok(analysis)
    }

    fn doubts(&self, largest: &Life) -> Vec<String> {
        let mut doubts = Vec::new();
        let mut doubt = |applies: bool, what: String| {
            if applies {
                doubts.push(what);
            }
        };
        let percent = |part: f64| format!("{:.0} %", part * 100.0);
        doubt(
            !largest.marks,
            "what it touches cannot be told: /proc/PID/clear_refs cannot be written here".into(),
        );
        doubt(
            largest.seconds() < 2.0,
            format!("it could be watched for {:.1} s only", largest.seconds()),
        );
        let grown = part_grown(largest);
        doubt(
            grown < BRIEF,
            format!(
                "it had most of its memory for {} of the time only: how it uses that was hardly seen",
                percent(grown)
            ),
        );
        let guessed = self
            .advice
            .as_ref()
            .map_or(0.0, |advice| advice.expected.guessed);
        doubt(
            guessed > 0.3,
            format!(
                "for {} of the time it touched less than would be resident, and more and more: how soon it needs the rest is a guess",
                percent(guessed)
            ),
        );
        doubt(
            largest.huge > 0.1,
            format!(
                "{} of its memory is huge pages, which are touched as a whole; uzswap has none",
                percent(largest.huge)
            ),
        );
        doubt(
            largest.swapped > 0,
            "part of its memory is on the kernel's swap, and was not looked at".into(),
        );
        doubt(
            self.contents.anon < largest.peak / 10 * 6,
            "the contents were read when it had much less memory than at its peak".into(),
        );
        doubt(
            self.contents.disturbed,
            "other work took processors away: times are less exact".into(),
        );
        doubt(
            !self.machine.measured,
            "what a fault costs could not be measured here: times are another machine's".into(),
        );
        doubt(
            self.cpu_s < self.watched_s * 0.1,
            "it was mostly idle: slower means its processor time, not how long it waits".into(),
        );
        if let Some(Advice {
            ram,
            ram_low,
            ram_high,
            ..
        }) = self.advice
        {
            doubt(
                ram < LITTLE,
                format!(
                    "with less than {} what uzswap takes itself, and that folios come and go as a whole, counts for more than is reckoned",
                    mib(LITTLE)
                ),
            );
            doubt(
                ram_high as f64 > ram_low as f64 * 1.5,
                format!(
                    "the limit may be anywhere from {} to {}",
                    mib(ram_low),
                    mib(ram_high)
                ),
            );
        }
        doubts
    }
}

/// The codec with which the smallest limit does, and what to expect of it.
fn choose(work: &Work, contents: &Contents, machine: Machine) -> Option<Advice> {
    let mut best: Option<Advice> = None;
    for codec in CODECS {
        let cost = machine.cost(contents, codec)?;
        let setting = Setting {
            stored: contents.stored(codec)?,
            need: contents.need,
            cost,
            least: uzswap_core::min_ram(codec),
        };
        let Some(expected) = work.smallest(SLOWER, &setting, |e| e.slower) else {
            continue;
        };
        if best
            .as_ref()
            .is_some_and(|best| expected.ram as f64 > best.ram as f64 * DENSER)
        {
            continue;
        }
        let smallest = |of| {
            work.smallest(SLOWER, &setting, of)
                .map_or(expected.ram, |e| e.ram)
        };
        let shown = SHOWN
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

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, far below 2^64"
)]
fn whole_mib(bytes: f64) -> u64 {
    (bytes as u64).next_multiple_of(1 << 20)
}

/// Windows in which the process had at least half of its most memory.
fn grown(life: &Life) -> impl Iterator<Item = &Window> {
    life.windows.iter().filter(|window| {
        let last = window.readings.last();
        last.is_some_and(|last| last.anon * 2 >= life.peak)
    })
}

/// The part of the time in which it had most of its memory.
fn part_grown(life: &Life) -> f64 {
    let (mut grown, mut all) = (0.0, 0.0);
    for (_, anon, seconds) in life.slices() {
        all += seconds;
        if anon as f64 >= life.peak as f64 * MOST {
            grown += seconds;
        }
    }
    if all > 0.0 { grown / all } else { 0.0 }
}

/// How much is touched within a time, on average over the windows that are so long.
fn working_set(life: &Life) -> Vec<(f64, u64)> {
    let touched = |age: f64| {
        let all: Vec<u64> = grown(life)
            .filter_map(|window| {
                let begin = window.readings.first()?.at_s;
                let older = window.readings.iter().position(|r| r.at_s - begin >= age);
                let Some(older) = older else {
                    // All of it was touched sooner than that, or nobody knows.
                    let last = window.readings.last()?;
                    return (last.touched as f64 >= ALL * last.anon as f64).then_some(last.touched);
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
    let told = AGES.iter().map(|&age| Some((age, touched(age)?)));
    told.flatten().collect()
}

/// The value `part` of the way from `a` to `b`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between two counts of pages"
)]
fn between(a: u64, b: u64, part: f64) -> u64 {
    (a as f64 + (b as f64 - a as f64) * part) as u64
}

/// What stayed untouched in the longest window.
fn cold(life: &Life) -> Option<(f64, f64)> {
    let longest = grown(life).filter_map(|window| {
        let (first, last) = (window.readings.first()?, window.readings.last()?);
        let part = 1.0 - last.touched as f64 / last.anon.max(1) as f64;
        Some((part, last.at_s - first.at_s))
    });
    // A shorter one says nothing about what is cold.
    longest
        .filter(|(_, seconds)| *seconds >= 1.0)
        .max_by(|a, b| a.1.total_cmp(&b.1))
}

/// A size in MiB or GiB.
#[must_use]
pub fn mib(bytes: u64) -> String {
    let mib = bytes as f64 / MIB;
    if mib >= 1024.0 {
        format!("{:.1} GiB", mib / 1024.0)
    } else {
        format!("{mib:.0} MiB")
    }
}

/// From how much to how much slower.
#[must_use]
pub fn range(expected: &Expected) -> String {
    format!("{:.0}-{:.0} %", expected.low * 100.0, expected.high * 100.0)
}

impl fmt::Display for Analysis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |part: f64| format!("{:.1} %", part * 100.0);
        writeln!(
            f,
            "{} (pid {}): {} of anonymous memory at most; watched for {:.1} s, {:.1} s of processor time",
            self.name,
            self.pid,
            mib(self.peak),
            self.watched_s,
            self.cpu_s
        )?;
        if self.processes > 1 {
            writeln!(
                f,
                "{} processes; a limit holds for each of them",
                self.processes
            )?;
        }
        writeln!(
            f,
            "contents: {} zero, {} same-filled with them, {} does not compress ({} looked at, of {})",
            percent(self.contents.zero),
            percent(self.contents.same_filled),
            percent(self.contents.incompressible),
            mib((self.contents.pages as u64) * PAGE),
            mib(self.contents.anon * PAGE),
        )?;
        self.codecs(f)?;
        let set = self.working_set.iter();
        let set: Vec<String> = set
            .map(|(s, bytes)| format!("{} in {s} s", mib(*bytes)))
            .collect();
        if !set.is_empty() {
            writeln!(f, "\ntouched: {}", set.join(", "))?;
        }
        if let Some((part, seconds)) = self.cold {
            writeln!(
                f,
                "cold: {} was not touched in the longest window, {seconds:.1} s",
                percent(part)
            )?;
        }
        if self.longest_look_s > WAITED {
            writeln!(
                f,
                "looking at it made its calls that map or unmap memory wait up to {:.0} ms; nothing else",
                self.longest_look_s * 1e3
            )?;
        }
        self.advise(f)?;
        for doubt in &self.unsure {
            writeln!(f, "unsure: {doubt}")?;
        }
        Ok(())
    }
}

impl Analysis {
    fn codecs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{:<12} {:>5} {:>7} {:>12} {:>12}",
            "CODEC", "BLOCK", "RATIO", "COMPRESS", "DECOMPRESS"
        )?;
        for cell in &self.contents.codecs {
            let us = |rounds: &[f64]| rounds.first().copied().unwrap_or(0.0);
            writeln!(
                f,
                "{:<12} {:>4}K {:>7.2} {:>6.1} µs/4K {:>6.1} µs/4K",
                cell.codec,
                cell.block >> 10,
                cell.bytes as f64 / cell.packed.max(1) as f64,
                us(&cell.compress_us),
                us(&cell.decompress_us),
            )?;
        }
        Ok(())
    }

    fn advise(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(advice) = &self.advice else {
            return writeln!(f, "\n{} resident; no limit can be advised", mib(self.peak));
        };
        writeln!(
            f,
            "\n{:>9}  {:>12}  {:>12}",
            "--ram", "PAGES BACK", "SLOWER"
        )?;
        for expected in &advice.others {
            writeln!(
                f,
                "{:>9}  {:>12.0}  {:>12}",
                mib(expected.ram),
                expected.refaults,
                range(expected)
            )?;
        }
        let Advice {
            compressor,
            ram,
            expected,
            cost,
            ..
        } = advice;
        if *ram as f64 > self.peak as f64 * 0.9 {
            writeln!(
                f,
                "\n{} resident; uzswap would save next to nothing: it uses all of its memory all the time, or it does not compress",
                mib(self.peak)
            )?;
        } else {
            writeln!(
                f,
                "\n{} resident; with --ram {}M --compressor {compressor} expect about {} slower",
                mib(self.peak),
                ram >> 20,
                range(expected),
            )?;
        }
        writeln!(
            f,
            "basis: {:.0} pages back at {:.1} µs and {:.0} out once at {:.1} µs, in {:.1} s of processor time{}",
            expected.refaults,
            cost.in_us + cost.out_us,
            expected.overflow,
            cost.out_us,
            self.cpu_s,
            if self.machine.measured {
                ", as measured here"
            } else {
                ""
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Reading;

    fn life(readings: &[(f64, u64, u64)]) -> Life {
        Life {
            pid: 1,
            name: "job".into(),
            windows: vec![Window {
                readings: readings
                    .iter()
                    .map(|&(at_s, anon, touched)| Reading {
                        at_s,
                        anon,
                        touched,
                    })
                    .collect(),
                early: false,
            }],
            peak: 1000,
            huge: 0.0,
            swapped: 0,
            longest_s: 0.0,
            cpu_s: 1.0,
            marks: true,
        }
    }

    #[test]
    fn working_set_and_cold_part() {
        let life = life(&[
            (1.0, 1000, 0),
            (1.1, 1000, 50),
            (2.0, 1000, 100),
            (3.0, 1000, 200),
        ]);
        assert_eq!(
            working_set(&life),
            [(0.1, 50 * PAGE), (0.3, 61 * PAGE), (1.0, 100 * PAGE)]
        );
        assert_eq!(cold(&life), Some((0.8, 2.0)));
    }

    #[test]
    fn the_time_at_most_of_its_memory() {
        let mut grows = life(&[(1.0, 100, 0), (4.0, 700, 50), (5.0, 900, 60)]);
        grows.peak = 1000;
        assert!((part_grown(&grows) - 0.25).abs() < 1e-9);
        assert!((part_grown(&life(&[(1.0, 1000, 0), (2.0, 1000, 9)])) - 1.0).abs() < 1e-9);
        assert!(part_grown(&life(&[])).abs() < 1e-9, "never watched");
    }

    #[test]
    fn sizes_in_words() {
        assert_eq!(mib(700 << 20), "700 MiB");
        assert_eq!(mib(3 << 29), "1.5 GiB");
    }
}
