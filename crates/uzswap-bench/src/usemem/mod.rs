//! The suite `usemem`: the same work natively, under the kernel's zswap and under uzswap, with the same total memory.
//!
//! *What*: `uzswap-usemem` fills memory with data that compresses about fourfold, then reads, checks and writes pages at random and in
//! order, with 1 and 2 threads. The kernel gets a quarter of that as its limit; uzswap gets as `--ram` that
//! limit plus the largest size of the kernel's pool in the run before (just the limit where the kernel charges its pool to it).
//! *Invariants*: sides take turns within each round. Only rounds of which every run came to its end are kept.
//! *Locking*: none.
//! *Context*: the bench command; the peer needs root.

mod kernel;
mod show;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde::{Deserialize, Serialize};

use crate::progress::Progress;
use crate::rounds::{Calibration, Round};
use crate::{interrupt, refused};
use kernel::Kernel;
/// The work program: what `uzswap bench work` is.
pub use uzswap_usemem::main as work;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The uzswap binary, which is also the work program.
    pub uzswap: PathBuf,
    /// Memory that the work fills, MiB.
    pub mib: u64,
    /// Rounds.
    pub rounds: usize,
    /// The kernel's compressor; `None`: no peer.
    pub kernel: Option<String>,
    /// uzswap's compressor.
    pub compressor: String,
}

/// Who runs the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// Nobody limits it.
    Native,
    /// The kernel.
    KernelZswap,
    /// We.
    Uzswap,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Memory that the work filled, MiB.
    pub mib: u64,
    /// The kernel's limit, beside which its pool lies, MiB.
    pub limit_mib: u64,
    /// The kernel's compressor, if it took part.
    pub kernel: Option<String>,
    /// uzswap's compressor.
    pub compressor: String,
    /// The rounds.
    pub rounds: Vec<Round>,
    /// The runs.
    pub runs: Vec<Run>,
}

/// One run of the work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Number of its round, from 0.
    pub round: usize,
    /// Who ran it.
    pub side: Side,
    /// Its threads.
    pub threads: u32,
    /// What all of it was allowed or took in RAM, MiB; natively there is no limit.
    pub ram_mib: Option<u64>,
    /// What the work says it took.
    #[serde(flatten)]
    pub work: Work,
}

/// The line that the work prints, as far as it matters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Touching every page for the first time.
    pub fill: Fill,
    /// Reading and writing pages at random.
    pub random: Access,
    /// Reading and writing pages in order.
    pub sequential: Access,
}

/// What filling took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fill {
    /// Seconds for a GiB.
    pub s_per_gib: f64,
    /// Processor seconds.
    pub cpu_s: f64,
}

/// What a phase of accesses took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// Microseconds that a thread waited for an access.
    pub us_per_access: f64,
    /// Processor seconds.
    pub cpu_s: f64,
}

/// Numbers of threads.
const THREADS: [u32; 2] = [1, 2];

/// Measures. The second value says why the kernel was left out, if it was meant to take part and could not.
///
/// # Errors
/// If the machine is too small, uzswap cannot run the work, or no round was completed.
pub fn measure(options: &Options) -> Result<(Measured, Option<String>)> {
    check_memory(options.mib)?;
    let mut skipped = None;
    let mut measured = Measured {
        mib: options.mib,
        limit_mib: options.mib / 4,
        kernel: options.kernel.clone(),
        compressor: options.compressor.clone(),
        rounds: Vec::new(),
        runs: Vec::new(),
    };
    let progress = Progress::new(options.rounds * THREADS.len() * 3, "runs");
    let mut calibration = Calibration::start();
    for round in 0..options.rounds {
        let mut runs = Vec::new();
        for threads in THREADS {
            let bench = Bench {
                options,
                progress: &progress,
                round,
                threads,
            };
            let mut ram = None;
            if measured.kernel.is_some() && !interrupt::happened() {
                match bench.kernel(&measured) {
                    Ok(Some(run)) => {
                        ram = run.ram_mib;
                        runs.push(run);
                    }
                    Ok(None) => {}
                    Err(why) => {
                        let why = format!("the kernel's zswap: {why:#}");
                        progress.say(&format!("SKIPPED {why}"));
                        skipped = Some(why);
                        measured.kernel = None;
                        runs.retain(|run: &Run| run.side != Side::KernelZswap);
                    }
                }
            }
            // Without a kernel to compare with: about what its pool would have taken.
            let ram = ram.unwrap_or(measured.limit_mib + options.mib * 3 / 16);
            runs.extend(bench.uzswap(ram)?);
            runs.extend(bench.native()?);
        }
        if interrupt::happened() {
            break;
        }
        measured.rounds.push(calibration.round());
        measured.runs.extend(runs);
    }
    ensure!(
        !measured.rounds.is_empty(),
        "interrupted before a round was complete"
    );
    Ok((measured, skipped))
}

/// Natively all of the work must fit.
fn check_memory(mib: u64) -> Result<()> {
    let text = fs::read_to_string("/proc/meminfo")?;
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

struct Bench<'a> {
    options: &'a Options,
    progress: &'a Progress,
    round: usize,
    threads: u32,
}

impl Bench<'_> {
    fn work(&self, mut command: Command) -> Command {
        command
            .args(["bench", "work", "--mib", &self.options.mib.to_string()])
            .args(["--threads", &self.threads.to_string()])
            .args(["--seed", &(self.round + 1).to_string()]);
        command
    }

    fn run(&self, side: Side, ram_mib: Option<u64>, output: Option<Output>) -> Result<Option<Run>> {
        self.progress.step();
        let Some(output) = output else {
            return Ok(None);
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.trim().lines().last().unwrap_or("");
        ensure!(
            output.status.success(),
            "the work ended with {}: {last}",
            output.status
        );
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().last().unwrap_or("");
        let work = serde_json::from_str(line).context("the work printed no figures")?;
        Ok(Some(Run {
            round: self.round,
            side,
            threads: self.threads,
            ram_mib,
            work,
        }))
    }

    fn say(&self, who: &str) {
        self.progress.at(&format!(
            "round {}, {} thread(s), {who}",
            self.round + 1,
            self.threads
        ));
    }

    fn native(&self) -> Result<Option<Run>> {
        self.say("native");
        let output = finish(&mut self.work(Command::new(&self.options.uzswap)), || {})?;
        self.run(Side::Native, None, output)
    }

    fn uzswap(&self, ram_mib: u64) -> Result<Option<Run>> {
        self.say("uzswap");
        let mut command = Command::new(&self.options.uzswap);
        command
            .args(["run", "--quiet", "--ram", &format!("{ram_mib}M")])
            .args(["--compressor", &self.options.compressor, "--"])
            .arg(&self.options.uzswap);
        let output = finish(&mut self.work(command), || {})?;
        self.run(Side::Uzswap, Some(ram_mib), output)
    }

    fn kernel(&self, measured: &Measured) -> Result<Option<Run>> {
        self.say("kernel zswap");
        let compressor = measured
            .kernel
            .as_deref()
            .ok_or_else(|| anyhow!("not asked for"))?;
        let limit = measured.limit_mib << 20;
        let mut kernel = Kernel::set_up(limit, compressor, (self.options.mib * 2) << 20)?;
        let mut command = self.work(Command::new(&self.options.uzswap));
        kernel.hold(&mut command)?;
        let output = finish(&mut command, || kernel.look())?;
        let pool = if kernel.charges_pool {
            0
        } else {
            kernel.pool_peak >> 20
        };
        self.run(Side::KernelZswap, Some(measured.limit_mib + pool), output)
    }
}

/// Runs a command to its end, calling `look` meanwhile; `None` if it was interrupted.
fn finish(command: &mut Command, mut look: impl FnMut()) -> Result<Option<Output>> {
    let mut child: Child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the work")?;
    let mut asked = false;
    while child.try_wait()?.is_none() {
        look();
        if interrupt::happened() && !asked {
            asked = true;
            // SAFETY: no memory effects; the child is not reaped yet.
            unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = child.wait_with_output()?;
    Ok((!interrupt::happened()).then_some(output))
}
