//! *What*: the limits of a run, `--ram` and `--ram-per-process`: their initial values, and how
//! `uzswap set` changes them.
//!
//! Processes read the knobs each time they ask for more pages, so a higher limit holds at once. A
//! lower one holds at once for what is asked for from then on; processes are then asked to come down
//! to it, each by its part of what is too much.
//!
//! *Invariants*
//! - What the processes are granted stays within the ceiling at every moment. The ceiling is the
//!   knob, but while that is being lowered it is the previous limit, so that no process is ended
//!   because it cannot come down.
//! - When [`change`] returns after lowering a limit, the ceiling is the new limit and nobody is
//!   above it. If it fails, nothing has changed. If it is killed halfway, the ceiling stays and
//!   processes keep trying.
//!
//! *Locking*: none; of two concurrent changes one fails. *Context*: `uzswap run`, `uzswap set`.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use uzswap_compress::Codec;
use uzswap_core::min_ram;
use uzswap_group::group::{Group, Process};
use uzswap_group::request::RequestKind;

use crate::group_view::{PAGE, is_alive, label, live_processes, pid_of};
use crate::request::{POLL_INTERVAL, check_pid_namespace, has_program, send, spinner};
use crate::size::Size;

/// How long a process may refuse requests because it starts a program or serves another request.
const MAX_BUSY_TIME: Duration = Duration::from_secs(2);
/// Rounds of requests in a row that bring nobody further down.
const MAX_IDLE_ROUNDS: u32 = 3;

/// The lowest limit that works on this machine.
pub fn min_limit(codec: Codec) -> Size {
    Size(min_ram(codec).next_multiple_of(1 << 20))
}

/// Sets the initial limits of a group that has no processes yet: `ram`, and what its knobs say of
/// each process.
pub fn begin(group: &Group, ram: u64) {
    let ram = ram & !(PAGE - 1);
    group.knobs.ram.store(ram, Relaxed);
    group.config.ram_ceiling.store(ram, Relaxed);
    let own = group.knobs.ram_per_process.load(Relaxed);
    group.config.ram_per_process_ceiling.store(own, Relaxed);
}

/// Whose limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Of all processes together.
    Group,
    /// Of each process.
    Process,
}

impl Limit {
    /// The limit's knob.
    fn knob(self, group: &Group) -> &AtomicU64 {
        match self {
            Limit::Group => &group.knobs.ram,
            Limit::Process => &group.knobs.ram_per_process,
        }
    }

    fn ceiling(self, group: &Group) -> &AtomicU64 {
        match self {
            Limit::Group => &group.config.ram_ceiling,
            Limit::Process => &group.config.ram_per_process_ceiling,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Limit::Group => "ram",
            Limit::Process => "ram_per_process",
        }
    }

    /// Processes that have to free memory, and how many bytes each.
    fn excess(self, group: &Group) -> Vec<(&Process, u64)> {
        let share = |process| group.share_of(process);
        let live = live_processes(group);
        match self {
            Limit::Process => {
                let most = bytes_or_none(group.knobs.ram_per_process.load(SeqCst)) / PAGE;
                let over = live.map(|process| {
                    let excess = || share(process).granted().saturating_sub(most);
                    share(process).take_back(excess());
                    (process, excess() * PAGE)
                });
                over.filter(|(_, bytes)| *bytes > 0).collect()
            }
            Limit::Group => {
                let over = over(group);
                if over == 0 {
                    return Vec::new();
                }
                let used: Vec<_> = live
                    .map(|process| (process, share(process).used()))
                    .collect();
                let total: u64 = used.iter().map(|(_, used)| used).sum();
                let part = |used: u64| (over * used).div_ceil(total.max(1)) * PAGE;
                let parts = used
                    .into_iter()
                    .map(|(process, used)| (process, part(used)));
                parts.filter(|(_, bytes)| *bytes > 0).collect()
            }
        }
    }
}

/// Pages that the group is above its limit, with all that nobody uses taken back.
pub fn over(group: &Group) -> u64 {
    let ledger = &group.ledger;
    let excess = || {
        let limit = ledger.grantable(group.knobs.ram.load(SeqCst));
        ledger.held().claimed.saturating_sub(limit)
    };
    let mut left = excess();
    for share in ledger.shares() {
        left -= share.take_back(left).min(left);
    }
    excess()
}

/// 0 means that there is no limit.
const fn bytes_or_none(bytes: u64) -> u64 {
    match bytes {
        0 => u64::MAX,
        bytes => bytes,
    }
}

/// Changes a limit of the group of process `pid` to `bytes`.
///
/// # Errors
/// Some process cannot come down to the limit or does not answer. Nothing has changed then.
pub fn change(group: &Group, pid: u32, limit: Limit, bytes: u64) -> Result<()> {
    let bytes = bytes & !(PAGE - 1);
    let (knob, ceiling) = (limit.knob(group), limit.ceiling(group));
    if bytes_or_none(bytes) >= bytes_or_none(ceiling.load(SeqCst)) {
        ceiling.store(bytes, SeqCst);
        knob.store(bytes, SeqCst);
        return Ok(());
    }
    check_pid_namespace(pid)?;
    let before = knob.swap(bytes, SeqCst);
    let highest = ceiling.load(SeqCst);
    let lowered = come_down(group, limit).and_then(|()| {
        let lowered = ceiling.compare_exchange(highest, bytes, SeqCst, SeqCst);
        if knob.load(SeqCst) != bytes || lowered.is_err() {
            bail!("another 'uzswap set' is changing it: try again");
        }
        // Processes may have charged up to the old ceiling before the exchange.
        come_down(group, limit)
    });
    lowered.map_err(|error| {
        let higher = |now| (bytes_or_none(now) < bytes_or_none(highest)).then_some(highest);
        let _ = ceiling.fetch_update(SeqCst, SeqCst, higher);
        let _ = knob.compare_exchange(bytes, before, SeqCst, SeqCst);
        anyhow!("{} was not changed: {error}", limit.name())
    })
}

/// Has the processes come down to the limit, including those that start meanwhile.
fn come_down(group: &Group, limit: Limit) -> Result<()> {
    let waiting = spinner();
    let (mut least, mut idle_rounds) = (u64::MAX, 0);
    loop {
        group.expire_dead(is_alive);
        let excess = limit.excess(group);
        let sum: u64 = excess.iter().map(|(_, bytes)| bytes).sum();
        if excess.is_empty() && (limit == Limit::Process || over(group) == 0) {
            waiting.finish_and_clear();
            return Ok(());
        }
        idle_rounds = if sum < least { 0 } else { idle_rounds + 1 };
        least = least.min(sum);
        if idle_rounds == MAX_IDLE_ROUNDS {
            let who: Vec<_> = excess.iter().map(|(process, _)| label(process)).collect();
            bail!(
                "{} still above it: the memory of {} is in use, held by system calls, or cannot be \
                 swapped",
                Size(sum),
                who.join(", "),
            );
        }
        for (process, bytes) in excess {
            waiting.set_message(format!("{} evicts memory", label(process)));
            ask_in_time(process, pid_of(process), bytes)?;
        }
    }
}

/// Has process `pid` free `bytes`.
fn ask_in_time(process: &Process, pid: u32, bytes: u64) -> Result<()> {
    let began = Instant::now();
    loop {
        match send(process, RequestKind::ComeDown, bytes) {
            Ok(_) => return Ok(()),
            Err(_) if pid_of(process) != pid || !has_program(pid) => return Ok(()),
            Err(error) if began.elapsed() > MAX_BUSY_TIME => return Err(error),
            Err(_) => std::thread::sleep(POLL_INTERVAL),
        }
    }
}
