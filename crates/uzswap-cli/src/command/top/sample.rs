//! *What*: the samples of `uzswap top`: finds supervisors in `/proc`, maps their groups, and makes
//! rows, rates and histories from the counters.
//!
//! *Invariants*: a watched process is never signalled or stopped. Of `/proc`, only supervisors'
//! entries are read; of processes, only their counters in the group file.
//! *Locking*: none. *Context*: one thread.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use anyhow::{Result, bail};
use serde::Serialize;
use uzswap_group::group::Process;

use crate::chosen::{Chosen, Whom};
use crate::group_file::{self, Access, Mapping};
use crate::group_view::{
    PAGE, Part, Sizes, followed, live_processes, name_of, name_of_path, pid_of,
};

/// Samples kept of each process.
const MAX_HISTORY: usize = 600;

/// A process at one moment. Sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    pub pid: u32,
    /// Process id of its `uzswap run`.
    pub supervisor: u32,
    pub name: String,
    /// The name of its group.
    pub group: Option<String>,
    /// The groups that it lies in, the outermost first, each with its limit.
    #[serde(skip)]
    pub groups: Vec<(String, u64)>,
    pub ram_limit: u64,
    /// What the limit follows; none if it is fixed.
    pub ram_follows: Option<&'static str>,
    pub resident: u64,
    pub zswap: u64,
    pub metadata: u64,
    /// Outside its account, as last measured.
    pub unmanaged: u64,
    /// In the pool, before compression.
    pub zswapped: u64,
    /// On swap devices, before compression.
    pub swapped: u64,
    /// Percent of its time in page faults, if it thrashes; else 0.
    pub thrashing: u64,
    pub faults_per_s: f64,
    pub refaults_per_s: f64,
    /// Bytes per second read from and written to swap devices.
    pub swap_in_per_s: f64,
    pub swap_out_per_s: f64,
}

impl Row {
    /// What counts towards the limit.
    pub fn in_use(&self) -> u64 {
        self.resident + self.zswap + self.metadata
    }

    /// Bytes stored per byte of pool; none while nothing is stored.
    #[expect(clippy::cast_precision_loss, reason = "a ratio to a few digits")]
    pub fn ratio(&self) -> Option<f64> {
        (self.zswapped > 0).then(|| self.zswapped as f64 / self.zswap.max(PAGE) as f64)
    }
}

/// The counters that have rates, at one moment.
#[derive(Clone, Copy, Debug)]
struct Counts {
    at: Instant,
    counts: [u64; 4],
}

impl Counts {
    fn of(process: &Process, at: Instant) -> Self {
        let counters = &process.counters;
        let counts = [
            &counters.faults,
            &counters.refaults,
            &counters.swap_bytes_in,
            &counters.swap_bytes_out,
        ];
        let counts = counts.map(|cell: &AtomicU64| cell.load(Relaxed));
        Counts { at, counts }
    }

    /// Rise of each per second since `before`.
    #[expect(clippy::cast_precision_loss, reason = "a rate to a few digits")]
    fn since(&self, before: &Counts) -> [f64; 4] {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(1e-3);
        let mut rates = [0.0; 4];
        for (rate, (now, before)) in rates.iter_mut().zip(self.counts.iter().zip(&before.counts)) {
            // exec starts the counters again at zero.
            *rate = now.saturating_sub(*before) as f64 / seconds;
        }
        rates
    }
}

/// The watched processes and their history.
#[derive(Default)]
pub struct Watch {
    /// Which processes are watched; none: all.
    only: Option<Chosen>,
    /// By supervisor; with the number of its run.
    groups: HashMap<u32, (Mapping, usize)>,
    counts: HashMap<(u32, u32), Counts>,
    history: HashMap<u32, VecDeque<Row>>,
    rows: Vec<Row>,
}

impl Watch {
    /// Watches the group, or the run of the process, that is named, or every run that this user may
    /// read.
    pub fn new(whom: Option<&Whom>) -> Result<Self> {
        let chosen = whom
            .map(|whom| Chosen::open(whom, Access::Read))
            .transpose()?;
        let mut watch = Watch {
            only: chosen,
            ..Watch::default()
        };
        watch.sample();
        if let (Some(chosen), Some(Whom::Pid(pid))) = (&watch.only, whom)
            && chosen.run_by(*pid).is_none()
            && watch.row(*pid).is_none()
        {
            bail!("process {pid} manages no memory");
        }
        Ok(watch)
    }

    /// A watch of no run, whose only sample is `rows`.
    #[cfg(test)]
    pub(super) fn of_rows(rows: Vec<Row>) -> Self {
        let mut watch = Watch::default();
        watch.note(rows);
        watch
    }

    /// Takes a sample. Rates are those since the one before.
    pub fn sample(&mut self) {
        if self.only.is_none() {
            self.find_runs();
        }
        let at = Instant::now();
        let mut rows = Vec::new();
        let mut counts = HashMap::new();
        let all = self
            .groups
            .values()
            .map(|(group, run)| Part::run(group, *run));
        let parts = self.only.iter().map(Chosen::part).chain(all);
        for part in parts {
            for process in live_processes(&part) {
                let part = Part::run(part.group(), process.run.load(Relaxed) as usize);
                let supervisor = part.run_of(process).supervisor.load(Relaxed);
                let now = Counts::of(process, at);
                let mut row = row(&part, supervisor, process);
                let key = (supervisor, row.pid);
                if let Some(before) = self.counts.get(&key) {
                    let [faults, refaults, swap_in, swap_out] = now.since(before);
                    row.faults_per_s = faults.round();
                    row.refaults_per_s = refaults.round();
                    row.swap_in_per_s = swap_in.round();
                    row.swap_out_per_s = swap_out.round();
                }
                counts.insert(key, now);
                rows.push(row);
            }
        }
        self.counts = counts;
        self.note(rows);
    }

    /// Keeps `rows` as the latest sample.
    pub(super) fn note(&mut self, rows: Vec<Row>) {
        self.history
            .retain(|pid, _| rows.iter().any(|row| row.pid == *pid));
        for row in &rows {
            let history = self.history.entry(row.pid).or_default();
            history.push_back(row.clone());
            if history.len() > MAX_HISTORY {
                history.pop_front();
            }
        }
        self.rows = rows;
    }

    /// The latest sample.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Process `pid` in the latest sample.
    pub fn row(&self, pid: u32) -> Option<&Row> {
        self.rows.iter().find(|row| row.pid == pid)
    }

    /// The samples of a process, oldest first.
    pub fn history(&self, pid: u32) -> impl DoubleEndedIterator<Item = &Row> {
        self.history.get(&pid).into_iter().flatten()
    }

    /// Maps the groups of new runs and unmaps those of runs that have ended.
    fn find_runs(&mut self) {
        let found: HashSet<u32> = supervisors().collect();
        self.groups.retain(|pid, _| found.contains(pid));
        for pid in found {
            // Mapping fails for another user's run, one that is starting, and one of another
            // version.
            if !self.groups.contains_key(&pid)
                && let Ok(group) = group_file::of_process(pid, Access::Read)
                && let Some(run) = group.run_by(pid)
            {
                self.groups.insert(pid, (group, run));
            }
        }
    }
}

fn row(group: &Part<'_>, supervisor: u32, process: &Process) -> Row {
    let sizes = Sizes::of(process);
    Row {
        pid: pid_of(process),
        supervisor,
        name: name_of(process),
        group: group.name(),
        groups: groups(group),
        ram_limit: group.limit(),
        ram_follows: followed(group),
        resident: sizes.resident,
        zswap: sizes.pool,
        metadata: sizes.metadata,
        unmanaged: sizes.unmanaged,
        zswapped: sizes.stored,
        swapped: process.counters.swapped_pages.load(Relaxed) * PAGE,
        thrashing: process.thrashing.percent.load(Relaxed),
        ..Row::default()
    }
}

/// The groups of a part, and their limits; none without a name.
fn groups(part: &Part<'_>) -> Vec<(String, u64)> {
    let on_path = part.path().nodes().map(|nr| {
        let path = part.ledger.node(nr).path.load();
        Some((
            name_of_path(part, path)?,
            Part::node(part.group(), path).limit(),
        ))
    });
    on_path.collect::<Option<_>>().unwrap_or_default()
}

/// Candidates for supervisors: processes with the name of this program.
fn supervisors() -> impl Iterator<Item = u32> {
    let own = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(move |entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        (name == own && pid != std::process::id()).then_some(pid)
    })
}
