//! One command, run to its end and measured from outside.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use uzswap_corpus::process::{descendants, proc_kib};
use uzswap_corpus::{Scratch, interrupt};

use super::Completed;

/// Interval at which a running command is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs a command to its end, calling `poll` meanwhile; `None` if that was interrupted. Its output
/// goes to files in `scratch`, so that it never waits for us. A command that takes longer than
/// `timeout` is terminated and has failed.
pub fn run(
    command: &mut Command,
    timeout: Option<Duration>,
    scratch: &Scratch,
    mut poll: impl FnMut(),
) -> Result<Option<Completed>> {
    let [out, err] = ["stdout", "stderr"].map(|name| scratch.path().join(name));
    let start = Instant::now();
    let child = command
        .stdin(Stdio::null())
        .stdout(File::create(&out)?)
        .stderr(File::create(&err)?)
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let pid = child.id().cast_signed();
    let mut terminated = false;
    let mut peak_kib = 0;
    let (status, usage) = loop {
        if let Some(ended) = wait(pid)? {
            break ended;
        }
        poll();
        peak_kib = anon_kib(child.id()).max(peak_kib);
        let late = timeout.is_some_and(|timeout| start.elapsed() > timeout);
        if (interrupt::happened() || late) && !terminated {
            terminated = true;
            // SAFETY: no memory effects; the child is not reaped yet.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    let wall_s = start.elapsed().as_secs_f64();
    if interrupt::happened() {
        return Ok(None);
    }
    if let Some(timeout) = timeout.filter(|&timeout| wall_s > timeout.as_secs_f64()) {
        bail!("it took longer than {:.1} s", timeout.as_secs_f64());
    }
    let errors = fs::read_to_string(&err).unwrap_or_default();
    ensure!(
        status == 0,
        "{} ended with {}: {}",
        command.get_program().display(),
        describe(status),
        errors
            .trim()
            .lines()
            .last()
            .unwrap_or("it printed no error")
    );
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    Ok(Some(Completed {
        stdout: String::from_utf8_lossy(&fs::read(&out)?).into_owned(),
        wall_s,
        cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        anon_mib: peak_kib.div_ceil(1024),
        ram_mib: None,
        disk: None,
        stats: serde_json::Value::Null,
    }))
}

/// Resident anonymous memory of `pid` and its live descendants, KiB. A reclaimer's is its
/// program's.
fn anon_kib(pid: u32) -> u64 {
    let name = |pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let own = |pid: &u32| name(*pid).trim_end() != "uzswap-reclaim";
    let of = |pid| proc_kib(&format!("/proc/{pid}/status"), "RssAnon:");
    descendants(pid)
        .into_iter()
        .filter(own)
        .filter_map(of)
        .sum()
}

/// Status and resource usage of a child if it has ended.
fn wait(pid: i32) -> Result<Option<(i32, libc::rusage)>> {
    let mut status = 0;
    // SAFETY: all zeroes is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to locals of the right type.
    let done = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
    match done {
        0 => Ok(None),
        -1 => Err(std::io::Error::last_os_error()).context("cannot wait for a child"),
        _ => Ok(Some((status, usage))),
    }
}

fn describe(status: i32) -> String {
    if libc::WIFSIGNALED(status) {
        format!("signal {}", libc::WTERMSIG(status))
    } else {
        format!("status {}", libc::WEXITSTATUS(status))
    }
}
