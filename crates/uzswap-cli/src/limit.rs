//! *What*: the limit of a run, `--ram`: its initial value, and how `uzswap set` changes it.
//!
//! Processes read the knob `ram` each time they charge a page, so a higher limit holds at once. A
//! lower one holds at once for new charges; each process is then asked to come down to it.
//!
//! *Invariants*
//! - `resident + pool + metadata <= ram_ceiling` for each process at every moment. The ceiling is
//!   `ram`, but while `ram` is being lowered it is the previous limit, so that no process is ended
//!   because it cannot come down.
//! - When [`change`] returns after lowering the limit, the ceiling is the new limit and no process
//!   is above it. One exception: a fork child that had not started yet may come down at its first
//!   fault. If [`change`] fails, nothing has changed. If it is killed halfway, the ceiling stays
//!   and processes keep trying.
//!
//! *Locking*: none; of two concurrent changes one fails. *Context*: `uzswap run`, `uzswap set`.

use std::collections::HashSet;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use uzswap_compress::Codec;
use uzswap_core::min_ram;
use uzswap_group::group::{Group, Process};
use uzswap_group::request::RequestKind;

use crate::group_view::{label, live_processes, pid_of};
use crate::request::{POLL_INTERVAL, check_pid_namespace, has_program, send, spinner};
use crate::size::Size;

/// How long a process may refuse requests because it starts a program or serves another request.
const MAX_BUSY_TIME: Duration = Duration::from_secs(2);

/// The lowest limit that works on this machine.
pub fn min_limit(codec: Codec) -> Size {
    Size(min_ram(codec).next_multiple_of(1 << 20))
}

/// Sets the initial limit of a group that has no processes yet, bytes.
pub fn begin(group: &Group, ram: u64) {
    let ram = ram & !0xfff;
    group.knobs.ram.store(ram, Relaxed);
    group.config.ram_ceiling.store(ram, Relaxed);
}

/// Changes the limit of the group of process `pid` to `ram` bytes.
///
/// # Errors
/// A process cannot come down to the limit or does not answer. Nothing has changed then.
pub fn change(group: &Group, pid: u32, ram: u64) -> Result<()> {
    let ram = ram & !0xfff;
    let ceiling = &group.config.ram_ceiling;
    if ram >= ceiling.load(SeqCst) {
        ceiling.store(ram, SeqCst);
        group.knobs.ram.store(ram, SeqCst);
        return Ok(());
    }
    check_pid_namespace(pid)?;
    let before = group.knobs.ram.swap(ram, SeqCst);
    let highest = ceiling.load(SeqCst);
    let lowered = come_down(group).and_then(|()| {
        let lowered = ceiling.compare_exchange(highest, ram, SeqCst, SeqCst);
        if group.knobs.ram.load(SeqCst) != ram || lowered.is_err() {
            bail!("another 'uzswap set' is changing it: try again");
        }
        // Processes may have charged up to the old ceiling before the exchange.
        come_down(group)
    });
    lowered.map_err(|error| {
        ceiling.fetch_max(highest, SeqCst);
        let _ = group
            .knobs
            .ram
            .compare_exchange(ram, before, SeqCst, SeqCst);
        anyhow!("ram was not changed: {error}")
    })
}

/// Has every process come down to the limit, including those that start meanwhile.
fn come_down(group: &Group) -> Result<()> {
    let waiting = spinner();
    let mut asked = HashSet::new();
    while let Some(process) = live_processes(group).find(|p| !asked.contains(&pid_of(p))) {
        let (pid, who) = (pid_of(process), label(process));
        waiting.set_message(format!("{who} evicts memory"));
        let over = ask_in_time(process, pid)?;
        if over > 0 {
            bail!(
                "{who} is still {} above it: its memory is in use, held by system calls, or cannot be \
                 swapped",
                Size(over)
            );
        }
        asked.insert(pid);
    }
    waiting.finish_and_clear();
    Ok(())
}

/// Has process `pid` come down. Returns the bytes it still has above the limit.
fn ask_in_time(process: &Process, pid: u32) -> Result<u64> {
    let began = Instant::now();
    loop {
        match send(process, RequestKind::ComeDown, 0) {
            Ok(done) => return Ok(done.over),
            Err(_) if pid_of(process) != pid || !has_program(pid) => return Ok(0),
            Err(error) if began.elapsed() > MAX_BUSY_TIME => return Err(error),
            Err(_) => std::thread::sleep(POLL_INTERVAL),
        }
    }
}
