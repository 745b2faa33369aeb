//! *What*: the record of one process of the group: who it is, its counters, its request.
//! *Invariants*: the record belongs to the process whose pid it holds until its state is
//! [`ProcessState::Free`] again.
//! *Locking*: none. A record is claimed by compare-and-swap on its state.
//! *Context*: mapped in every managed process, in `uzswap run` and in `uzswap stat`.

use crate::ask::Ask;
use crate::config::FaultMode;
use crate::counters::{Counters, NR_ORDERS, OrderCounters, StallCounters};
use crate::histogram::Histogram;
use crate::request::Request;
use crate::shared::{Shared, encoded};
use crate::state::ProcessState;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use uzswap_sys::{Errno, signal};

encoded! {
    /// Whether a process holds slots of the swap devices.
    SwapUser {
        /// It holds none.
        No,
        /// It may hold some; they are free once it is dead.
        Yes = 1,
        /// It may hold some, and nobody can tell whether it is dead, as its process id is one of
        /// another pid namespace.
        Unknown = 2,
    }
}

/// A process that does little but fault.
#[derive(Debug)]
#[repr(C)]
pub struct Thrashing {
    /// Percent of its time in faults; 0 while it does not thrash.
    pub percent: AtomicU64,
    /// The limit that it needs, about, bytes.
    pub needed: AtomicU64,
}

/// Who a process is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its process id, as seen in its own pid namespace.
    pub pid: u32,
    /// Its parent's.
    pub ppid: u32,
    /// Inode number of its pid namespace; 0: unknown.
    pub namespace: u64,
    /// Time stamp counter at its start.
    pub start_tsc: u64,
}

/// One process's record.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Process {
    /// Whose it is.
    pub state: Shared<ProcessState>,
    /// How many processes have had it.
    pub(crate) owners: AtomicU32,
    /// Its process id, as seen in its own pid namespace.
    pub pid: AtomicU32,
    /// Its parent's process id.
    pub ppid: AtomicU32,
    /// The process id of its reclaimer, which works on its memory and its swap slots beside it; 0
    /// while there is none.
    pub reclaimer: AtomicU32,
    /// The fault mode in use.
    pub fault_mode: Shared<FaultMode>,
    /// The number of the run that it belongs to.
    pub run: AtomicU32,
    /// Whether it holds swap slots.
    pub swap_user: Shared<SwapUser>,
    /// Inode number of its pid namespace.
    pub namespace: AtomicU64,
    /// Time stamp counter at its start.
    pub start_tsc: AtomicU64,
    /// Its name, as `/proc/PID/comm` has it, zero-padded.
    pub comm: [AtomicU64; 2],
    /// Bytes that it has outside its account, as the supervisor last measured.
    pub unmanaged: AtomicU64,
    /// Pages that are on their way to a swap device.
    pub(crate) swapping: AtomicU64,
    /// Its counters.
    pub counters: Counters,
    /// Its counters by folio order.
    pub orders: [OrderCounters; NR_ORDERS],
    /// How long its threads waited for memory.
    pub stalls: StallCounters,
    /// How long its faults took.
    pub fault_ticks: Histogram,
    /// Pages evicted between the eviction of a page and its refault.
    pub refault_distance: Histogram,
    /// Whether it thrashes, as `uzswap run` sees it.
    pub thrashing: Thrashing,
    /// What it has that is cold, and what other processes would like of that.
    pub ask: Ask,
    /// What it is asked to do.
    pub request: Request,
}

impl Process {
    /// The record, which nobody else works on, is that process's from now on.
    pub(crate) fn begin(&self, who: Identity) {
        self.pid.store(who.pid, Ordering::Relaxed);
        self.ppid.store(who.ppid, Ordering::Relaxed);
        self.namespace.store(who.namespace, Ordering::Relaxed);
        self.reclaimer.store(0, Ordering::Relaxed);
        self.unmanaged.store(0, Ordering::Relaxed);
        self.thrashing.percent.store(0, Ordering::Relaxed);
        self.start_tsc.store(who.start_tsc, Ordering::Relaxed);
        self.swapping.store(0, Ordering::Relaxed);
        self.ask.reset();
        self.request.refuse();
        // Pairs with the acquire loads of readers: they see whose record it is.
        let owner = self.owners.load(Ordering::Relaxed);
        self.state
            .store(ProcessState::live(owner), Ordering::Release);
    }

    /// Adds what another counted, which begins anew.
    pub(crate) fn take_over(&self, from: &Process) {
        self.counters.fold(&from.counters);
        for (to, from) in self.orders.iter().zip(&from.orders) {
            to.fold(from);
        }
        self.stalls.fold(&from.stalls);
        self.fault_ticks.fold(&from.fault_ticks);
        self.refault_distance.fold(&from.refault_distance);
    }

    /// Whether, by `is_alive`, nobody works any more on what it counts: neither its process nor the
    /// reclaimer, which a kill leaves behind for a moment.
    pub fn is_abandoned(&self, is_alive: impl Fn(u32) -> bool) -> bool {
        !is_alive(self.pid.load(Ordering::Relaxed)) && !self.has_reclaimer(is_alive)
    }

    /// Whether, by `is_alive`, its reclaimer is there.
    pub(crate) fn has_reclaimer(&self, is_alive: impl Fn(u32) -> bool) -> bool {
        // Acquire: pairs with the release by which the reclaimer takes its leave.
        let reclaimer = self.reclaimer.load(Ordering::Acquire);
        reclaimer != 0 && is_alive(reclaimer)
    }

    /// Whether nobody works any more on what it counts in `state`, which was read before.
    pub(crate) fn is_dead(&self, state: ProcessState, is_alive: impl Fn(u32) -> bool) -> bool {
        match state {
            // The child may be about to begin, and only it knows its number.
            ProcessState::Free | ProcessState::Reserved { .. } => false,
            ProcessState::Busy { by: 0 } => false,
            ProcessState::Busy { by } => !is_alive(by),
            ProcessState::Live { .. } => self.is_abandoned(is_alive),
            ProcessState::Born { child } => !is_alive(child),
        }
    }

    /// Whether process `who`, before it executed another program, is what counts into it in
    /// `state`, which was read before.
    pub(crate) fn is_of(&self, state: ProcessState, who: Identity) -> bool {
        state.is_live()
            && self.pid.load(Ordering::Relaxed) == who.pid
            && self.namespace.load(Ordering::Relaxed) == who.namespace
    }

    /// Whether its process counts into it.
    pub fn is_live(&self) -> bool {
        self.state.load(Ordering::Acquire).is_live()
    }

    /// Whether the record can be freed, once its process is dead, without putting swap slots.
    pub(crate) fn folds(&self, state: ProcessState) -> bool {
        state.is_live() && self.swap_user.load(Ordering::Relaxed) == SwapUser::No
    }
}

/// Whether there is a process of that number; "no" only if there surely is none.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    let pid = pid.cast_signed();
    signal::tgkill(pid, pid, 0) != Err(Errno::ESRCH)
}
