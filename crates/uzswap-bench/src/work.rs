//! The work of the suites on memory: a program that fills memory, then reads, checks and writes it, in phases or as vm-scalability's `usemem` does.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::compare::Figure;
use crate::sides::{Job, Ran};
use uzswap_corpus::refused;
/// The work program: what `uzswap bench work` is.
pub use uzswap_usemem::main;

/// What the memory is filled with.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Records that lz4 makes about so many times as small.
    Records(u32),
    /// The pages of real programs in this directory.
    Corpus(&'a Path),
}

impl<'a> Data<'a> {
    /// Pages of real programs if there is a directory of them, which are read once; records otherwise.
    ///
    /// # Errors
    /// Refuses what is no corpus.
    pub fn of(corpus: Option<&'a Path>, ratio: u32) -> Result<Self> {
        let Some(dir) = corpus else {
            return Ok(Self::Records(ratio));
        };
        uzswap_corpus::warm(dir)?;
        Ok(Self::Corpus(dir))
    }
}

impl fmt::Display for Data<'_> {
    /// As in "so many MiB of ...".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Records(2) => f.write_str("data that compresses about twofold"),
            Self::Records(4) => f.write_str("data that compresses about fourfold"),
            Self::Records(ratio) => write!(f, "data that compresses about {ratio} times"),
            Self::Corpus(_) => f.write_str("the pages of real programs"),
        }
    }
}

/// What the program is to do.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// Memory to fill, MiB.
    pub mib: u64,
    /// Threads.
    pub threads: u32,
    /// Seed of data and order.
    pub seed: usize,
    /// What is filled in.
    pub data: Data<'a>,
    /// Accesses of each phase and thread; by default as many as it has pages.
    pub accesses: Option<u64>,
}

impl Work<'_> {
    /// The job; `uzswap` is the program.
    #[must_use]
    pub fn job(&self, uzswap: &Path) -> Job {
        let mut argv: Vec<OsString> = vec![uzswap.into(), "bench".into(), "work".into()];
        let mut option = |name: &str, value: u64| {
            argv.extend([name.into(), value.to_string().into()]);
        };
        option("--mib", self.mib);
        option("--threads", self.threads.into());
        option("--seed", self.seed as u64);
        if let Some(accesses) = self.accesses {
            option("--accesses", accesses);
        }
        match self.data {
            Data::Records(ratio) => option("--compressibility", ratio.into()),
            Data::Corpus(dir) => argv.extend(["--corpus".into(), dir.into()]),
        }
        Job {
            argv,
            ..Job::default()
        }
    }

    /// Name of the job in tables.
    #[must_use]
    pub fn name(&self) -> String {
        match self.threads {
            1 => "1 thread".into(),
            n => format!("{n} threads"),
        }
    }
}

/// What the program is to do as vm-scalability's `usemem`.
#[derive(Clone, Copy, Debug)]
pub struct Tasks {
    /// Memory of each process, MiB.
    pub each_mib: u64,
    /// Processes.
    pub processes: u64,
    /// How often they go over it.
    pub repeat: u32,
    /// At random rather than in order.
    pub random: bool,
    /// Pages that repeat one word rather than data that compresses fourfold.
    pub same_filled: bool,
}

impl Tasks {
    /// The job; `uzswap` is the program.
    #[must_use]
    pub fn job(&self, uzswap: &Path) -> Job {
        let mut argv: Vec<OsString> = vec![uzswap.into()];
        argv.extend(["bench", "work", "-O", "-w", "-y", "-x"].map(Into::into));
        argv.extend(["-n".into(), self.processes.to_string().into()]);
        argv.extend(["-r".into(), self.repeat.to_string().into()]);
        argv.extend(self.random.then(|| "-R".into()));
        argv.extend(self.same_filled.then(|| "--same-filled".into()));
        argv.push(format!("{}m", self.each_mib).into());
        Job {
            argv,
            processes: self.processes,
            ..Job::default()
        }
    }
}

/// What [`storing_values`] has, for a table.
#[must_use]
pub fn storing_figures() -> Vec<Figure> {
    vec![
        Figure {
            more_is_better: true,
            ..Figure::new("mb_per_s", "throughput", "MB/s").in_chart("Throughput")
        },
        Figure::new("store_us", "a page stored", "µs").in_chart("Storing"),
        Figure::new("cpu_s", "all", "CPU s"),
    ]
}

/// Throughput of all [`Tasks`] and their processor time, and of uzswap µs for a page.
///
/// # Errors
/// If they printed none.
pub fn storing_values(ran: &Ran) -> Result<BTreeMap<String, f64>> {
    let line = last_line(ran)?;
    let mut values = per_page(&ran.stats);
    for key in ["mb_per_s", "cpu_s"] {
        if let Some(value) = line[key].as_f64() {
            values.insert(key.to_owned(), value);
        }
    }
    values.extend(ran.ram_mib.map(|mib| ("ram_mib".to_owned(), mib as f64)));
    Ok(values)
}

/// µs for a page stored and for a page loaded, of `uzswap run --stats`.
#[must_use]
pub fn per_page(stats: &Value) -> BTreeMap<String, f64> {
    let number = |key: &str| stats[key].as_f64().unwrap_or(0.0);
    let loading = (number("fault_s") - number("reclaim_s")).max(0.0);
    [
        ("store_us", number("reclaim_s"), number("zswpout")),
        ("load_us", loading, number("zswpin")),
    ]
    .into_iter()
    .filter(|(_, _, pages)| *pages > 0.0)
    .map(|(key, seconds, pages)| (key.to_owned(), seconds * 1e6 / pages))
    .collect()
}

fn last_line(ran: &Ran) -> Result<Value> {
    serde_json::from_str(ran.stdout.lines().last().unwrap_or(""))
        .context("the work printed no figures")
}

/// What the program's figures are, in the order of the rows.
#[must_use]
pub fn figures() -> Vec<Figure> {
    let waiting = "Waiting for a page";
    let time = "Processor time";
    vec![
        Figure::new("random_us", "random", "µs per access").in_chart(waiting),
        Figure::new("sequential_us", "sequential", "µs per access").in_chart(waiting),
        Figure::new("fill_s_per_gib", "fill", "s per GiB").in_chart("First touch"),
        Figure::new("random_cpu_s", "random", "CPU s").in_chart(time),
        Figure::new("sequential_cpu_s", "sequential", "CPU s").in_chart(time),
        Figure::new("fill_cpu_s", "fill", "CPU s").in_chart(time),
        Figure::new("ram_mib", "RAM", "MiB"),
    ]
}

/// The line that it printed, as figures.
///
/// # Errors
/// If there is none.
pub fn values(ran: &Ran) -> Result<BTreeMap<String, f64>> {
    let line = last_line(ran)?;
    let mut values = BTreeMap::new();
    for (key, phase, figure) in [
        ("random_us", "random", "us_per_access"),
        ("random_cpu_s", "random", "cpu_s"),
        ("sequential_us", "sequential", "us_per_access"),
        ("sequential_cpu_s", "sequential", "cpu_s"),
        ("fill_s_per_gib", "fill", "s_per_gib"),
        ("fill_cpu_s", "fill", "cpu_s"),
    ] {
        if let Some(value) = line[phase][figure].as_f64() {
            values.insert(key.to_owned(), value);
        }
    }
    values.extend(ran.ram_mib.map(|mib| ("ram_mib".to_owned(), mib as f64)));
    Ok(values)
}

/// Refuses more data than can be had natively.
pub(crate) fn check_memory(mib: u64) -> Result<()> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let available = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .map_or(u64::MAX, |kib| kib >> 10);
    if mib > available / 8 * 7 {
        return Err(refused(format!(
            "{mib} MiB of data do not fit: {available} MiB of memory are available; try --mib or --quick"
        )));
    }
    Ok(())
}
