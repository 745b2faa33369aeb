//! The trace of a run: what `run --trace` writes while a command runs, and `report` draws.
//!
//! *What*: a file of JSON lines: a head that identifies the run, samples of the group's counters,
//! an end.
//! *Invariants*: each line is written by one write, so the file stays readable up to its last line
//! whatever happens to the writer. A file without an end is of a run that was killed or is still
//! live.
//! *Locking*: none.
//! *Context*: the supervisor writes, the report command reads.

use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::results::check_version;
use crate::section::{Chart, Kind, Section, Series, Table};

/// Identifies the file format.
pub const FORMAT: &str = "uzswap-trace";
/// Version of the schema.
const VERSION: u32 = 1;
const MIB: f64 = 1_048_576.0;
/// Maximum number of points of a curve: about the width of a chart on a phone, in pixels.
const MAX_POINTS: usize = 400;

/// The first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    format: String,
    version: u32,
    /// Version of uzswap.
    pub uzswap: String,
    /// The whole command, with uzswap's own options.
    pub command: String,
    /// The machine.
    pub machine: Machine,
    /// Codec, as `--compressor` names it.
    pub compressor: String,
    /// Size of a folio, bytes.
    pub folio: u64,
}

impl Head {
    /// The head for a run on this machine.
    #[must_use]
    pub fn new(uzswap: &str, command: String, compressor: String, folio: u64) -> Self {
        Self {
            format: FORMAT.into(),
            version: VERSION,
            uzswap: uzswap.into(),
            command,
            machine: Machine::here(),
            compressor,
            folio,
        }
    }
}

/// A sample of the group's counters. docs/stats.md describes the keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "docs/stats.md describes the keys")]
pub struct Sample {
    /// Seconds since the command was started.
    pub elapsed_s: f64,
    /// Live processes.
    pub live: u64,
    pub ram_limit: u64,
    pub resident: u64,
    pub zswap: u64,
    pub metadata: u64,
    pub zswapped: u64,
    pub swapped: u64,
    pub swap_used: u64,
    pub faults: u64,
    pub refaults: u64,
    pub zswpout: u64,
    pub zswpin: u64,
    pub pswpout: u64,
    pub pswpin: u64,
    pub fault_s: f64,
    pub reclaim_s: f64,
}

/// The last line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// uzswap's exit status.
    pub exit_status: u8,
    /// Wall time in seconds.
    pub elapsed_s: f64,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    End { end: End },
    Sample(Sample),
}

/// Time to the next sample: ten samples a second in the first minute, then one.
#[must_use]
pub fn period(elapsed: Duration) -> Duration {
    Duration::from_millis(if elapsed < Duration::from_secs(60) {
        100
    } else {
        1000
    })
}

/// A trace that is being written.
#[derive(Debug)]
pub struct Writer(File);

impl Writer {
    /// Writes the head.
    ///
    /// # Errors
    /// If `file` cannot be written.
    pub fn start(file: File, head: &Head) -> io::Result<Self> {
        let mut writer = Self(file);
        writer.line(head)?;
        Ok(writer)
    }

    /// Writes a sample.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn sample(&mut self, sample: Sample) -> io::Result<()> {
        self.line(&Line::Sample(sample))
    }

    /// Writes the end.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn end(mut self, end: End) -> io::Result<()> {
        self.line(&Line::End { end })
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.0.write_all(&text)
    }
}

/// A trace that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The head.
    pub head: Head,
    /// The samples.
    pub samples: Vec<Sample>,
    /// The end, if the run has ended.
    pub end: Option<End>,
}

impl Trace {
    /// Parses a file whose first line has [`FORMAT`].
    ///
    /// # Errors
    /// Says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.split_inclusive('\n').enumerate();
        let (_, first) = lines.next().ok_or("empty")?;
        let head: serde_json::Value = parse_line(1, first)?;
        check_version(&head, VERSION)?;
        let head = serde_json::from_value(head).map_err(|why| format!("damaged: {why}"))?;
        let mut trace = Self {
            head,
            samples: Vec::new(),
            end: None,
        };
        for (number, line) in lines {
            match parse_line(number + 1, line)? {
                _ if trace.end.is_some() => {
                    return Err(format!("damaged: line {} follows its end", number + 1));
                }
                Line::Sample(sample) => trace.samples.push(sample),
                Line::End { end } => trace.end = Some(end),
            }
        }
        Ok(trace)
    }

    /// The charts and tables.
    #[must_use]
    pub fn section(&self) -> Section {
        let mut notes = vec![format!(
            "Compressed by {}, in folios of {} KiB; {} samples.",
            self.head.compressor,
            self.head.folio >> 10,
            self.samples.len()
        )];
        if self.samples.iter().any(|sample| sample.live > 1) {
            notes.push("Several processes: their memory is added up.".into());
        }
        match self.end {
            Some(end) => notes.push(format!(
                "It ended after {:.1} s with exit status {}.",
                end.elapsed_s, end.exit_status
            )),
            None => notes
                .push("It has no end: uzswap was killed, or the command was still running.".into()),
        }
        Section {
            title: "A run's life".into(),
            notes,
            charts: self.charts(),
            tables: self.table().into_iter().collect(),
        }
    }

    /// At most [`MAX_POINTS`] samples, evenly chosen, with the last. Rates between them are exact,
    /// as differences of counters.
    fn drawn(&self) -> Vec<&Sample> {
        let every = self.samples.len().div_ceil(MAX_POINTS).max(1);
        let mut drawn: Vec<&Sample> = self.samples.iter().rev().step_by(every).collect();
        drawn.reverse();
        drawn
    }

    fn charts(&self) -> Vec<Chart> {
        let drawn = self.drawn();
        let level = |name: &str, of: fn(&Sample) -> u64| Series {
            name: name.into(),
            points: drawn
                .iter()
                .map(|s| (s.elapsed_s, of(s) as f64 / MIB, String::new()))
                .collect(),
        };
        let rate = |name: &str, of: fn(&Sample) -> u64| Series {
            name: name.into(),
            points: drawn
                .windows(2)
                .filter(|two| two[1].elapsed_s > two[0].elapsed_s)
                .map(|two| {
                    let n = of(two[1]).saturating_sub(of(two[0])) as f64;
                    let rate = n / (two[1].elapsed_s - two[0].elapsed_s);
                    (two[1].elapsed_s, rate, String::new())
                })
                .collect(),
        };
        let in_use = vec![
            level("limit", |s| s.ram_limit),
            level("resident", |s| s.resident),
            level("pool", |s| s.zswap),
            level("resident + pool + metadata", |s| {
                s.resident + s.zswap + s.metadata
            }),
        ];
        let held = vec![
            level("all", |s| s.resident + s.zswapped + s.swapped),
            level("resident", |s| s.resident),
            level("in the pool", |s| s.zswapped),
            level("on swap", |s| s.swapped),
        ];
        let faults = vec![
            rate("all", |s| s.faults),
            rate("on evicted pages", |s| s.refaults),
        ];
        let pages = vec![
            rate("into the pool", |s| s.zswpout),
            rate("out of the pool", |s| s.zswpin),
            rate("to swap", |s| s.pswpout),
            rate("from swap", |s| s.pswpin),
        ];
        let mut charts = vec![
            lines("Memory in use", "MiB", in_use),
            lines("What the program holds", "MiB, before compression", held),
            lines("Faults", "faults/s", faults),
            lines("Pages out and in", "pages/s", pages),
        ];
        if self.samples.iter().any(|sample| sample.swap_used > 0) {
            let used = vec![level("used", |s| s.swap_used)];
            charts.push(lines("Swap device", "MiB in use", used));
        }
        charts
    }

    /// The table of peaks and sums.
    fn table(&self) -> Option<Table> {
        let last = self.samples.last()?;
        let peak = |of: fn(&Sample) -> u64| {
            let most = self.samples.iter().map(of).max().unwrap_or(0);
            format!("{:.1} MiB", most as f64 / MIB)
        };
        let rows = [
            ("highest resident", peak(|s| s.resident)),
            ("highest pool", peak(|s| s.zswap)),
            ("most held", peak(|s| s.resident + s.zswapped + s.swapped)),
            ("highest swap use", peak(|s| s.swap_used)),
            ("faults", last.faults.to_string()),
            ("faults on evicted pages", last.refaults.to_string()),
            ("pages stored into the pool", last.zswpout.to_string()),
            ("pages loaded from it", last.zswpin.to_string()),
            ("pages written to swap", last.pswpout.to_string()),
            ("pages read from it", last.pswpin.to_string()),
            ("time in faults", format!("{:.2} s", last.fault_s)),
            ("time reclaiming", format!("{:.2} s", last.reclaim_s)),
        ];
        Some(Table {
            caption: "As the samples have it".into(),
            head: vec!["what".into(), "value".into()],
            rows: rows.map(|(name, value)| vec![name.into(), value]).to_vec(),
        })
    }
}

fn lines(title: &str, y: &str, series: Vec<Series>) -> Chart {
    Chart {
        title: title.into(),
        kind: Kind::Lines {
            x: "seconds".into(),
            y: y.into(),
            series,
        },
    }
}

/// Parses a line; one without its line feed is incomplete.
fn parse_line<'a, T: Deserialize<'a>>(number: usize, line: &'a str) -> Result<T, String> {
    if !line.ends_with('\n') {
        return Err(format!("cut short, it ends in line {number}"));
    }
    serde_json::from_str(line).map_err(|why| format!("damaged in line {number}: {why}"))
}
