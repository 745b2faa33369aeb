//! *What*: requests to managed processes, to free memory or to bring it back: what `uzswap
//! reclaim`, `set` and `swapoff` have in common.
//!
//! *Invariants*: SIGSYS is sent to a process only after its request door was taken; see
//! [`uzswap_group::request`]. If this program is killed, the process finishes its request alone.
//! *Locking*: none. *Context*: one thread.

use std::io::{Error, IsTerminal, stderr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use uzswap_group::group::Process;
use uzswap_group::request::{Door, Request, RequestKind, VALUE};

use crate::group_file::{Managed, is_managed};
use crate::group_view::pid_of;

/// How often a process's answer is looked for.
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long a process may take to accept a request. A stopped one never does.
const MAX_ACCEPT_TIME: Duration = Duration::from_secs(10);

/// The outcome of a request, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Evicted, written back or brought back.
    pub done: u64,
    /// RAM freed.
    pub freed: u64,
}

/// On a terminal, shows what is being waited for.
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

/// Fails unless process `pid` is in this pid namespace, where the group's pids mean the same.
pub fn check_pid_namespace(pid: u32) -> Result<()> {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    if namespace("self") != namespace(&pid.to_string()) {
        bail!("process {pid} is in another pid namespace: run this command in that namespace");
    }
    Ok(())
}

/// Whether process `pid` runs a program. A zombie does not.
pub fn has_program(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}/exe")).exists()
}

/// Sends a request to one process and waits for its end.
pub fn send(process: &Process, what: RequestKind, wanted: u64) -> Result<Done> {
    send_older(process, what, wanted, Request::ANY_TIME)
}

/// As [`send`]; evicts only what was put on its list before tick `before`.
pub fn send_older(process: &Process, what: RequestKind, wanted: u64, before: u64) -> Result<Done> {
    let request = &process.request;
    let own = std::process::id();
    let pid = announce(process, what, wanted, before)?;
    let began = Instant::now();
    loop {
        match request.door.load(Ordering::Acquire) {
            Door::Shut => {
                bail!("process {pid} started another program before it was done: try again")
            }
            Door::Working => {}
            door if door != (Door::Ringing { pid: own }) => break,
            _ if began.elapsed() > MAX_ACCEPT_TIME && request.give_up(own) => bail!(
                "process {pid} did not answer within {} s: it is stopped, or very busy",
                MAX_ACCEPT_TIME.as_secs()
            ),
            _ => {}
        }
        if !has_program(pid) {
            bail!("process {pid} ended before it was done");
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(Done {
        done: request.done.load(Ordering::Relaxed),
        freed: request.freed.load(Ordering::Relaxed),
    })
}

/// Sends a request to one process, whose id it returns: `what`, and to evict only what is older
/// than tick `before`.
pub fn announce(process: &Process, what: RequestKind, wanted: u64, before: u64) -> Result<u32> {
    let (request, own) = (&process.request, std::process::id());
    request.ring(own).map_err(|door| {
        let pid = pid_of(process);
        match door {
            Door::Shut => anyhow!("process {pid} is starting or ending a program: try again"),
            _ => anyhow!(
                "process {pid} serves another 'uzswap reclaim', 'set' or 'swapoff': try again later"
            ),
        }
    })?;
    // Only now: before, the record may have become another's.
    let pid = pid_of(process);
    // Any process of the run may write this number, and SIGSYS ends whoever does not expect it.
    if is_managed(pid) == Managed::No {
        request.take_back(own);
        bail!("process {pid} is not managed: it runs another program, or never was");
    }
    request.ask(what, wanted, before);
    if let Err(error) = signal(pid) {
        request.take_back(own);
        bail!("cannot signal process {pid}: {error}");
    }
    Ok(pid)
}

/// Sends the signal that announces a request.
fn signal(pid: u32) -> Result<(), Error> {
    let value = libc::sigval {
        sival_ptr: std::ptr::without_provenance_mut(VALUE.unsigned_abs() as usize),
    };
    // SAFETY: the process handles SIGSYS, since its door was open. The value is a plain number.
    match unsafe { libc::sigqueue(pid.cast_signed(), libc::SIGSYS, value) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}
