//! *What*: the limits of a group: `--ram`, which is the root's, `--ram-per-process`, and those of
//! the nodes in it: their initial values, and how `uzswap set` changes them.
//!
//! Processes read the knobs each time they ask for more pages, so a higher limit holds at once. A
//! lower one holds at once for what is asked for from then on; processes are then asked to come
//! down to it, each by its part of what is too much.
//!
//! A limit that follows what its surroundings leave is lowered by the supervisor ([`follow`]),
//! without waiting for the processes.
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

use std::cmp::Reverse;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use uzswap_compress::Codec;
use uzswap_core::min_ram;
use uzswap_group::follow::Follows;
use uzswap_group::group::{Group, Process};
use uzswap_group::request::RequestKind;
use uzswap_sync::ledger::Level;
use uzswap_sync::node::{Most, Path};

use crate::group_view::{PAGE, Part, Sizes, is_alive, label, live_processes, name_of_path, pid_of};
use crate::request::{POLL_INTERVAL, check_pid_namespace, has_program, send, spinner};
use crate::size::Size;

/// How long a process may refuse requests because it starts a program or serves another request.
const MAX_BUSY_TIME: Duration = Duration::from_secs(2);
/// Rounds of requests for what is above a new `high`: what is evicted takes memory in the pool.
const MAX_HIGH_ROUNDS: u32 = 3;
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

/// Makes the limit of the tree `to`, if it is still `from`. Whoever is above it then comes down
/// when it is asked: until nobody is, the limit before is the ceiling. Whether it was so.
pub fn follow(group: &Group, from: u64, to: u64) -> bool {
    let (knob, ceiling) = (ROOT.cell(group), ROOT.ceiling(group));
    let highest = ceiling.load();
    if group.follow.what.load(SeqCst) == Follows::Nothing {
        return false;
    }
    // A user who sets the limit meanwhile changes either of them.
    let raised = to <= highest || ceiling.change(highest, to);
    raised && knob.change(from, to)
}

/// Makes the limit that follows the ceiling again, once nobody is above it.
pub fn settle(group: &Group) {
    let (limit, ceiling) = (ROOT.cell(group).load(), ROOT.ceiling(group));
    let highest = ceiling.load();
    if limit < highest && over(group, Path::ROOT) == 0 {
        ceiling.change(highest, limit);
    }
}

/// Has the limit of the tree follow what its surroundings leave, and waits until it does.
pub fn start_following(group: &Group) {
    group.follow.what.turn(Follows::Nothing, Follows::Asked);
    let began = Instant::now();
    while group.follow.what.load(SeqCst) == Follows::Asked && began.elapsed() < MAX_BUSY_TIME {
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Sets the initial limit of a node that has no processes yet.
pub fn begin_node(group: &Group, path: Path, bytes: u64) {
    let limit = Limit::Node(path);
    limit.ceiling(group).swap(bytes & !(PAGE - 1));
    limit.cell(group).swap(bytes & !(PAGE - 1));
}

/// That a node's limit is above that of one that it lies in, if so.
pub fn above_parent(group: &Group, path: Path) -> Option<String> {
    let own = group.limit_of(path.last());
    let least = path.nodes().map(|nr| (group.limit_of(nr), nr)).min()?;
    (own != Most::NONE && least.0 < own).then(|| {
        let parent = group.ledger.node(least.1).path.load();
        let name = |path| name_of_path(group, path).unwrap_or_default();
        format!(
            "{} may have {}, but {} only {}: the least holds",
            name(path),
            Size(own),
            name(parent),
            Size(least.0)
        )
    })
}

/// Whose limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Of all processes in the node of that path.
    Node(Path),
    /// Of each process.
    Process,
}

/// The limit of a whole tree.
const ROOT: Limit = Limit::Node(Path::ROOT);

impl Limit {
    /// Where it stands.
    fn cell(self, group: &Group) -> Cell<'_> {
        match self {
            Limit::Node(Path::ROOT) => Cell::Knob(&group.knobs.ram),
            Limit::Node(path) => Cell::Most(&group.ledger.node(path.last()).max),
            Limit::Process => Cell::Optional(&group.knobs.ram_per_process),
        }
    }

    fn ceiling(self, group: &Group) -> Cell<'_> {
        match self {
            Limit::Node(Path::ROOT) => Cell::Knob(&group.config.ram_ceiling),
            Limit::Node(path) => Cell::Most(&group.ledger.node(path.last()).ceiling),
            Limit::Process => Cell::Optional(&group.config.ram_per_process_ceiling),
        }
    }

    fn name(self, group: &Group) -> String {
        match self {
            Limit::Process => "ram_per_process".to_owned(),
            Limit::Node(path) => match name_of_path(group, path) {
                Some(name) => format!("max of {name}"),
                None => "ram".to_owned(),
            },
        }
    }

    /// Processes that have to free memory, and how many bytes each.
    pub fn excess(self, group: &Group) -> Vec<(&Process, u64)> {
        let share = |process| group.share_of(process);
        match self {
            Limit::Process => {
                let most = self.cell(group).load() / PAGE;
                let over = live_processes(&Part::all(group)).map(|process| {
                    let excess = || share(process).granted().saturating_sub(most);
                    share(process).take_back(excess());
                    (process, excess() * PAGE)
                });
                over.filter(|(_, bytes)| *bytes > 0).collect()
            }
            Limit::Node(path) => {
                let over = over(group, path);
                if over == 0 {
                    return Vec::new();
                }
                let part = Part::node(group, path);
                let mut used: Vec<_> = live_processes(&part)
                    .map(|process| (process, share(process).used()))
                    .collect();
                let is_free = |process: &Process| !is_below_low(group, process, path);
                if used
                    .iter()
                    .any(|(process, used)| *used > 0 && is_free(process))
                {
                    used.retain(|(process, _)| is_free(process));
                }
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

/// A limit in bytes; `u64::MAX`: there is none.
enum Cell<'a> {
    Knob(&'a AtomicU64),
    /// 0: there is none.
    Optional(&'a AtomicU64),
    Most(&'a Most),
}

impl Cell<'_> {
    fn load(&self) -> u64 {
        match self {
            Cell::Knob(cell) => cell.load(SeqCst),
            Cell::Optional(cell) => bytes_or_none(cell.load(SeqCst)),
            Cell::Most(cell) => cell.load(),
        }
    }

    fn swap(&self, bytes: u64) -> u64 {
        match self {
            Cell::Knob(cell) => cell.swap(bytes, SeqCst),
            Cell::Optional(cell) => bytes_or_none(cell.swap(or_zero(bytes), SeqCst)),
            Cell::Most(cell) => cell.swap(bytes),
        }
    }

    /// `false`: it is not `before` any more.
    fn change(&self, before: u64, bytes: u64) -> bool {
        let exchange = |cell: &AtomicU64, before, bytes| {
            let changed = cell.compare_exchange(before, bytes, SeqCst, SeqCst);
            changed.is_ok()
        };
        match self {
            Cell::Knob(cell) => exchange(cell, before, bytes),
            Cell::Optional(cell) => exchange(cell, or_zero(before), or_zero(bytes)),
            Cell::Most(cell) => cell.change(before, bytes),
        }
    }
}

/// The nodes of a group.
pub fn nodes(group: &Group) -> impl Iterator<Item = Path> {
    (0..group.nr_nodes()).map(|nr| group.ledger.node(nr).path.load())
}

/// What a node holds, and its limit.
pub fn level(group: &Group, path: Path) -> Level {
    let mut level = group.ledger.held_on(path).last();
    let (node, presumed) = (level.node, level.held.presumed);
    level.limit = group.ledger.grantable(node, group.limit_of(node), presumed);
    level
}

/// Pages that a node is above its limit, with all that nobody uses taken back.
pub fn over(group: &Group, path: Path) -> u64 {
    used_beyond(group, path, || level(group, path).excess())
}

/// How many pages are `too_many` with all that nobody uses of them taken back.
fn used_beyond(group: &Group, path: Path, too_many: impl Fn() -> u64) -> u64 {
    let mut left = too_many();
    if left == 0 {
        return 0;
    }
    let shares = group.ledger.shares().iter();
    for share in shares.filter(|share| share.path().has(path.last())) {
        left -= share.take_back(left).min(left);
    }
    too_many()
}

/// 0 means that there is no limit.
const fn bytes_or_none(bytes: u64) -> u64 {
    match bytes {
        0 => u64::MAX,
        bytes => bytes,
    }
}

const fn or_zero(bytes: u64) -> u64 {
    match bytes {
        u64::MAX => 0,
        bytes => bytes,
    }
}

/// Changes a limit of the group of process `pid` to `bytes`; `u64::MAX`: to none. That of a tree
/// follows nothing then.
///
/// # Errors
/// Some process cannot come down to the limit or does not answer. Nothing has changed then.
pub fn change(group: &Group, pid: u32, limit: Limit, bytes: u64) -> Result<()> {
    if limit != ROOT {
        return change_to(group, pid, limit, bytes);
    }
    let followed = group.follow.what.swap(Follows::Nothing, SeqCst);
    let changed = change_to(group, pid, limit, bytes);
    if changed.is_err() && followed != Follows::Nothing {
        group.follow.what.turn(Follows::Nothing, Follows::Asked);
    }
    changed
}

fn change_to(group: &Group, pid: u32, limit: Limit, bytes: u64) -> Result<()> {
    let bytes = match bytes {
        u64::MAX => bytes,
        bytes => bytes & !(PAGE - 1),
    };
    let (knob, ceiling) = (limit.cell(group), limit.ceiling(group));
    if bytes >= ceiling.load() {
        ceiling.swap(bytes);
        knob.swap(bytes);
        return Ok(());
    }
    check_pid_namespace(pid)?;
    let before = knob.swap(bytes);
    let highest = ceiling.load();
    let lowered = come_down(group, limit).and_then(|()| {
        let lowered = ceiling.change(highest, bytes);
        if knob.load() != bytes || !lowered {
            bail!("another 'uzswap set' is changing it: try again");
        }
        // Processes may have charged up to the old ceiling before the exchange.
        come_down(group, limit)
    });
    lowered.map_err(|error| {
        let now = ceiling.load();
        if now < highest {
            ceiling.change(now, highest);
        }
        knob.change(bytes, before);
        anyhow!("{} was not changed: {error}", limit.name(group))
    })
}

/// Has the processes come down to the limit, including those that start meanwhile.
fn come_down(group: &Group, limit: Limit) -> Result<()> {
    let waiting = spinner();
    let (mut least, mut idle_rounds) = (u64::MAX, 0);
    loop {
        group.expire_dead(std::process::id(), is_alive);
        let excess = limit.excess(group);
        let sum: u64 = excess.iter().map(|(_, bytes)| bytes).sum();
        let is_over = matches!(limit, Limit::Node(path) if over(group, path) > 0);
        if excess.is_empty() && !is_over {
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

/// Whether a group within `path`, which a process is in, has no more than its `low`: it gives
/// something only if nobody else has any.
pub fn is_below_low(group: &Group, process: &Process, path: Path) -> bool {
    let own = group.share_of(process).path();
    group.ledger.above_low(own, path) == 0
}

/// Sets the `high` of a node, and has its processes evict what is above, the largest first: as far
/// as that goes. What is left is evicted by who needs more.
pub fn set_high(group: &Group, path: Path, bytes: u64) {
    group.ledger.node(path.last()).high.store(bytes);
    let above_high = || {
        let level = group.ledger.held_on(path).last();
        group.ledger.above_high(&level)
    };
    let above = || used_beyond(group, path, above_high) * PAGE;
    let part = Part::node(group, path);
    for _ in 0..MAX_HIGH_ROUNDS {
        let mut processes: Vec<_> = live_processes(&part).collect();
        processes.sort_by_key(|process| Reverse(Sizes::of(process).resident));
        for process in processes {
            match above() {
                0 => return,
                above => drop(send(process, RequestKind::Evict, above)),
            }
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
