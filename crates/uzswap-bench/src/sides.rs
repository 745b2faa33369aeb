//! Who runs a command: nobody but the kernel as it is, the kernel's swap, zswap or zram, or uzswap.
//!
//! *What*: the sides that a suite compares, which of them this machine has, and one run of a command on one of them.
//! *Invariants*: a run on the kernel's side leaves the machine as it was, see [`kernel`], and nothing that it started behind, see [`keeper`]. The command sees the same files and
//! arguments on every side.
//! *Locking*: none.
//! *Context*: the bench command; the kernel's sides need root.

mod cgroup;
mod keeper;
mod kernel;
mod process;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use kernel::Kernel;
pub(crate) use kernel::pool_step_mib;
use uzswap_corpus::Scratch;
use uzswap_corpus::progress::Progress;
use uzswap_corpus::refused;

/// Who runs the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// Nobody limits it.
    Native,
    /// The kernel, with a swap file alone.
    KernelSwap,
    /// The kernel, with zswap before its swap file.
    KernelZswap,
    /// The kernel, swapping to a compressed device in RAM.
    Zram,
    /// We.
    Uzswap,
}

/// All of them, in the order of columns.
const ALL: [Side; 5] = [
    Side::Native,
    Side::KernelSwap,
    Side::Zram,
    Side::KernelZswap,
    Side::Uzswap,
];

impl Side {
    /// Its key in results, and on the command line.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Side::Native => "native",
            Side::KernelSwap => "kernel-swap",
            Side::KernelZswap => "kernel-zswap",
            Side::Zram => "zram",
            Side::Uzswap => "uzswap",
        }
    }

    fn is_kernel(self) -> bool {
        matches!(self, Side::KernelSwap | Side::KernelZswap | Side::Zram)
    }
}

/// The RAM and swap that a run gets.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// uzswap's `--ram`, or the kernel's limit, beside which its pool lies; MiB.
    pub limit_mib: u64,
    /// Most of the kernel's pool, MiB; `None`: as much as it wants.
    pub pool_mib: Option<u64>,
    /// Swap, MiB.
    pub swap_mib: u64,
}

/// A command to run, on each side alike.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Where it runs; by default here.
    pub dir: Option<PathBuf>,
    /// Options of `uzswap run`, on our side.
    pub options: Vec<OsString>,
    /// How long it may take; longer is failing. By default as long as it wants.
    pub patience: Option<Duration>,
    /// Processes that need the memory at once, 0 as 1: `--ram` holds for each, so each gets its share.
    pub processes: u64,
}

/// What a run took.
#[derive(Clone, Debug)]
pub struct Ran {
    /// What it printed.
    pub stdout: String,
    /// Seconds from start to end.
    pub wall_s: f64,
    /// Processor seconds, of its descendants too.
    pub cpu_s: f64,
    /// Most anonymous memory that all of it had in RAM, looked at often, MiB.
    pub anon_mib: u64,
    /// What all of it was allowed or took in RAM, MiB; natively there is no limit.
    pub ram_mib: Option<u64>,
    /// Written to and read from disk for want of memory, MiB.
    pub disk: Option<Disk>,
    /// The object of `uzswap run --stats`, on our side.
    pub stats: serde_json::Value,
}

/// What went to the disk and came back, MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disk {
    /// Written.
    pub written_mib: f64,
    /// Read, as memory: on our side fewer bytes were, since they are compressed.
    pub read_mib: f64,
}

/// Who takes part, and with what.
#[derive(Clone, Debug)]
pub struct Sides {
    /// The uzswap binary, which is also the work program.
    pub uzswap: PathBuf,
    /// uzswap's compressor.
    pub compressor: String,
    /// The compressor of the kernel's zswap.
    pub kernel_compressor: String,
    peers: Vec<Side>,
    /// Who was left out, and why.
    pub skipped: Vec<String>,
}

impl Sides {
    /// uzswap beside `asked`, or beside those of `usual` that this machine has.
    ///
    /// # Errors
    /// Refuses a peer that was asked for and that this kernel lacks.
    pub fn new(
        uzswap: &Path,
        compressor: &str,
        kernel_compressor: &str,
        asked: &[Side],
        usual: &[Side],
    ) -> Result<Self> {
        let mut sides = Self {
            uzswap: uzswap.to_owned(),
            compressor: compressor.to_owned(),
            kernel_compressor: kernel_compressor.to_owned(),
            peers: Vec::new(),
            skipped: Vec::new(),
        };
        let wanted = if asked.is_empty() { usual } else { asked };
        for &side in wanted {
            if sides.takes_part(side) {
                continue;
            }
            let lacking = side
                .is_kernel()
                .then(|| kernel::lacks(side, kernel_compressor));
            match lacking.flatten() {
                None => sides.peers.push(side),
                Some(why) if !asked.is_empty() => return Err(refused(why)),
                Some(why) => sides.skip(side, &why),
            }
        }
        // SAFETY: no memory effects.
        if unsafe { libc::geteuid() } != 0 {
            for side in sides.peers.clone() {
                if side.is_kernel() {
                    sides.skip(side, "needs root");
                }
            }
        }
        Ok(sides)
    }

    /// Whether `side` is measured.
    #[must_use]
    pub fn takes_part(&self, side: Side) -> bool {
        side == Side::Uzswap || self.peers.contains(&side)
    }

    /// Those who take part, for [`crate::compare::Measured::sides`].
    #[must_use]
    pub fn columns(&self) -> Vec<(String, String)> {
        ALL.into_iter()
            .filter(|&side| self.takes_part(side))
            .map(|side| (side.key().to_owned(), self.name(side)))
            .collect()
    }

    /// uzswap's share of every limited peer's, for [`crate::compare::Measured::ratios`].
    #[must_use]
    pub fn ratios() -> Vec<(String, String)> {
        [Side::KernelZswap, Side::KernelSwap, Side::Zram]
            .map(|peer| (Side::Uzswap.key().to_owned(), peer.key().to_owned()))
            .to_vec()
    }

    /// Leaves `side` out from now on.
    pub(crate) fn skip(&mut self, side: Side, why: &str) {
        let line = format!("{}: {why}", self.name(side));
        eprintln!("SKIPPED {line}");
        self.skipped.push(line);
        self.peers.retain(|&peer| peer != side);
    }

    /// Its name for people.
    #[must_use]
    pub fn name(&self, side: Side) -> String {
        match side {
            Side::Native => "native".into(),
            Side::KernelSwap => "kernel swap".into(),
            Side::KernelZswap => format!("kernel zswap, {}", self.kernel_compressor),
            Side::Zram => "kernel zram".into(),
            Side::Uzswap => format!("uzswap, {}", self.compressor),
        }
    }

    /// Runs `job` on `side`; `None` if it was interrupted, or if the kernel's side cannot be had, which is noted in `skipped`.
    ///
    /// # Errors
    /// If the job fails.
    pub fn run(
        &mut self,
        side: Side,
        room: Room,
        job: &Job,
        progress: &Progress,
    ) -> Result<Option<Ran>> {
        if !self.takes_part(side) || uzswap_corpus::interrupt::happened() {
            progress.step();
            return Ok(None);
        }
        let scratch = Scratch::new()?;
        let ran = match side {
            Side::Native => return self.natively(job, progress),
            Side::Uzswap => self.ours(room, job, &scratch),
            Side::KernelSwap | Side::KernelZswap | Side::Zram => {
                match Kernel::set_up(side, &self.kernel_compressor, room) {
                    Ok(kernel) => theirs(kernel, room, job, &scratch),
                    Err(why) => {
                        progress.hidden(|| self.skip(side, &format!("{why:#}")));
                        Ok(None)
                    }
                }
            }
        };
        progress.step();
        ran
    }

    /// Runs `job` without any limit, whether that takes part or not.
    ///
    /// # Errors
    /// If the job fails.
    pub fn natively(&self, job: &Job, progress: &Progress) -> Result<Option<Ran>> {
        let ran = process::run(
            &mut job.command(None)?,
            job.patience,
            &Scratch::new()?,
            || {},
        );
        progress.step();
        ran
    }

    fn ours(&self, room: Room, job: &Job, scratch: &Scratch) -> Result<Option<Ran>> {
        let stats = scratch.path().join("stats");
        let mut run: Vec<OsString> =
            vec![self.uzswap.clone().into(), "run".into(), "--quiet".into()];
        run.extend([
            "--ram".into(),
            format!("{}M", room.limit_mib / job.processes.max(1)).into(),
        ]);
        run.extend(["--swap-max".into(), format!("{}M", room.swap_mib).into()]);
        run.extend(["--compressor".into(), self.compressor.clone().into()]);
        run.extend(["--stats".into(), stats.clone().into()]);
        run.extend(job.options.iter().cloned());
        run.push("--".into());
        let Some(mut ran) =
            process::run(&mut job.command(Some(run))?, job.patience, scratch, || {})?
        else {
            return Ok(None);
        };
        let text = std::fs::read(&stats).context("uzswap wrote no statistics")?;
        ran.stats = serde_json::from_slice(&text).context("uzswap's statistics are odd")?;
        ran.ram_mib = Some(room.limit_mib);
        ran.disk = Some(our_disk(&ran.stats));
        Ok(Some(ran))
    }
}

fn theirs(mut kernel: Kernel, room: Room, job: &Job, scratch: &Scratch) -> Result<Option<Ran>> {
    let mut command = job.command(None)?;
    kernel.hold(&mut command)?;
    let ran = process::run(&mut command, job.patience, scratch, || kernel.look())?;
    Ok(ran.map(|ran| Ran {
        ram_mib: Some(kernel.taken_mib(room)),
        disk: Some(kernel.disk()),
        ..ran
    }))
}

/// What `uzswap run --stats` says about the disk.
fn our_disk(stats: &serde_json::Value) -> Disk {
    let mut written_kib = 0;
    for (order, counters) in stats["orders"].as_object().into_iter().flatten() {
        let kib: u64 = order.trim_end_matches("kB").parse().unwrap_or(0);
        written_kib += kib * counters["swpout"].as_u64().unwrap_or(0);
    }
    Disk {
        written_mib: written_kib as f64 / 1024.0,
        read_mib: stats["pswpin"].as_f64().unwrap_or(0.0) / 256.0,
    }
}

impl Job {
    /// What `argv` says, behind `prefix`; it has a keeper.
    fn command(&self, prefix: Option<Vec<OsString>>) -> Result<Command> {
        let mut argv = prefix.unwrap_or_default();
        argv.extend(self.argv.iter().cloned());
        ensure!(!argv.is_empty(), "nothing to run");
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]);
        keeper::keep(&mut command);
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_wrote_is_counted_in_bytes_of_runs() {
        let stats = serde_json::json!({
            "pswpin": 512,
            "orders": {"4kB": {"swpout": 3}, "128kB": {"swpout": 2}, "2048kB": {"swpout": 0}},
        });
        let disk = our_disk(&stats);
        assert!((disk.written_mib - 268.0 / 1024.0).abs() < 1e-9);
        assert!((disk.read_mib - 2.0).abs() < 1e-9);
    }
}
