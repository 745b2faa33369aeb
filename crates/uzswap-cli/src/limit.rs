//! The limit of a run, `--ram`: what it is at the beginning, and how it is changed while the run goes on.
//!
//! *What*: processes read the limit from the group's knob `ram` with every page that they charge, so a higher one holds
//! at once. A lower one holds at once for what is charged from then on, and each process is asked to come down to it.
//!
//! *Invariants*
//! - `resident + pool + metadata <= ram_ceiling` for each process, at every moment. The ceiling is `ram`, except while
//!   `ram` is being lowered, when it is what that was: a process that cannot come down is not ended for it.
//! - Once [`change`] has lowered the limit and returned, it is the ceiling and no process is above it; but a fork child
//!   that had not begun by then may come down with its first fault only. If it could not, all is as it was. If it is
//!   killed halfway, the ceiling stays as it was and processes keep trying.
//!
//! *Locking*: none; of two at once, one is told. *Context*: `uzswap run` and `uzswap set`.

use std::collections::HashSet;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use uzswap_compress::Codec;
use uzswap_core::min_ram;
use uzswap_group::group::{Group, Process};
use uzswap_group::request::COME_DOWN;

use crate::ask::{LOOK, ask, is_there, must_be_near, spinner};
use crate::command::stat::live_processes;
use crate::failure::comm;
use crate::size::Size;

/// How long a process may be unable to be asked, as it starts a program or is asked by somebody else.
const READY: Duration = Duration::from_secs(2);

/// The least limit that works on this machine.
pub fn least(codec: Codec) -> Size {
    Size(min_ram(codec).next_multiple_of(1 << 20))
}

/// Sets the limit of a group that nobody uses yet, bytes.
pub fn begin(group: &Group, ram: u64) {
    let ram = ram & !0xfff;
    group.knobs.ram.store(ram, Relaxed);
    group.config.ram_ceiling.store(ram, Relaxed);
}

/// Changes the limit of the group of process `pid` to `ram` bytes.
///
/// # Errors
/// Some process cannot come down to it, or cannot be asked to: nothing was changed.
pub fn change(group: &Group, pid: u32, ram: u64) -> Result<()> {
    let ram = ram & !0xfff;
    let ceiling = &group.config.ram_ceiling;
    if ram >= ceiling.load(SeqCst) {
        ceiling.store(ram, SeqCst);
        group.knobs.ram.store(ram, SeqCst);
        return Ok(());
    }
    must_be_near(pid)?;
    let before = group.knobs.ram.swap(ram, SeqCst);
    let highest = ceiling.load(SeqCst);
    let lowered = come_down(group).and_then(|()| {
        let lowered = ceiling.compare_exchange(highest, ram, SeqCst, SeqCst);
        if group.knobs.ram.load(SeqCst) != ram || lowered.is_err() {
            bail!("another 'uzswap set' changes it, too");
        }
        // Whoever charged up to the ceiling before that.
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

/// Has every process come down to the limit, also those that begin meanwhile.
fn come_down(group: &Group) -> Result<()> {
    let waiting = spinner();
    let mut asked = HashSet::new();
    let pid_of = |process: &Process| process.pid.load(Relaxed);
    while let Some(process) = live_processes(group).find(|p| !asked.contains(&pid_of(p))) {
        let (pid, name) = (pid_of(process), comm(&process.comm));
        waiting.set_message(format!("{name} ({pid}) comes down"));
        let over = ask_in_time(process, pid)?;
        if over > 0 {
            bail!(
                "{name} ({pid}) would have to free {} more: the rest is in use, held by system calls, or does not fit",
                Size(over)
            );
        }
        asked.insert(pid);
    }
    waiting.finish_and_clear();
    Ok(())
}

/// Bytes that process `pid` has above the limit after it was asked; one that just starts a program is asked again.
fn ask_in_time(process: &Process, pid: u32) -> Result<u64> {
    let began = Instant::now();
    loop {
        match ask(process, COME_DOWN, 0) {
            Ok(done) => return Ok(done.over),
            // It is gone, and its memory with it.
            Err(_) if process.pid.load(Relaxed) != pid || !is_there(pid) => return Ok(0),
            Err(error) if began.elapsed() > READY => return Err(error),
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}
