//! The group: one `uzswap run` and all processes under it, in one shared file.
//!
//! *What*: the layout of the file that `uzswap run` creates and every managed process maps: the
//! configuration and the live knobs, one record of why a process was ended, and a slot of counters a process.
//! *Invariants*: the file is zero-filled and sized before `magic` is set; the configuration does
//! not change after that, except [`Group::knobs`]; a slot belongs to the process whose pid it
//! holds until its state is [`FREE`] again.
//! *Locking*: none. A slot is claimed by compare-and-swap on its state; all cells are atomics.
//! *Context*: mapped in every managed process, in `uzswap run` and in `uzswap stat`.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::counters::{Counters, Histogram, Kind, NR_ORDERS, OrderCounters};
use crate::knobs::Knobs;
use crate::request::Request;
use uzswap_sys::{Errno, signal};

/// First bytes of a group file, with the layout's version: a newer library refuses an older file.
pub const MAGIC: u64 = 0x0008_5041_5753_5a55;
/// Processes that a group tells apart; further ones share the last slot.
pub const NR_PROCESSES: usize = uzswap_slots::NR_PROCESSES;
/// Swap devices that a group has at most.
pub const NR_DEVICES: usize = 8;
/// Environment variable that holds the path of the group file.
pub const GROUP_ENV: &str = "UZSWAP_GROUP";

/// [`Process::state`]: nobody's.
pub const FREE: u32 = 0;
/// [`Process::state`]: being filled in or folded into [`Group::ended`].
pub const BUSY: u32 = 1;
/// [`Process::state`]: its process counts into it.
pub const LIVE: u32 = 2;
/// [`Process::state`], lowest byte: for the child that the process whose id follows is about to make.
const RESERVED: u32 = 3;
/// [`Process::state`], lowest byte: for the child whose process id follows; it has not begun.
const BORN: u32 = 4;

/// A state that names a process: numbers have 22 bits.
const fn of_process(state: u32, pid: u32) -> u32 {
    state | pid << 8
}

/// [`Process::swap_user`]: it counts no slots of the swap devices.
pub const NO_SLOTS: u32 = 0;
/// [`Process::swap_user`]: it may count some; they are free once it is dead.
pub const SLOTS: u32 = 1;
/// [`Process::swap_user`]: it may count some, and nobody can tell whether it is dead, as its number is
/// one of another pid namespace.
pub const SLOTS_KEPT: u32 = 2;

/// [`Config::fault_mode`]: let the library choose.
pub const FAULT_MODE_AUTO: u32 = 0;
/// [`Config::fault_mode`]: SIGBUS in the faulting thread, system calls guarded.
pub const FAULT_MODE_SIGNAL: u32 = 1;
/// [`Config::fault_mode`]: handler threads.
pub const FAULT_MODE_THREAD: u32 = 2;
/// [`Config::fault_mode`]: SIGSEGV in the faulting thread, without userfaultfd, system calls guarded.
pub const FAULT_MODE_SEGV: u32 = 3;

/// What the command line decided, fixed for the group's life but for `ram_ceiling`.
#[derive(Debug)]
#[repr(C)]
pub struct Config {
    /// The knob `ram`, or, while `uzswap set` lowers that and until no process is above it, what it was: only then
    /// does the lower one hold strictly. Bytes.
    pub ram_ceiling: AtomicU64,
    /// Folio order: a folio is 4 KiB shifted left by this, 0 to 9.
    pub folio_order: AtomicU32,
    /// One of the `FAULT_MODE_` constants.
    pub fault_mode: AtomicU32,
    /// 1: go over the limit rather than end the program.
    pub over_limit_allow: AtomicU32,
    /// 1: keep a reserve free from a background thread.
    pub background: AtomicU32,
    /// Ticks of the time stamp counter in a second, measured once, so that times told of this group never go back.
    pub tsc_hz: AtomicU64,
    /// 1: each process has a thread that makes cold pages denser.
    pub densifier: AtomicU32,
    /// 1: each fault mode chosen is told on stderr.
    pub verbose: AtomicU32,
    /// The swap devices.
    pub swap: SwapConfig,
}

/// The swap devices that the supervisor holds open, and how they are used.
#[derive(Debug)]
#[repr(C)]
pub struct SwapConfig {
    /// The devices, those of the highest priority first, and after them places without slots.
    pub devices: [DeviceConfig; NR_DEVICES],
    /// 1: what is written is encrypted.
    pub encrypt: AtomicU32,
    /// Inode number of the supervisor's pid namespace: elsewhere its numbers mean nothing.
    pub pid_namespace: AtomicU64,
    /// The most slots of all devices together that ever were in use, as whoever reclaimed last saw it.
    pub peak: AtomicU64,
}

impl SwapConfig {
    /// The devices that there are.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceConfig> + Clone {
        let there = |device: &&DeviceConfig| device.nr_slots.load(Ordering::Relaxed) > 0;
        self.devices.iter().take_while(there)
    }

    /// Slots of all of them together that are not off.
    #[must_use]
    pub fn nr_slots(&self) -> u64 {
        let there = |device: &&DeviceConfig| device.state.load(Ordering::Relaxed) != DEVICE_OFF;
        let slots = self.devices().filter(there).map(|device| &device.nr_slots);
        slots.map(|nr| nr.load(Ordering::Relaxed)).sum()
    }

    /// Slots of all of them in use, as whoever reclaimed last saw it.
    #[must_use]
    pub fn used(&self) -> u64 {
        let used = self.devices().map(|device| &device.used);
        used.map(|nr| nr.load(Ordering::Relaxed)).sum()
    }
}

/// [`DeviceConfig::state`]: it is written to.
pub const DEVICE_ON: u32 = 0;
/// [`DeviceConfig::state`]: it failed too often and is only read.
pub const DEVICE_FAILED: u32 = 1;

/// [`DeviceConfig::state`]: what is on it is being brought back, or was.
pub const DEVICE_OFF: u32 = 2;

/// One of the swap devices.
#[derive(Debug)]
#[repr(C)]
pub struct DeviceConfig {
    /// Slots of 4 KiB that it has; 0: there is no device.
    pub nr_slots: AtomicU64,
    /// The number of its first slot: no two devices have a number in common, nor any that follow each other.
    pub first: AtomicU64,
    /// The supervisor's descriptor of the device.
    pub device_fd: AtomicU32,
    /// The supervisor's descriptor of the memory that the slot allocator lives in.
    pub table_fd: AtomicU32,
    /// 1: it is opened past the page cache.
    pub direct: AtomicU32,
    /// The higher, the earlier it is filled; those of the same take turns.
    pub priority: AtomicI32,
    /// One of the `DEVICE_` constants.
    pub state: AtomicU32,
    /// Writes in a row that failed.
    pub failures: AtomicU32,
    /// Slots in use and the most that ever were, as whoever reclaimed last saw them.
    pub used: AtomicU64,
    /// See `used`.
    pub peak: AtomicU64,
    /// Bytes read from it.
    pub bytes_in: AtomicU64,
    /// Bytes written to it.
    pub bytes_out: AtomicU64,
    /// Writes that failed.
    pub write_fail: AtomicU64,
    /// What messages call the device, UTF-8, padded with zeroes.
    pub name: Text,
    /// How the device is to fail, as `uzswap_io::fault` reads it.
    #[cfg(feature = "fault-injection")]
    pub faults: Text,
}

/// A short text in shared memory.
#[derive(Debug)]
#[repr(transparent)]
pub struct Text([AtomicU64; 32]);

impl Text {
    /// Bytes that it holds at most.
    pub const LEN: usize = 256;

    /// Sets it, cut to [`Text::LEN`].
    pub fn set(&self, text: &str) {
        let mut rest = text.as_bytes();
        for cell in &self.0 {
            let (bytes, more) = rest.split_at(rest.len().min(8));
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(bytes) {
                *to = *from;
            }
            cell.store(u64::from_ne_bytes(word), Ordering::Relaxed);
            rest = more;
        }
    }

    /// Copies it to `buffer`.
    pub fn get<'a>(&self, buffer: &'a mut [u8; Self::LEN]) -> &'a str {
        for (cell, bytes) in self.0.iter().zip(buffer.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&cell.load(Ordering::Relaxed).to_ne_bytes());
        }
        let len = buffer.iter().position(|&byte| byte == 0);
        let text = buffer.get(..len.unwrap_or(Self::LEN)).unwrap_or_default();
        match core::str::from_utf8(text) {
            Ok(text) => text,
            // Cut within a character.
            Err(error) => text
                .get(..error.valid_up_to())
                .and_then(|text| core::str::from_utf8(text).ok())
                .unwrap_or_default(),
        }
    }
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
/// [`Failure::reason`]: no mapping was left to let the program at a page with, and evicting others gave none back.
pub const FAILURE_MAPPINGS: u32 = 4;

/// One process's slot.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Process {
    /// [`FREE`], [`BUSY`], [`LIVE`], or that of a fork child that has not begun.
    pub state: AtomicU32,
    /// Its process id, as seen in its own pid namespace.
    pub pid: AtomicU32,
    /// Its parent's process id.
    pub ppid: AtomicU32,
    /// The fault mode in use, one of the `FAULT_MODE_` constants.
    pub fault_mode: AtomicU32,
    /// Whether it counts slots of the swap device: [`NO_SLOTS`], [`SLOTS`] or [`SLOTS_KEPT`].
    pub swap_user: AtomicU32,
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
    /// What it is asked to do.
    pub request: Request,
}

impl Process {
    /// The slot is process `pid`'s from now on.
    pub fn begin(&self, pid: u32, ppid: u32, tsc: u64) {
        self.pid.store(pid, Ordering::Relaxed);
        self.ppid.store(ppid, Ordering::Relaxed);
        self.start_tsc.store(tsc, Ordering::Relaxed);
        self.request.refuse();
        // Pairs with the acquire loads of readers: they see whose slot it is.
        self.state.store(LIVE, Ordering::Release);
    }

    /// Whether it is for a child that was killed before it began.
    fn is_stillborn(state: u32, is_alive: impl Fn(u32) -> bool) -> bool {
        state & 0xff == BORN && !is_alive(state >> 8)
    }

    /// Whether the slot can be freed, once its process is dead, without the swap device's being told.
    fn folds(&self) -> bool {
        self.state.load(Ordering::Acquire) == LIVE
            && self.swap_user.load(Ordering::Relaxed) == NO_SLOTS
    }
}

/// Whether there is a process of that number; "no" only if there surely is none.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    let pid = pid.cast_signed();
    signal::tgkill(pid, pid, 0) != Err(Errno::ESRCH)
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
    /// Slots, from the first one on, that were ever taken.
    nr_used: AtomicU32,
    /// The configuration.
    pub config: Config,
    /// What may be changed at any time.
    pub knobs: Knobs,
    /// Why a process was ended by uzswap, if one was.
    pub failure: Failure,
    /// Sums of the processes whose slots were reused.
    pub ended: Process,
    /// The slots.
    pub processes: [Process; NR_PROCESSES],
}

/// Moves what an ended process's cell holds to the sum of those that ended.
fn fold_cell(to: &AtomicU64, from: &AtomicU64, kind: Kind) {
    let n = from.swap(0, Ordering::Relaxed);
    match kind {
        Kind::Counter => to.fetch_add(n, Ordering::Relaxed),
        Kind::Peak => to.fetch_max(n, Ordering::Relaxed),
        Kind::Gauge => 0,
    };
}

/// Bytes of a group file.
pub const GROUP_LEN: usize = size_of::<Group>();

impl Group {
    /// Claims a slot for process `pid`. When all are taken by live processes (`is_alive` says so),
    /// the last slot is shared.
    pub fn claim(&self, pid: u32, ppid: u32, tsc: u64, is_alive: impl Fn(u32) -> bool) -> &Process {
        self.nr_started.fetch_add(1, Ordering::Relaxed);
        // A process that execs keeps its pid: what it counted before has ended.
        for p in self.used() {
            if p.folds() && p.pid.load(Ordering::Relaxed) == pid {
                self.fold(p, LIVE, || {});
            }
        }
        let taken = self.take_free(BUSY).or_else(|| {
            for p in &self.processes {
                if p.folds() && !is_alive(p.pid.load(Ordering::Relaxed)) {
                    self.fold(p, LIVE, || {});
                }
            }
            self.take_free(BUSY)
        });
        let [.., last] = &self.processes;
        let Some(slot) = taken else { return last };
        slot.begin(pid, ppid, tsc);
        slot
    }

    /// Takes a slot for a fork child that process `parent` is about to make; it counts from [`Process::begin`] on.
    pub fn reserve(&self, parent: u32) -> Option<&Process> {
        self.nr_started.fetch_add(1, Ordering::Relaxed);
        self.take_free(of_process(RESERVED, parent))
    }

    /// The child that `parent` reserved a slot for has been made, as process `child`: if it is killed before it
    /// begins, the slot is found by that number. To be called before the parent reserves another.
    pub fn born(&self, reserved: &Process, parent: u32, child: u32) {
        // It may have begun, and even have ended, in which case the slot may be anybody's.
        let (from, to) = (of_process(RESERVED, parent), of_process(BORN, child));
        let _ = reserved
            .state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Gives a slot back that [`Group::reserve`] took: there is no child.
    pub fn give_back(&self, reserved: &Process) {
        self.nr_started.fetch_sub(1, Ordering::Relaxed);
        reserved.swap_user.store(NO_SLOTS, Ordering::Relaxed);
        reserved.state.store(FREE, Ordering::Release);
    }

    /// Frees the slots of processes that counted slots of the swap device and are dead, also before they began, or
    /// have become process `pid` of slot `own` by exec. `release` puts back what the one with that number counted.
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
                LIVE => {
                    p.swap_user.load(Ordering::Relaxed) == SLOTS
                        && !core::ptr::eq(p, own)
                        && (theirs == pid || !is_alive(theirs))
                }
                _ => Process::is_stillborn(state, &is_alive),
            };
            if is_dead {
                self.fold(p, state, || release(at));
            }
        }
    }

    /// The slots that were ever taken, which is from the front. Looking further would bring pages of the
    /// shared file into memory for nothing.
    pub fn used(&self) -> &[Process] {
        let nr = usize::try_from(self.nr_used.load(Ordering::Acquire));
        let used = nr.ok().and_then(|nr| self.processes.get(..nr));
        used.unwrap_or(&self.processes)
    }

    /// Number of a slot; `None` for the last one, which several processes may share.
    #[must_use]
    pub fn number_of(&self, process: &Process) -> Option<usize> {
        self.processes
            .iter()
            .take(NR_PROCESSES - 1)
            .position(|p| core::ptr::eq(p, process))
    }

    fn take_free(&self, state: u32) -> Option<&Process> {
        let slots = (1_u32..).zip(&self.processes);
        let mut taken = slots.filter(|(nr, p)| {
            // A compare-and-swap writes to the slot's page even if it fails.
            if p.state.load(Ordering::Relaxed) != FREE {
                return false;
            }
            // Before it is taken: a slot that somebody died with is not to be overlooked.
            self.nr_used.fetch_max(*nr, Ordering::Release);
            p.state
                .compare_exchange(FREE, state, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        });
        taken.next().map(|(_, p)| p)
    }

    /// Adds the counters of a slot that ended in `state` to [`Group::ended`] and, after `release`, frees it.
    fn fold(&self, from: &Process, state: u32, release: impl FnOnce()) {
        if from
            .state
            .compare_exchange(state, BUSY, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            return;
        }
        let to = &self.ended;
        let cells = to.counters.cells().into_iter().zip(from.counters.cells());
        for ((to, from), what) in cells.zip(Counters::ALL) {
            fold_cell(to, from, what.kind);
        }
        for (to, from) in to.orders.iter().zip(&from.orders) {
            let cells = to.cells().into_iter().zip(from.cells());
            for ((to, from), what) in cells.zip(OrderCounters::ALL) {
                fold_cell(to, from, what.kind);
            }
        }
        let (a, b) = (&to.fault_ticks, &from.fault_ticks);
        for (a, b) in a.buckets.iter().zip(&b.buckets) {
            a.fetch_add(b.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
        a.max
            .fetch_max(b.max.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        release();
        from.swap_user.store(NO_SLOTS, Ordering::Relaxed);
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
