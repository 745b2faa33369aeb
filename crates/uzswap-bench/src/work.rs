//! The work of the suites on memory: jobs of `uzswap bench work`, and the figures that it prints.
//!
//! *What*: the program fills memory, then reads, checks and writes it, in phases or as
//! vm-scalability's `usemem` does.
//! *Context*: the suites.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use uzswap_corpus::{proc_kib, refused};

use crate::compare::{Figure, Values};
use crate::sides::{Completed, Job};
/// The program that `uzswap bench work` is.
pub use uzswap_usemem::main;

/// What the memory is filled with.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Records that lz4 compresses by about this factor.
    Records(u32),
    /// The pages of real programs in this directory.
    Corpus(&'a Path),
}

impl<'a> Data<'a> {
    /// The corpus if there is one, which is read into the page cache; records otherwise.
    ///
    /// # Errors
    /// Refuses a directory that holds no corpus.
    pub fn of(corpus: Option<&'a Path>, ratio: u32) -> Result<Self> {
        let Some(dir) = corpus else {
            return Ok(Self::Records(ratio));
        };
        uzswap_corpus::warm(dir)?;
        Ok(Self::Corpus(dir))
    }
}

impl fmt::Display for Data<'_> {
    /// Completes "1024 MiB of ...".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Records(2) => f.write_str("data that compresses about twofold"),
            Self::Records(4) => f.write_str("data that compresses about fourfold"),
            Self::Records(ratio) => write!(f, "data that compresses about {ratio} times"),
            Self::Corpus(_) => f.write_str("the pages of real programs"),
        }
    }
}

/// Work in phases: fill, random, sequential.
#[derive(Clone, Copy, Debug)]
pub struct Phases<'a> {
    /// Memory to fill, MiB.
    pub mib: u64,
    /// Threads.
    pub threads: u32,
    /// Seed of data and order.
    pub seed: usize,
    /// The data.
    pub data: Data<'a>,
    /// Accesses per phase and thread; by default as many as the thread has pages.
    pub accesses: Option<u64>,
}

impl Phases<'_> {
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

/// Work as vm-scalability's `usemem` does it.
#[derive(Clone, Copy, Debug)]
pub struct Tasks {
    /// Memory of each process, MiB.
    pub each_mib: u64,
    /// Processes.
    pub processes: u64,
    /// Passes over the memory, sequentially.
    pub repeat: u32,
    /// Same-filled pages rather than data that compresses fourfold.
    pub same_filled: bool,
}

impl Default for Tasks {
    fn default() -> Self {
        Self {
            each_mib: 0,
            processes: 1,
            repeat: 2,
            same_filled: false,
        }
    }
}

impl Tasks {
    /// The job; `uzswap` is the program.
    #[must_use]
    pub fn job(&self, uzswap: &Path) -> Job {
        let mut argv: Vec<OsString> = vec![uzswap.into()];
        argv.extend(["bench", "work", "-O", "-w", "-y", "-x"].map(Into::into));
        argv.extend(["-n".into(), self.processes.to_string().into()]);
        argv.extend(["-r".into(), self.repeat.to_string().into()]);
        argv.extend(self.same_filled.then(|| "--same-filled".into()));
        argv.push(format!("{}m", self.each_mib).into());
        Job {
            argv,
            ..Job::default()
        }
    }
}

/// The figures of [`storing_values`].
#[must_use]
pub fn storing_figures() -> Vec<Figure> {
    vec![
        Figure::new("mb_per_s", "throughput", "MB/s")
            .more_is_better()
            .in_chart("Throughput"),
        Figure::new("store_us", "a page stored", "µs").in_chart("Storing"),
        Figure::new("cpu_s", "all", "CPU s"),
    ]
}

/// Throughput and processor time of [`Tasks`], and uzswap's µs per page.
///
/// # Errors
/// If the program printed none.
pub fn storing_values(run: &Completed) -> Result<Values> {
    let mut values = per_page(&run.stats);
    let printed = printed(run)?;
    for key in ["mb_per_s", "cpu_s"] {
        insert(&mut values, key, &printed[key]);
    }
    values.extend(run.ram_mib.map(|mib| ("ram_mib".to_owned(), mib as f64)));
    Ok(values)
}

/// µs per page stored and per page loaded, from the statistics of `uzswap run`.
#[must_use]
pub fn per_page(stats: &Value) -> Values {
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

/// The figures of [`values`], in the order of the rows.
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

/// What [`Phases`] took.
///
/// # Errors
/// If the program printed nothing.
pub fn values(run: &Completed) -> Result<Values> {
    let printed = printed(run)?;
    let mut values = Values::new();
    for (phase, figure, key) in [
        ("random", "us_per_access", "random_us"),
        ("sequential", "us_per_access", "sequential_us"),
        ("fill", "s_per_gib", "fill_s_per_gib"),
    ] {
        insert(&mut values, key, &printed[phase][figure]);
        insert(
            &mut values,
            &format!("{phase}_cpu_s"),
            &printed[phase]["cpu_s"],
        );
    }
    values.extend(run.ram_mib.map(|mib| ("ram_mib".to_owned(), mib as f64)));
    Ok(values)
}

fn insert(values: &mut Values, key: &str, value: &Value) {
    values.extend(value.as_f64().map(|value| (key.to_owned(), value)));
}

/// The object in the last line that the program printed.
fn printed(run: &Completed) -> Result<Value> {
    serde_json::from_str(run.stdout.lines().last().unwrap_or(""))
        .context("the work printed no figures")
}

/// Refuses more data than fits the memory available natively.
pub(crate) fn check_memory(mib: u64) -> Result<()> {
    let available = proc_kib("/proc/meminfo", "MemAvailable:").map_or(u64::MAX, |kib| kib >> 10);
    if mib > available / 8 * 7 {
        return Err(refused(format!(
            "{mib} MiB of data do not fit: {available} MiB of memory are available; try --mib or --quick"
        )));
    }
    Ok(())
}
