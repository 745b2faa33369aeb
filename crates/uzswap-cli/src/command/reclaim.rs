//! `uzswap reclaim PID SIZE`: asks managed processes to evict memory, or to write what is compressed to
//! swap, and waits until they have.
//!
//! *Invariants*: SIGSYS is sent only to a process whose door this one has turned: see
//! [`uzswap_core::request`]. *Context*: one thread; if it is killed, a process that was asked goes on alone.

use std::io::{Error, IsTerminal, stderr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use uzswap_core::group::{Group, Process};
use uzswap_core::knobs::is_on;
use uzswap_core::request::{EVICT, SHUT, VALUE, WORKING, WRITE_BACK, ringing};

use crate::args::Reclaim;
use crate::command::print;
use crate::command::stat::live_processes;
use crate::failure::comm;
use crate::group_file::{self, Access};
use crate::size::Size;
use crate::status;

/// How often a process is looked at that works on what it is asked.
const LOOK: Duration = Duration::from_millis(20);
/// How long a process may take to answer the signal; one that is stopped never does.
const ANSWER: Duration = Duration::from_secs(10);

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    /// Bytes evicted, or written back.
    done: u64,
    /// Bytes of RAM that are free by it.
    freed: u64,
}

/// Asks process `options.pid`, or all processes of the run if that is 'uzswap run' itself.
pub fn reclaim(options: &Reclaim) -> Result<u8> {
    let Size(wanted) = options.size;
    let group = group_file::of_process(options.pid, Access::Change)?;
    let what = if options.writeback_only {
        if group.config.swap.nr_slots() == 0 {
            bail!("there is no swap device to write to: see 'uzswap run --swap'");
        }
        if !is_on(&group.knobs.writeback) {
            bail!(
                "writing to swap is off: 'uzswap set {} writeback=on'",
                options.pid
            );
        }
        WRITE_BACK
    } else {
        EVICT
    };
    let waiting = spinner();
    let mut sum = Done::default();
    let mut asked = Vec::new();
    for process in processes(&group, options.pid)? {
        if sum.done >= wanted {
            break;
        }
        let name = comm(&process.comm);
        let pid = process.pid.load(Ordering::Relaxed);
        waiting.set_message(format!("{name} ({pid}) reclaims"));
        let Done { done, freed } = ask(process, what, wanted - sum.done)?;
        asked.push(json!({ "pid": pid, "name": name, "reclaimed": done, "freed": freed }));
        sum.done += done;
        sum.freed += freed;
    }
    waiting.finish_and_clear();
    let verb = if what == EVICT {
        "evicted"
    } else {
        "written back"
    };
    let Done { done, freed } = sum;
    print(&if options.json {
        let all = json!({
            "asked": wanted, "reclaimed": done, "freed": freed, "writeback_only": what == WRITE_BACK,
            "processes": asked,
        });
        serde_json::to_string_pretty(&all)? + "\n"
    } else {
        format!(
            "{verb} {}, which freed {} of RAM\n",
            Size(done),
            Size(freed)
        )
    })?;
    if done >= wanted {
        return Ok(0);
    }
    eprintln!(
        "uzswap: only {} of {} could be {verb}: the rest is in use, held by system calls, or does not fit",
        Size(done),
        Size(wanted)
    );
    Ok(status::FAILURE)
}

fn spinner() -> ProgressBar {
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
fn processes(group: &Group, pid: u32) -> Result<Vec<&Process>> {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    if namespace("self") != namespace(&pid.to_string()) {
        bail!("process {pid} is in another pid namespace: run this there");
    }
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

/// Has one process do it.
fn ask(process: &Process, what: u32, wanted: u64) -> Result<Done> {
    let request = &process.request;
    let pid = process.pid.load(Ordering::Relaxed);
    let own = std::process::id();
    request.ring(own).map_err(|door| match door {
        SHUT => anyhow!("process {pid} cannot be asked just now: it starts or ends a program"),
        _ => anyhow!("process {pid} is asked by another 'uzswap reclaim': try again later"),
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
        // Not even by a zombie's.
        if !std::path::Path::new(&format!("/proc/{pid}/exe")).exists() {
            bail!("process {pid} ended meanwhile");
        }
        std::thread::sleep(LOOK);
    }
    Ok(Done {
        done: request.done.load(Ordering::Relaxed),
        freed: request.freed.load(Ordering::Relaxed),
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
