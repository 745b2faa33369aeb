//! *What*: the group: all `uzswap run` of one tree of groups, often a single one, and all processes
//! under them, in one shared file: the configuration, the live knobs, the nodes of the tree and the
//! runs in them, and a record for each process.
//! *Invariants*: the file is zero-filled and sized before `magic` is set; the configuration does
//! not change after that; a record belongs to the process whose pid it holds until its state is
//! [`ProcessState::Free`] again.
//! *Locking*: none. A record is claimed by compare-and-swap on its state; all cells are atomics.
//! *Context*: mapped in every managed process, in `uzswap run` and in `uzswap stat`.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::follow::Follow;
use crate::knobs::Knobs;
#[cfg(not(loom))]
use uzswap_sync::charge::Membership;
use uzswap_sync::ledger::{Ledger, Share};
use uzswap_sync::node::{MAX_DEPTH, NR_NODES, Path};

pub use crate::config::{Config, FaultMode};
pub use crate::failure::{Failure, FailureReason};
pub use crate::outside::Outside;
pub use crate::process::{Identity, Process, SwapUser, is_alive};
pub use crate::reservation::Reservation;
pub use crate::run::{NR_RUNS, Past, Run};
pub use crate::state::ProcessState;
pub use crate::swap_config::{DeviceConfig, DeviceState, NR_DEVICES, SwapConfig};
pub use crate::text::Text;

/// First bytes of a group file, with the layout's version: a newer library refuses an older file.
pub const MAGIC: u64 = 0x0013_5041_5753_5a55;
/// Processes that a group tells apart; further ones share the last record.
pub const NR_PROCESSES: usize = uzswap_slots::NR_PROCESSES;

/// The shared file: this header, then [`NR_PROCESSES`] records.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Group {
    /// [`MAGIC`], set last by the creator.
    pub magic: AtomicU64,
    /// Records, from the first one on, that were ever taken.
    nr_used: AtomicU32,
    /// Runs, from the first one on, that there ever were.
    nr_runs: AtomicU32,
    /// Nodes, the root included.
    nr_nodes: AtomicU32,
    /// The configuration.
    pub config: Config,
    /// What may be changed at any time.
    pub knobs: Knobs,
    /// Whether the knob `ram` follows what cgroups and machine leave.
    pub follow: Follow,
    /// The names of the nodes; the root's is empty in a group without a name.
    pub names: [Text; NR_NODES],
    /// The runs.
    pub runs: [Run; NR_RUNS],
    /// The sums of runs whose places were reused, by node.
    pub past: [Past; NR_NODES],
    /// What each process holds of the limit, by the number of its record.
    pub ledger: Ledger,
    /// One for each process.
    pub processes: [Process; NR_PROCESSES],
}

/// Bytes of a group file.
pub const GROUP_LEN: usize = size_of::<Group>();

#[cfg(not(loom))]
const _: () = assert!(NR_PROCESSES == uzswap_sync::ledger::NR_SHARES);

impl Group {
    /// Claims a record for a process of run number `run`. When all belong to live processes, as
    /// `is_alive` says, the last one is shared.
    pub fn claim(&self, run: usize, who: Identity, is_alive: impl Fn(u32) -> bool) -> &Process {
        let busy = self.busy(who);
        self.run(run).nr_started.fetch_add(1, Ordering::Relaxed);
        // A process that execs keeps its pid: what it counted before has ended.
        let has_ended = |p: &Process, state| !self.has_several() && p.is_of(state, who);
        for p in self.used() {
            let state = p.state.load(Ordering::Acquire);
            if has_ended(p, state) {
                let share = self.share_of(p);
                share.expire(share.owner());
                if p.folds(state) {
                    self.fold(p, state, busy, &is_alive, || {});
                }
            }
        }
        let taken = self.take_free(busy, run).or_else(|| {
            for p in &self.processes {
                let state = p.state.load(Ordering::Acquire);
                if p.folds(state) && p.is_abandoned(&is_alive) {
                    self.fold(p, state, busy, &is_alive, || {});
                }
            }
            self.take_free(busy, run)
        });
        let [.., last] = &self.processes;
        let Some(record) = taken else {
            self.share_of(last).enter_too(self.run(run).path.load());
            return last;
        };
        record.begin(who);
        record
    }

    /// The process of record `own`, which is alive, does not count into it any more, and holds no
    /// swap slots. Nothing happens while somebody asks it for something.
    pub fn leave(&self, own: &Process, who: Identity, is_alive: impl Fn(u32) -> bool) {
        let state = own.state.load(Ordering::Acquire);
        let share = self.share_of(own);
        share.expire(share.owner());
        if state.is_live() {
            self.fold(own, state, self.busy(who), is_alive, || {});
        }
    }

    /// Takes a record for a fork child that process `parent`, of the record `own`, is about to
    /// make; it counts from [`Reservation::begin`] on.
    pub fn reserve(&self, own: &Process, parent: u32) -> Option<Reservation<'_>> {
        self.run_of(own).nr_started.fetch_add(1, Ordering::Relaxed);
        let run = own.run.load(Ordering::Relaxed) as usize;
        let record = self.take_free(self.busy_for(own, parent), run)?;
        let owner = record.owners.load(Ordering::Relaxed);
        let state = ProcessState::Reserved { parent };
        record.state.store(state, Ordering::Release);
        Some(Reservation {
            group: self,
            record,
            parent,
            owner,
        })
    }

    fn has_several(&self) -> bool {
        self.config.several_records.load(Ordering::Relaxed) != 0
    }

    /// The state of a record that process `who` works on.
    pub(crate) fn busy(&self, who: Identity) -> ProcessState {
        let namespace = self.config.pid_namespace.load(Ordering::Relaxed);
        match who.namespace == namespace {
            true => ProcessState::Busy { by: who.pid },
            false => ProcessState::Busy { by: 0 },
        }
    }

    /// As [`Group::busy`], of process `pid` with the record `own`.
    fn busy_for(&self, own: &Process, pid: u32) -> ProcessState {
        self.busy(Identity {
            pid,
            namespace: own.namespace.load(Ordering::Relaxed),
            ..Identity::default()
        })
    }

    /// Whether nobody but its own namespace can tell by its process id whether `process` is dead.
    pub fn is_foreign(&self, process: &Process) -> bool {
        let namespace = self.config.pid_namespace.load(Ordering::Relaxed);
        process.namespace.load(Ordering::Relaxed) != namespace
    }

    /// What `process` holds of the limit.
    pub fn share_of(&self, process: &Process) -> &Share {
        self.ledger.share(self.index_of(process))
    }

    /// The place of a record, found by its address, as there are many.
    fn index_of(&self, process: &Process) -> usize {
        let bytes = core::ptr::from_ref(process)
            .addr()
            .wrapping_sub(self.processes.as_ptr().addr());
        bytes / size_of::<Process>()
    }

    /// The limits of `process`, for its charge to follow.
    #[cfg(not(loom))]
    pub fn membership(&'static self, process: &Process) -> Membership {
        Membership {
            share: self.share_of(process),
            ledger: &self.ledger,
            limit: &self.knobs.ram,
            own_limit: &self.knobs.ram_per_process,
            at_ceiling: false,
        }
    }

    /// Whether it is complete, and others may join it.
    pub fn is_published(&self) -> bool {
        self.magic.load(Ordering::Acquire) == MAGIC
    }

    /// The limit of a node, bytes: all that lies in it, and what is outside.
    pub fn limit_of(&self, node: usize) -> u64 {
        match node {
            Path::ROOT_NODE => self.knobs.ram.load(Ordering::SeqCst),
            node => self.ledger.node(node).max.load(),
        }
    }

    /// The run of that number.
    pub fn run(&self, nr: usize) -> &Run {
        let [first, ..] = &self.runs;
        self.runs.get(nr).unwrap_or(first)
    }

    /// The run that a process belongs to, or belonged to.
    pub fn run_of(&self, process: &Process) -> &Run {
        self.run(process.run.load(Ordering::Relaxed) as usize)
    }

    /// The runs that there ever were, from the front; the first in any case.
    pub fn runs(&self) -> &[Run] {
        let nr = self.nr_runs.load(Ordering::Acquire).max(1) as usize;
        self.runs.get(..nr).unwrap_or(&self.runs)
    }

    /// The number of the run of `supervisor`, if it has not ended.
    pub fn run_by(&self, supervisor: u32) -> Option<usize> {
        let is_its = |run: &Run| run.supervisor.load(Ordering::Acquire) == supervisor;
        self.runs().iter().position(is_its)
    }

    /// Nodes that there are, the root included.
    pub fn nr_nodes(&self) -> usize {
        (self.nr_nodes.load(Ordering::Acquire) as usize).clamp(1, NR_NODES)
    }

    /// The nodes with that path above them, and their numbers.
    pub fn children(&self, path: Path) -> impl Iterator<Item = usize> {
        let is_child = move |nr: &usize| self.ledger.node(*nr).path.load() == path.child(*nr);
        (1..self.nr_nodes()).filter(is_child)
    }

    /// Makes a node of that `name` in `path`, without limits. `None`: there are as many as there
    /// may be. Under the lock of the group's name.
    pub fn add_node(&self, path: Path, name: &str) -> Option<Path> {
        let nr = self.nr_nodes();
        if nr == NR_NODES || path.depth() == MAX_DEPTH {
            return None;
        }
        self.names.get(nr)?.set(name);
        let made = path.child(nr);
        self.ledger.node(nr).path.store(made);
        self.nr_nodes
            .store(u32::try_from(nr + 1).ok()?, Ordering::Release);
        Some(made)
    }

    /// Begins a run in `path`, whose supervisor is process `supervisor` that started at `started`,
    /// in the place of one that has ended, as `has_ended` says. Returns its number; `None`: there
    /// are as many as there may be. Under the lock of the group's name.
    pub fn begin_run(
        &self,
        path: Path,
        supervisor: u32,
        started: u64,
        has_ended: impl Fn(&Run) -> bool,
    ) -> Option<usize> {
        let is_free = |nr: &usize| has_ended(self.run(*nr)) && !self.has_records(*nr);
        let nr = (0..NR_RUNS).find(is_free)?;
        let run = self.run(nr);
        if let Some(past) = self.past.get(run.path.load().last()) {
            run.begin(past);
        }
        self.ledger.set_outside(nr, path, 0);
        run.path.store(path);
        run.started.store(started, Ordering::Relaxed);
        run.supervisor.store(supervisor, Ordering::Release);
        self.nr_runs
            .fetch_max(u32::try_from(nr + 1).ok()?, Ordering::Release);
        Some(nr)
    }

    /// Run number `nr` is over: nobody measures what its processes have outside.
    pub fn end_run(&self, nr: usize) {
        let run = self.run(nr);
        self.ledger.set_outside(nr, run.path.load(), 0);
        run.unmanaged.store(0, Ordering::Relaxed);
        run.presumed.store(0, Ordering::Relaxed);
        run.supervisor.store(0, Ordering::Release);
    }

    /// Whether a record belongs to run number `nr`.
    pub fn has_records(&self, nr: usize) -> bool {
        let taken = |p: &&Process| p.state.load(Ordering::Acquire) != ProcessState::Free;
        let mut taken = self.used().iter().filter(taken);
        taken.any(|p| p.run.load(Ordering::Relaxed) as usize == nr)
    }

    /// Takes back what processes held that have died, as `is_alive` says, on behalf of process
    /// `by`. Only where the group's process ids mean the same as to the supervisor.
    pub fn expire_dead(&self, by: u32, is_alive: impl Fn(u32) -> bool) {
        for p in self.used() {
            let state = p.state.load(Ordering::Acquire);
            let share = self.share_of(p);
            let holds = share.granted() > 0 || share.shared() > 0;
            let is_known = !state.is_live() || !self.is_foreign(p);
            if holds && is_known && p.is_dead(state, &is_alive) {
                self.expire(p, state, by);
            }
        }
    }

    /// As [`Group::expire_dead`], of run number `nr`, of whose processes none is left: neither a
    /// fork child that has not begun, nor one of another pid namespace.
    pub fn expire_run(&self, nr: usize, by: u32) {
        for p in self.used() {
            let state = p.state.load(Ordering::Acquire);
            let is_its = p.run.load(Ordering::Relaxed) as usize == nr;
            if is_its && state != ProcessState::Free {
                self.expire(p, state, by);
            }
        }
    }

    /// Takes back what the process of a record in `state` held, which is dead. Nothing happens if
    /// it is another's by now.
    pub fn expire(&self, record: &Process, state: ProcessState, by: u32) {
        if record.state.turn(state, ProcessState::Busy { by }) {
            let share = self.share_of(record);
            share.expire(share.owner());
            record.state.store(state, Ordering::Release);
        }
    }

    /// Frees the records of processes that held swap slots and are dead (also those that never
    /// began) or have become process `pid` of record `own` by exec. `release` puts the swap slots
    /// of the record with that number.
    pub fn reap(
        &self,
        own: &Process,
        pid: u32,
        is_alive: impl Fn(u32) -> bool,
        release: impl Fn(usize),
    ) {
        for (at, p) in self.used().iter().enumerate() {
            let (state, theirs) = (
                p.state.load(Ordering::Acquire),
                p.pid.load(Ordering::Relaxed),
            );
            let is_dead = match state.is_live() {
                true => {
                    p.swap_user.load(Ordering::Relaxed) == SwapUser::Yes
                        && !core::ptr::eq(p, own)
                        && ((theirs == pid && !self.has_several()) || !is_alive(theirs))
                        && !p.has_reclaimer(&is_alive)
                }
                false => p.is_dead(state, &is_alive),
            };
            if is_dead {
                self.fold(p, state, self.busy_for(own, pid), &is_alive, || release(at));
            }
        }
    }

    /// The records that were ever taken, from the front. Looking further would bring pages of the
    /// shared file into memory for nothing.
    pub fn used(&self) -> &[Process] {
        let nr = usize::try_from(self.nr_used.load(Ordering::Acquire));
        let used = nr.ok().and_then(|nr| self.processes.get(..nr));
        used.unwrap_or(&self.processes)
    }

    /// Number of a record; `None` for the last one, which several processes may share.
    #[must_use]
    pub fn number_of(&self, process: &Process) -> Option<usize> {
        Some(self.index_of(process)).filter(|&number| number < NR_PROCESSES - 1)
    }

    /// Takes a record for the next of its owners, and leaves it `busy`.
    fn take_free(&self, busy: ProcessState, run: usize) -> Option<&Process> {
        let records = (1_u32..).zip(&self.processes);
        let mut taken = records.filter(|(nr, p)| {
            // A compare-and-swap writes to the record's page even if it fails.
            if p.state.load(Ordering::Relaxed) != ProcessState::Free {
                return false;
            }
            // Before it is taken: a record whose process died is not to be overlooked.
            self.nr_used.fetch_max(*nr, Ordering::Release);
            p.state.turn(ProcessState::Free, busy)
        });
        let (nr, record) = taken.next()?;
        record.owners.fetch_add(1, Ordering::Relaxed);
        record
            .run
            .store(u32::try_from(run).unwrap_or(0), Ordering::Relaxed);
        let run = self.run(run);
        let share = self.ledger.begin(nr as usize - 1);
        share.enter(run.path.load());
        // Its program and libraries bring in pages of their own before the next look at them.
        share.presume(run.presumed.load(Ordering::Relaxed) >> uzswap_sys::PAGE_SHIFT);
        Some(record)
    }

    /// Frees a record that nobody uses any more.
    pub(crate) fn free(&self, record: &Process) {
        let share = self.share_of(record);
        share.expire(share.owner());
        record.swap_user.store(SwapUser::No, Ordering::Relaxed);
        record.state.store(ProcessState::Free, Ordering::Release);
    }

    /// Adds the counters of a process that ended in `state` to the sums of its run and, after
    /// `release`, frees the record, `busy` meanwhile; not while somebody alive, as `is_alive` says,
    /// asks it for something.
    fn fold(
        &self,
        from: &Process,
        state: ProcessState,
        busy: ProcessState,
        is_alive: impl Fn(u32) -> bool,
        release: impl FnOnce(),
    ) {
        if !from.state.turn(state, busy) {
            return;
        }
        // Under `Busy`, so that the door is not the next owner's.
        if !from.request.shut_for_dead(is_alive) {
            from.state.store(state, Ordering::Release);
            return;
        }
        self.run_of(from).ended.take_over(from);
        release();
        self.free(from);
    }
}
