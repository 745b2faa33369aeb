//! The group: one `uzswap run` and all processes under it, in one shared file.
//!
//! *What*: the layout of the file that `uzswap run` creates and every managed process maps: the
//! configuration, one record of why a process was ended, and a slot of counters a process.
//! *Invariants*: the file is zero-filled and sized before `magic` is set; the configuration does
//! not change after that, except the knobs that say so; a slot belongs to the process whose pid it
//! holds until its state is [`FREE`] again.
//! *Locking*: none. A slot is claimed by compare-and-swap on its state; all cells are atomics.
//! *Context*: mapped in every managed process, in `uzswap run` and in `uzswap stat`.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::counters::{Counters, Histogram, NR_ORDERS, OrderCounters};

/// First bytes of a group file, with the layout's version: a newer library refuses an older file.
pub const MAGIC: u64 = 0x0001_5041_5753_5a55;
/// Processes that a group tells apart; further ones share the last slot.
pub const NR_PROCESSES: usize = 256;
/// Environment variable that holds the path of the group file.
pub const GROUP_ENV: &str = "UZSWAP_GROUP";

/// [`Process::state`]: nobody's.
pub const FREE: u32 = 0;
/// [`Process::state`]: being filled in or folded into [`Group::ended`].
pub const BUSY: u32 = 1;
/// [`Process::state`]: its process counts into it.
pub const LIVE: u32 = 2;

/// [`Config::fault_mode`]: let the library choose.
pub const FAULT_MODE_AUTO: u32 = 0;
/// [`Config::fault_mode`]: SIGBUS in the faulting thread, system calls guarded.
pub const FAULT_MODE_SIGNAL: u32 = 1;
/// [`Config::fault_mode`]: handler threads.
pub const FAULT_MODE_THREAD: u32 = 2;

/// What the command line decided, fixed for the group's life.
#[derive(Debug)]
#[repr(C)]
pub struct Config {
    /// Limit of resident + pool + metadata for each process, bytes.
    pub ram: AtomicU64,
    /// Compressor, as `uzswap_compress::CodecId`.
    pub compressor: AtomicU32,
    /// Compression level, a two's complement `i32`.
    pub level: AtomicU32,
    /// Folio order: a folio is 4 KiB shifted left by this, 0 to 9.
    pub folio_order: AtomicU32,
    /// One of the `FAULT_MODE_` constants.
    pub fault_mode: AtomicU32,
    /// 1: go over the limit rather than end the program.
    pub over_limit_allow: AtomicU32,
    /// 1: keep a reserve free from a background thread.
    pub background: AtomicU32,
    /// 1: check for same-filled pages before compressing.
    pub same_filled: AtomicU32,
    /// 1: each fault mode chosen is told on stderr.
    pub verbose: AtomicU32,
}

/// Why a managed process could not start or was ended by uzswap; the first one is kept.
#[derive(Debug)]
#[repr(C)]
pub struct Failure {
    /// One of the `FAILURE_` constants; 0 while there is none.
    pub reason: AtomicU32,
    /// The process.
    pub pid: AtomicU32,
    /// The system call's error number, if one failed.
    pub errno: AtomicU32,
    /// Which step failed, one of `StartStep`'s numbers.
    pub step: AtomicU32,
    /// Bytes that were needed at least.
    pub needed: AtomicU64,
    /// The limit they did not fit in, bytes.
    pub limit: AtomicU64,
}

/// [`Failure::reason`]: compressed data and what must stay resident do not fit the limit.
pub const FAILURE_OVER_LIMIT: u32 = 1;
/// [`Failure::reason`]: the engine could not start.
pub const FAILURE_START: u32 = 2;
/// [`Failure::reason`]: an invariant of uzswap's own did not hold.
pub const FAILURE_INTERNAL: u32 = 3;

/// One process's slot.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Process {
    /// [`FREE`], [`BUSY`] or [`LIVE`].
    pub state: AtomicU32,
    /// Its process id, as seen in its own pid namespace.
    pub pid: AtomicU32,
    /// Its parent's process id.
    pub ppid: AtomicU32,
    /// The fault mode in use, one of the `FAULT_MODE_` constants.
    pub fault_mode: AtomicU32,
    /// Time stamp counter at its start.
    pub start_tsc: AtomicU64,
    /// Its name, as `/proc/PID/comm` has it, zero-padded.
    pub comm: [AtomicU64; 2],
    /// Its counters.
    pub counters: Counters,
    /// Its counters by folio order.
    pub orders: [OrderCounters; NR_ORDERS],
    /// How long its faults took.
    pub fault_ticks: Histogram,
}

/// The shared file: this header, then [`NR_PROCESSES`] slots.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Group {
    /// [`MAGIC`], set last by the creator.
    pub magic: AtomicU64,
    /// Process id of `uzswap run`.
    pub supervisor: AtomicU32,
    /// Processes that have ever claimed a slot.
    pub nr_started: AtomicU32,
    /// The configuration.
    pub config: Config,
    /// Why a process was ended by uzswap, if one was.
    pub failure: Failure,
    /// Sums of the processes whose slots were reused.
    pub ended: Process,
    /// The slots.
    pub processes: [Process; NR_PROCESSES],
}

/// Bytes of a group file.
pub const GROUP_LEN: usize = size_of::<Group>();

impl Group {
    /// Claims a slot for process `pid`. When all are taken by live processes (`is_alive` says so),
    /// the last slot is shared.
    pub fn claim(&self, pid: u32, ppid: u32, tsc: u64, is_alive: impl Fn(u32) -> bool) -> &Process {
        // Slots are taken from the front, so no more of them than this were ever in use; looking
        // further would bring pages of the shared file into memory for nothing.
        let used = self.nr_started.fetch_add(1, Ordering::Relaxed);
        let used = usize::try_from(used).unwrap_or(NR_PROCESSES);
        // A process that execs keeps its pid: what it counted before has ended.
        for p in self.processes.iter().take(used) {
            if p.state.load(Ordering::Acquire) == LIVE && p.pid.load(Ordering::Relaxed) == pid {
                self.fold(p);
            }
        }
        let taken = self.take_free().or_else(|| {
            for p in &self.processes {
                if p.state.load(Ordering::Acquire) == LIVE
                    && !is_alive(p.pid.load(Ordering::Relaxed))
                {
                    self.fold(p);
                }
            }
            self.take_free()
        });
        let [.., last] = &self.processes;
        let Some(slot) = taken else { return last };
        slot.pid.store(pid, Ordering::Relaxed);
        slot.ppid.store(ppid, Ordering::Relaxed);
        slot.start_tsc.store(tsc, Ordering::Relaxed);
        // Pairs with the acquire loads of readers: they see whose slot it is.
        slot.state.store(LIVE, Ordering::Release);
        slot
    }

    fn take_free(&self) -> Option<&Process> {
        self.processes.iter().find(|p| {
            // A compare-and-swap writes to the slot's page even if it fails.
            p.state.load(Ordering::Relaxed) == FREE
                && p.state
                    .compare_exchange(FREE, BUSY, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        })
    }

    /// Adds an ended process's counters to [`Group::ended`] and frees its slot.
    fn fold(&self, from: &Process) {
        use crate::counters::Kind;
        if from
            .state
            .compare_exchange(LIVE, BUSY, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            return;
        }
        let to = &self.ended;
        for ((a, b), (_, kind)) in to
            .counters
            .cells()
            .iter()
            .zip(from.counters.cells())
            .zip(Counters::NAMES)
        {
            let n = b.swap(0, Ordering::Relaxed);
            match kind {
                Kind::Counter => a.fetch_add(n, Ordering::Relaxed),
                Kind::Peak => a.fetch_max(n, Ordering::Relaxed),
                Kind::Gauge => 0,
            };
        }
        for (a, b) in to.orders.iter().zip(&from.orders) {
            let move_one = |a: &AtomicU64, b: &AtomicU64| {
                a.fetch_add(b.swap(0, Ordering::Relaxed), Ordering::Relaxed);
            };
            move_one(&a.zswpout, &b.zswpout);
            move_one(&a.swpout, &b.swpout);
            move_one(&a.swpout_fallback, &b.swpout_fallback);
            move_one(&a.zswpout_fallback, &b.zswpout_fallback);
        }
        let (a, b) = (&to.fault_ticks, &from.fault_ticks);
        for (a, b) in a.buckets.iter().zip(&b.buckets) {
            a.fetch_add(b.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
        a.max
            .fetch_max(b.max.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        from.state.store(FREE, Ordering::Release);
    }

    /// Records why process `pid` is ended; only the first failure of a group is kept.
    pub fn fail(&self, reason: u32, pid: u32, errno: u32, step: u32, needed: u64, limit: u64) {
        let f = &self.failure;
        if f.pid
            .compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
        {
            f.errno.store(errno, Ordering::Relaxed);
            f.step.store(step, Ordering::Relaxed);
            f.needed.store(needed, Ordering::Relaxed);
            f.limit.store(limit, Ordering::Relaxed);
            // Pairs with the supervisor's acquire load: the fields above are complete.
            f.reason.store(reason, Ordering::Release);
        }
    }
}
