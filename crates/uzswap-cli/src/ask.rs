//! Asking managed processes to free memory: what `uzswap reclaim` and `uzswap set ram` have in common.
//!
//! *Invariants*: SIGSYS is sent only to a process whose door this one has turned: see
//! [`uzswap_group::request`]. *Context*: one thread; if it is killed, a process that was asked goes on alone.

use std::io::{Error, IsTerminal, stderr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use uzswap_group::group::{Group, Process};
use uzswap_group::request::{SHUT, VALUE, WORKING, ringing};

use crate::command::stat::live_processes;

/// How often a process is looked at that works on what it is asked.
pub const LOOK: Duration = Duration::from_millis(20);
/// How long a process may take to answer the signal; one that is stopped never does.
const ANSWER: Duration = Duration::from_secs(10);

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Bytes evicted, written back or brought back.
    pub done: u64,
    /// Bytes of RAM that are free by it.
    pub freed: u64,
    /// Bytes that the process has above its limit.
    pub over: u64,
}

/// Says on a terminal what is waited for.
pub fn spinner() -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let waiting = ProgressBar::new_spinner().with_style(
        ProgressStyle::with_template("{spinner} {msg}, {elapsed}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    waiting.enable_steady_tick(Duration::from_millis(100));
    waiting
}

/// Whom to ask: the process of that number, else, of a supervisor's, those with most in RAM first.
pub fn processes(group: &Group, pid: u32) -> Result<Vec<&Process>> {
    must_be_near(pid)?;
    let mut live: Vec<_> = live_processes(group).collect();
    let number = |process: &&Process| process.pid.load(Ordering::Relaxed);
    if let Some(own) = live.iter().find(|process| number(process) == pid) {
        return Ok(vec![own]);
    }
    if group.supervisor.load(Ordering::Relaxed) != pid || live.is_empty() {
        bail!("process {pid} manages no memory");
    }
    live.sort_by_key(|process| {
        std::cmp::Reverse(process.counters.resident.load(Ordering::Relaxed))
    });
    Ok(live)
}

/// Whether the numbers of its processes mean the same here.
pub fn must_be_near(pid: u32) -> Result<()> {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    if namespace("self") != namespace(&pid.to_string()) {
        bail!("process {pid} is in another pid namespace: run this there");
    }
    Ok(())
}

/// Whether a process has a program: not even a zombie has.
pub fn is_there(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}/exe")).exists()
}

/// Has one process do it.
pub fn ask(process: &Process, what: u32, wanted: u64) -> Result<Done> {
    let request = &process.request;
    let pid = process.pid.load(Ordering::Relaxed);
    let own = std::process::id();
    request.ring(own).map_err(|door| match door {
        SHUT => anyhow!("process {pid} cannot be asked just now: it starts or ends a program"),
        _ => {
            anyhow!("process {pid} is asked by another 'uzswap reclaim' or 'set': try again later")
        }
    })?;
    request.what.store(what, Ordering::Relaxed);
    request.wanted.store(wanted, Ordering::Relaxed);
    request.done.store(0, Ordering::Relaxed);
    request.freed.store(0, Ordering::Relaxed);
    if let Err(error) = announce(pid) {
        // Nothing is on its way.
        request.open();
        bail!("cannot signal process {pid}: {error}");
    }
    let began = Instant::now();
    loop {
        match request.door.load(Ordering::Acquire) {
            SHUT => bail!("process {pid} went on to another program meanwhile"),
            WORKING => {}
            door if door != ringing(own) => break,
            _ if began.elapsed() > ANSWER && request.give_up(own) => bail!(
                "process {pid} did not answer within {} s: it is stopped, or very busy",
                ANSWER.as_secs()
            ),
            _ => {}
        }
        if !is_there(pid) {
            bail!("process {pid} ended meanwhile");
        }
        std::thread::sleep(LOOK);
    }
    Ok(Done {
        done: request.done.load(Ordering::Relaxed),
        freed: request.freed.load(Ordering::Relaxed),
        over: request.over.load(Ordering::Relaxed),
    })
}

/// Sends the signal that says that something is asked.
fn announce(pid: u32) -> Result<(), Error> {
    let value = libc::sigval {
        sival_ptr: std::ptr::without_provenance_mut(VALUE.unsigned_abs() as usize),
    };
    // SAFETY: the process handles SIGSYS: its door was open. The value is a number.
    match unsafe { libc::sigqueue(pid.cast_signed(), libc::SIGSYS, value) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}
