//! The sides of a comparison: native, the kernel's swap, zswap or zram, and uzswap.
//!
//! *What*: which sides this machine has, and one run of a command on one of them.
//! *Invariants*: a run on a kernel's side leaves the machine as it was (see [`kernel`]), and leaves
//! no process behind (see [`keeper`]). The command sees the same files and arguments on every side.
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

pub(crate) use keeper::keep;
use kernel::Kernel;
pub(crate) use kernel::pool_step_mib;
use uzswap_corpus::Scratch;
use uzswap_corpus::progress::Progress;
use uzswap_corpus::refused;

/// A side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Without any limit.
    Native,
    /// The kernel with a swap file.
    KernelSwap,
    /// The kernel with zswap in front of a swap file.
    KernelZswap,
    /// The kernel with swap on zram.
    Zram,
    /// uzswap.
    Uzswap,
}

/// All sides, in the order of columns.
const ALL: [Side; 5] = [
    Side::Native,
    Side::KernelSwap,
    Side::Zram,
    Side::KernelZswap,
    Side::Uzswap,
];

/// The native run comes first, because it sets the limits; then zswap, whose pool sets uzswap's
/// limit.
pub const NATIVE_FIRST: [Side; 5] = [
    Side::Native,
    Side::KernelZswap,
    Side::Uzswap,
    Side::KernelSwap,
    Side::Zram,
];

impl Side {
    /// zswap runs first where its pool sets the total memory.
    pub(crate) const ZSWAP_FIRST: [Side; 5] = [
        Side::KernelZswap,
        Side::Uzswap,
        Side::KernelSwap,
        Side::Zram,
        Side::Native,
    ];

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

/// The RAM and swap of a run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// uzswap's `--ram`, or the kernel's limit, beside its pool; MiB.
    pub ram_mib: u64,
    /// Maximum of the kernel's pool, MiB; `None` means no maximum.
    pub pool_mib: Option<u64>,
    /// Swap, MiB.
    pub swap_mib: u64,
}

/// A command, the same on each side.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Working directory; by default ours.
    pub dir: Option<PathBuf>,
    /// Options of `uzswap run` on uzswap's side.
    pub options: Vec<OsString>,
    /// Time after which it is killed and has failed; by default never.
    pub timeout: Option<Duration>,
}

/// A run that succeeded.
#[derive(Clone, Debug)]
pub struct Completed {
    /// Its standard output.
    pub stdout: String,
    /// Wall time, seconds.
    pub wall_s: f64,
    /// Processor time, descendants included, seconds.
    pub cpu_s: f64,
    /// Peak of resident anonymous memory, descendants included, MiB; polled.
    pub anon_mib: u64,
    /// RAM that it was allowed or took, pool included, MiB; `None` natively.
    pub ram_mib: Option<u64>,
    /// Swap traffic.
    pub disk: Option<Disk>,
    /// The object of `uzswap run --stats` on uzswap's side.
    pub stats: serde_json::Value,
}

/// Swap traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disk {
    /// Written to disk, MiB.
    pub written_mib: f64,
    /// Read from disk, in MiB of memory: uzswap reads fewer bytes, since they are compressed.
    pub read_mib: f64,
}

/// The sides that take part.
#[derive(Clone, Debug)]
pub struct Sides {
    /// The uzswap binary, which is also the work program.
    pub uzswap: PathBuf,
    /// uzswap's compressor, as `--compressor` takes it.
    pub compressor: String,
    /// The compressor of the kernel's zswap.
    pub kernel_compressor: String,
    peers: Vec<Side>,
    /// Which sides were skipped, and why.
    pub skipped: Vec<String>,
}

impl Sides {
    /// uzswap beside the peers `asked` for, or beside those of `default` that this machine has.
    ///
    /// # Errors
    /// Refuses a peer in `asked` that this kernel lacks.
    pub fn new(
        uzswap: &Path,
        compressor: &str,
        kernel_compressor: &str,
        asked: &[Side],
        default: &[Side],
    ) -> Result<Self> {
        let mut sides = Self {
            uzswap: uzswap.to_owned(),
            compressor: compressor.to_owned(),
            kernel_compressor: kernel_compressor.to_owned(),
            peers: Vec::new(),
            skipped: Vec::new(),
        };
        let wanted = if asked.is_empty() { default } else { asked };
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

    /// Whether `side` takes part.
    #[must_use]
    pub fn takes_part(&self, side: Side) -> bool {
        side == Side::Uzswap || self.peers.contains(&side)
    }

    /// Keys and names of the sides that take part, in the order of columns.
    #[must_use]
    pub fn columns(&self) -> Vec<(String, String)> {
        ALL.into_iter()
            .filter(|&side| self.takes_part(side))
            .map(|side| (side.key().to_owned(), self.name(side)))
            .collect()
    }

    /// uzswap's ratio to every limited peer.
    #[must_use]
    pub fn ratios() -> Vec<(String, String)> {
        [Side::KernelZswap, Side::KernelSwap, Side::Zram]
            .map(|peer| (Side::Uzswap.key().to_owned(), peer.key().to_owned()))
            .to_vec()
    }

    /// Skips `side` from now on.
    pub(crate) fn skip(&mut self, side: Side, why: &str) {
        let line = format!("{}: {why}", self.name(side));
        eprintln!("SKIPPED {line}");
        self.skipped.push(line);
        self.peers.retain(|&peer| peer != side);
    }

    /// The name of `side` in tables.
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

    /// Runs `job` on `side`; `None` if that was interrupted, or if the side takes no part or cannot
    /// be set up, which is noted in `skipped`.
    ///
    /// # Errors
    /// If the job fails.
    pub fn run(
        &mut self,
        side: Side,
        limits: Limits,
        job: &Job,
        progress: &Progress,
    ) -> Result<Option<Completed>> {
        if !self.takes_part(side) || uzswap_corpus::interrupt::happened() {
            progress.step();
            return Ok(None);
        }
        let scratch = Scratch::new()?;
        let run = match side {
            Side::Native => return self.natively(job, progress),
            Side::Uzswap => self.run_uzswap(limits, job, &scratch),
            Side::KernelSwap | Side::KernelZswap | Side::Zram => {
                match Kernel::set_up(side, &self.kernel_compressor, limits) {
                    Ok(kernel) => run_kernel(kernel, limits, job, &scratch),
                    Err(why) => {
                        progress.hidden(|| self.skip(side, &format!("{why:#}")));
                        Ok(None)
                    }
                }
            }
        };
        progress.step();
        run
    }

    /// Runs `job` natively, whether that side takes part or not.
    ///
    /// # Errors
    /// If the job fails.
    pub fn natively(&self, job: &Job, progress: &Progress) -> Result<Option<Completed>> {
        let run = process::run(
            &mut job.command(None)?,
            job.timeout,
            &Scratch::new()?,
            || {},
        );
        progress.step();
        run
    }

    fn run_uzswap(
        &self,
        limits: Limits,
        job: &Job,
        scratch: &Scratch,
    ) -> Result<Option<Completed>> {
        let stats = scratch.path().join("stats");
        let mut prefix: Vec<OsString> = vec![self.uzswap.clone().into()];
        prefix.extend(["run", "--quiet", "--ram"].map(Into::into));
        prefix.push(format!("{}M", limits.ram_mib).into());
        prefix.extend(["--swap-max".into(), format!("{}M", limits.swap_mib).into()]);
        prefix.extend(["--compressor".into(), self.compressor.clone().into()]);
        prefix.extend(["--stats".into(), stats.clone().into()]);
        prefix.extend(job.options.iter().cloned());
        prefix.push("--".into());
        let Some(mut run) =
            process::run(&mut job.command(Some(prefix))?, job.timeout, scratch, || {})?
        else {
            return Ok(None);
        };
        let text = std::fs::read(&stats).context("uzswap wrote no statistics")?;
        run.stats = serde_json::from_slice(&text).context("cannot parse uzswap's statistics")?;
        run.ram_mib = Some(limits.ram_mib);
        run.disk = Some(uzswap_disk(&run.stats));
        Ok(Some(run))
    }
}

fn run_kernel(
    mut kernel: Kernel,
    limits: Limits,
    job: &Job,
    scratch: &Scratch,
) -> Result<Option<Completed>> {
    let mut command = job.command(None)?;
    kernel.enclose(&mut command)?;
    let run = process::run(&mut command, job.timeout, scratch, || kernel.poll())?;
    Ok(run.map(|run| Completed {
        ram_mib: Some(kernel.ram_mib(limits)),
        disk: Some(kernel.disk()),
        ..run
    }))
}

/// Swap traffic from the statistics of `uzswap run`.
fn uzswap_disk(stats: &serde_json::Value) -> Disk {
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
    /// `argv` behind `prefix`, under a keeper.
    fn command(&self, prefix: Option<Vec<OsString>>) -> Result<Command> {
        let mut argv = prefix.unwrap_or_default();
        argv.extend(self.argv.iter().cloned());
        ensure!(!argv.is_empty(), "nothing to run");
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]);
        keep(&mut command);
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
    fn writes_are_counted_in_bytes_of_runs() {
        let stats = serde_json::json!({
            "pswpin": 512,
            "orders": {"4kB": {"swpout": 3}, "128kB": {"swpout": 2}, "2048kB": {"swpout": 0}},
        });
        let disk = uzswap_disk(&stats);
        assert!((disk.written_mib - 268.0 / 1024.0).abs() < 1e-9);
        assert!((disk.read_mib - 2.0).abs() < 1e-9);
    }
}
