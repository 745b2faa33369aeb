//! *What*: the group, one `uzswap run` and all processes under it, in one shared file: the
//! configuration, the live knobs, why a process was ended, and a record for each process.
//! *Invariants*: the file is zero-filled and sized before `magic` is set; the configuration does
//! not change after that; a record belongs to the process whose pid it holds until its state is
//! [`ProcessState::Free`] again.
//! *Locking*: none. A record is claimed by compare-and-swap on its state; all cells are atomics.
//! *Context*: mapped in every managed process, in `uzswap run` and in `uzswap stat`.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::knobs::Knobs;
#[cfg(not(loom))]
use uzswap_sync::charge::Membership;
use uzswap_sync::ledger::{Ledger, Share};

pub use crate::config::{Config, FaultMode};
pub use crate::failure::{Failure, FailureReason};
pub use crate::outside::Outside;
pub use crate::process::{Identity, Process, ProcessState, SwapUser, is_alive};
pub use crate::swap_config::{DeviceConfig, DeviceState, NR_DEVICES, SwapConfig};
pub use crate::text::Text;

/// First bytes of a group file, with the layout's version: a newer library refuses an older file.
pub const MAGIC: u64 = 0x000d_5041_5753_5a55;
/// Processes that a group tells apart; further ones share the last record.
pub const NR_PROCESSES: usize = uzswap_slots::NR_PROCESSES;
/// Environment variable that holds the path of the group file.
pub const GROUP_ENV: &str = "UZSWAP_GROUP";
/// How the file names of the preload library begin, which tells them apart in an LD_PRELOAD.
pub const LIBRARY_PREFIX: &str = "libuzswap-";

/// The shared file: this header, then [`NR_PROCESSES`] records.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Group {
    /// [`MAGIC`], set last by the creator.
    pub magic: AtomicU64,
    /// Process id of `uzswap run`.
    pub supervisor: AtomicU32,
    /// Processes that have ever claimed a record.
    pub nr_started: AtomicU32,
    /// Records, from the first one on, that were ever taken.
    nr_used: AtomicU32,
    /// The configuration.
    pub config: Config,
    /// What may be changed at any time.
    pub knobs: Knobs,
    /// Bytes that the processes of the run, and this run's supervisor, have outside the account of
    /// any engine, as last measured. Written by the supervisor alone.
    pub unmanaged: AtomicU64,
    /// Highest `unmanaged`.
    pub unmanaged_peak: AtomicU64,
    /// Where that is.
    pub outside: Outside,
    /// Why a process was ended by uzswap, if one was.
    pub failure: Failure,
    /// Seconds for which any process thrashed.
    pub thrashing_s: AtomicU64,
    /// What each process holds of the limit, by the number of its record.
    pub ledger: Ledger,
    /// Sums of the processes whose records were reused.
    pub ended: Process,
    /// One for each process.
    pub processes: [Process; NR_PROCESSES],
}

/// Bytes of a group file.
pub const GROUP_LEN: usize = size_of::<Group>();

#[cfg(not(loom))]
const _: () = assert!(NR_PROCESSES == uzswap_sync::ledger::NR_SHARES);

impl Group {
    /// Claims a record for a process. When all belong to live processes, as `is_alive` says, the
    /// last one is shared.
    pub fn claim(&self, who: Identity, is_alive: impl Fn(u32) -> bool) -> &Process {
        self.nr_started.fetch_add(1, Ordering::Relaxed);
        // A process that execs keeps its pid: what it counted before has ended.
        for p in self.used() {
            if p.is_of(who) {
                let share = self.share_of(p);
                share.expire(share.owner());
                if p.folds() {
                    self.fold(p, ProcessState::Live, || {});
                }
            }
        }
        let taken = self.take_free(ProcessState::Busy).or_else(|| {
            for p in &self.processes {
                if p.folds() && p.is_abandoned(&is_alive) {
                    self.fold(p, ProcessState::Live, || {});
                }
            }
            self.take_free(ProcessState::Busy)
        });
        let [.., last] = &self.processes;
        let Some(record) = taken else { return last };
        record.begin(who);
        record
    }

    /// Takes a record for a fork child that process `parent` is about to make; it counts from
    /// [`Process::begin`] on.
    pub fn reserve(&self, parent: u32) -> Option<&Process> {
        self.nr_started.fetch_add(1, Ordering::Relaxed);
        self.take_free(ProcessState::Reserved { parent })
    }

    /// The child that `parent` reserved a record for has been made, as process `child`: if it is
    /// killed before it begins, the record is found by that number. To be called before the parent
    /// reserves another.
    pub fn born(&self, reserved: &Process, parent: u32, child: u32) {
        // It may have begun, and even have ended, in which case the record may be anybody's.
        let (from, to) = (
            ProcessState::Reserved { parent },
            ProcessState::Born { child },
        );
        let _ = reserved.state.turn(from, to);
    }

    /// Gives a record back that [`Group::reserve`] took: there is no child.
    pub fn give_back(&self, reserved: &Process) {
        self.nr_started.fetch_sub(1, Ordering::Relaxed);
        self.free(reserved);
    }

    /// Whether nobody but its own namespace can tell by its process id whether `process` is dead.
    pub fn is_foreign(&self, process: &Process) -> bool {
        let namespace = self.config.pid_namespace.load(Ordering::Relaxed);
        process.namespace.load(Ordering::Relaxed) != namespace
    }

    /// What `process` holds of the limit.
    pub fn share_of(&self, process: &Process) -> &Share {
        let number = self
            .processes
            .iter()
            .position(|p| core::ptr::eq(p, process));
        self.ledger.share(number.unwrap_or(NR_PROCESSES))
    }

    /// The limits of `process`, for its charge to follow.
    #[cfg(not(loom))]
    pub fn membership(&'static self, process: &Process) -> Membership {
        Membership {
            share: self.share_of(process),
            ledger: &self.ledger,
            limit: &self.knobs.ram,
            own_limit: &self.knobs.ram_per_process,
        }
    }

    /// Takes back what processes held that have died, as `is_alive` says. Only where the group's
    /// process ids mean the same as to the supervisor.
    pub fn expire_dead(&self, is_alive: impl Fn(u32) -> bool) {
        for p in self.used() {
            let share = self.share_of(p);
            // Before the process is looked at: should the record be another's by then, nothing
            // happens to its share.
            let owner = share.owner();
            let state = p.state.load(Ordering::Acquire);
            let is_dead = match state {
                ProcessState::Live => {
                    !self.is_foreign(p) && p.is_abandoned(&is_alive) && share.granted() > 0
                }
                _ => Process::is_stillborn(state, &is_alive),
            };
            if is_dead {
                share.expire(owner);
            }
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
            let is_dead = match state {
                ProcessState::Live => {
                    p.swap_user.load(Ordering::Relaxed) == SwapUser::Yes
                        && !core::ptr::eq(p, own)
                        && (theirs == pid || !is_alive(theirs))
                        && !p.has_reclaimer(&is_alive)
                }
                _ => Process::is_stillborn(state, &is_alive),
            };
            if is_dead {
                self.fold(p, state, || release(at));
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
        self.processes
            .iter()
            .take(NR_PROCESSES - 1)
            .position(|p| core::ptr::eq(p, process))
    }

    fn take_free(&self, state: ProcessState) -> Option<&Process> {
        let records = (1_u32..).zip(&self.processes);
        let mut taken = records.filter(|(nr, p)| {
            // A compare-and-swap writes to the record's page even if it fails.
            if p.state.load(Ordering::Relaxed) != ProcessState::Free {
                return false;
            }
            // Before it is taken: a record whose process died is not to be overlooked.
            self.nr_used.fetch_max(*nr, Ordering::Release);
            p.state.turn(ProcessState::Free, state)
        });
        let (nr, record) = taken.next()?;
        self.ledger.begin(nr as usize - 1);
        Some(record)
    }

    /// Frees a record that nobody uses any more.
    fn free(&self, record: &Process) {
        let share = self.share_of(record);
        share.expire(share.owner());
        record.swap_user.store(SwapUser::No, Ordering::Relaxed);
        record.state.store(ProcessState::Free, Ordering::Release);
    }

    /// Adds the counters of a process that ended in `state` to [`Group::ended`] and, after
    /// `release`, frees the record.
    fn fold(&self, from: &Process, state: ProcessState, release: impl FnOnce()) {
        if !from.state.turn(state, ProcessState::Busy) {
            return;
        }
        let to = &self.ended;
        to.counters.fold(&from.counters);
        for (to, from) in to.orders.iter().zip(&from.orders) {
            to.fold(from);
        }
        to.stalls.fold(&from.stalls);
        to.fault_ticks.fold(&from.fault_ticks);
        to.refault_distance.fold(&from.refault_distance);
        release();
        self.free(from);
    }
}
