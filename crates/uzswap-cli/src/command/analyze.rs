//! *What*: `uzswap analyze`: runs the command or watches the process, measures what a fault costs
//! here, and with `--verify` checks the prediction. How it predicts is in `uzswap-analyze`.
//!
//! *Locking*: none. *Context*: one thread.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;
use uzswap_analyze::advice::{Advice, Analysis, range};
use uzswap_analyze::contents::{Contents, Sample};
use uzswap_analyze::cost::{Machine, probe};
use uzswap_analyze::observe::{self, Observed};
use uzswap_analyze::process;
use uzswap_corpus::Scratch;
use uzswap_corpus::interrupt;

use super::with_status;
use crate::args::Analyze;
use crate::group_file::{self, Access};
use crate::size::Size;
use crate::status::{INTERRUPTED, NOT_EXECUTABLE, USAGE, refused};
use crate::supervise;
use crate::target::{self, Way};

/// The outcome of a run with the advised options.
#[derive(Debug, Serialize)]
struct Verified {
    /// Additional processor time, as a part of the time without uzswap.
    slower: f64,
    cpu_s: f64,
    wall_s: f64,
    native_cpu_s: f64,
    native_wall_s: f64,
    refaults: u64,
    exit_status: i32,
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    analysis: &'a Analysis,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<&'a Verified>,
}

/// Watches and predicts.
pub fn analyze(options: &Analyze) -> Result<u8> {
    if options.probe {
        println!("{}", probe::work(std::io::stdin().lock())?);
        return Ok(0);
    }
    interrupt::catch();
    with_status(
        options
            .pid
            .map_or_else(|| of_command(options), |pid| of_process(pid, options)),
    )
}

fn of_process(pid: u32, options: &Analyze) -> Result<u8> {
    process::check(pid)?;
    if group_file::of_process(pid, Access::Read).is_ok() {
        return Err(refused!(
            USAGE,
            "process {pid} runs under uzswap already: see 'uzswap stat {pid}'"
        ));
    }
    let seen = observe::one(pid, options.time);
    let interrupted = interrupt::take();
    let cpu_s = seen.histories.iter().map(|life| life.cpu_s).sum();
    let analysis = Analysis::of(&seen, cpu_s, measure)?;
    show(options, &analysis, None, interrupted)
}

fn of_command(options: &Analyze) -> Result<u8> {
    let name = options
        .command
        .first()
        .context("no command to run: write it after --")?;
    let target = target::find(name, std::env::var_os("PATH").as_deref())?;
    if let Way::Unmanaged(why) = &target.way {
        return Err(refused!(
            USAGE,
            "{why}: uzswap cannot manage it, so there is nothing to predict"
        ));
    }
    if group_file::enclosing_run().is_some() {
        bail!("this command already runs under 'uzswap run': analyze it without");
    }
    let before = cpu_seconds();
    let mut child = start(options, &[])?;
    let (seen, status) = observe::command(&mut child)?;
    // Another ^C ends the prediction.
    let interrupted = interrupt::take();
    let cpu_s = cpu_seconds() - before;
    if !status.success() && !interrupted {
        eprintln!(
            "uzswap: the command failed ({status}): what follows holds for what it did until then"
        );
    }
    let analysis = Analysis::of(&seen, cpu_s, measure)?;
    let verified = match &analysis.advice {
        Some(advice) if options.verify && !interrupted => {
            Some(verify(options, advice, &seen, cpu_s)?)
        }
        _ => None,
    };
    show(options, &analysis, verified.as_ref(), interrupted)
}

fn show(
    options: &Analyze,
    analysis: &Analysis,
    verified: Option<&Verified>,
    interrupted: bool,
) -> Result<u8> {
    let text = if options.json {
        serde_json::to_string_pretty(&Shown { analysis, verified })? + "\n"
    } else {
        let mut text = analysis.to_string();
        if let (Some(verified), Some(advice)) = (verified, &analysis.advice) {
            text += &compare(verified, advice);
        }
        text
    };
    super::print(&text)?;
    Ok(if interrupted { INTERRUPTED } else { 0 })
}

fn compare(verified: &Verified, advice: &Advice) -> String {
    let expected = &advice.expected;
    let judged = if verified.slower > expected.high {
        "worse than expected"
    } else if verified.slower < expected.low {
        "better than expected"
    } else {
        "as expected"
    };
    let word = if verified.slower < 0.0 {
        "faster"
    } else {
        "slower"
    };
    let mut text = format!(
        "verified: {:.0} % {word}, {judged} ({} expected): {:.2} s of processor time instead of {:.2} s, {:.2} s of wall time instead of \
         {:.2} s, {} pages back\n",
        verified.slower.abs() * 100.0,
        range(expected),
        verified.cpu_s,
        verified.native_cpu_s,
        verified.wall_s,
        verified.native_wall_s,
        verified.refaults,
    );
    if verified.exit_status != 0 {
        text += &format!("verified: it ended with status {}\n", verified.exit_status);
    }
    text
}

/// Starts the command with `prefix` before it. It dies with us, and gets no huge pages, which would
/// hide the pages that it touches.
fn start(options: &Analyze, prefix: &[&OsStr]) -> Result<Child> {
    let words: Vec<&OsStr> = prefix
        .iter()
        .copied()
        .chain(options.command.iter().map(OsString::as_os_str))
        .collect();
    let (name, arguments) = words.split_first().context("no command")?;
    let mut command = Command::new(name);
    command.args(arguments);
    if options.json {
        let stderr = std::io::stderr().as_fd().try_clone_to_owned()?;
        command.stdout(stderr);
    }
    // SAFETY: the closure only makes system calls.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
            Ok(())
        });
    }
    command.spawn().map_err(|why| {
        let name = name.display();
        refused!(NOT_EXECUTABLE, "{name}: cannot be executed: {why}")
    })
}

/// CPU time of all children that have ended.
fn cpu_seconds() -> f64 {
    let (user, system) = supervise::cpu_seconds();
    user + system
}

/// Runs the command with the advised options.
fn verify(
    options: &Analyze,
    advice: &Advice,
    seen: &Observed,
    native_cpu_s: f64,
) -> Result<Verified> {
    eprintln!(
        "uzswap: once more, with --ram {} --compressor {}",
        Size(advice.ram),
        advice.compressor
    );
    let scratch = Scratch::new()?;
    let stats = scratch.path().join("stats.json");
    let before = cpu_seconds();
    let ram = advice.ram;
    let own = std::env::current_exe().context("cannot find the uzswap binary")?;
    let options_of_run = format!(
        "run --quiet --ram {ram} --compressor {} --stats",
        advice.compressor
    );
    let mut words = vec![own.as_os_str()];
    words.extend(options_of_run.split(' ').map(OsStr::new));
    words.extend([stats.as_os_str(), OsStr::new("--")]);
    let begin = std::time::Instant::now();
    let status = start(options, &words)?.wait()?;
    let wall_s = begin.elapsed().as_secs_f64();
    let cpu_s = cpu_seconds() - before;
    Ok(Verified {
        slower: cpu_s / native_cpu_s.max(0.01) - 1.0,
        cpu_s,
        wall_s,
        native_cpu_s,
        native_wall_s: seen.seconds,
        refaults: read_stats(&stats)?["refaults"].as_u64().unwrap_or(0),
        exit_status: status.code().unwrap_or(-1),
    })
}

fn read_stats(path: &Path) -> Result<Value> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

/// The cost of a fault here, measured by a short run with these contents.
fn measure(contents: &Contents, sample: &Sample) -> Machine {
    measured(contents, sample).unwrap_or(Machine::UNKNOWN)
}

/// None if it cannot be measured: no userfaultfd, or contents that do not compress.
fn measured(contents: &Contents, sample: &Sample) -> Option<Machine> {
    let ram = probe::ram(contents)?;
    let scratch = Scratch::new().ok()?;
    let stats = scratch.path().join("stats.json");
    let own = std::env::current_exe().ok()?;
    let mut child = Command::new(&own)
        .args("run --quiet --compressor lz4 --swap none --ram".split(' '))
        .arg(ram.to_string())
        .arg("--stats")
        .arg(&stats)
        .arg("--")
        .arg(&own)
        .args(["analyze", "--probe"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    child.stdin.take()?.write_all(sample.bytes()).ok()?;
    let mut cpu_s = String::new();
    child.stdout.take()?.read_to_string(&mut cpu_s).ok()?;
    child.wait().ok()?;
    let refaults = read_stats(&stats).ok()?["refaults"].as_u64()?;
    probe::machine(contents, cpu_s.trim().parse().ok()?, refaults)
}
