//! *What*: the account of this process: its limits and what is charged to them, its group, and its
//! counters. Every owner of state counts here.
//!
//! *Invariants*
//! - `charge` counts every page of resident + pool + metadata + operations' reserves, before the
//!   page is touched, and never exceeds the limit unless the group allows it.
//! - `group` and `process` are set before the engine reports that it has started, and never null
//!   after.
//!
//! *Locking*: none; leaf. *Context*: any.

use core::ptr::null_mut;

use crate::memory::OwnMemory;
use crate::page::{PAGE_SIZE, narrow, wide};
use uzswap_group::counters::Counters;
use uzswap_group::group::{Failure, FailureReason, Group, Process};
use uzswap_group::knobs::Knobs;
use uzswap_sync::charge::Charge;
use uzswap_sync::node::Path;
use uzswap_sync::presence::Kick;
use uzswap_sync::primitive::{AtomicI32, AtomicPtr, AtomicU64, Ordering::Relaxed};
use uzswap_sync::strict_assert;
use uzswap_sys::fmt::write_line;
use uzswap_sys::signal::{self, SIGKILL};
use uzswap_sys::{file, thread};

/// The limit of this process, its charge, and its record in the group.
#[derive(Debug)]
pub(crate) struct Account {
    charge: Charge,
    group: AtomicPtr<Group>,
    process: AtomicPtr<Process>,
    /// The process that owns this memory; a vfork child runs in it under another pid.
    pid: AtomicI32,
    /// Charged pages of the engine's own memory.
    metadata: AtomicU64,
    memory: OwnMemory,
}

impl Account {
    /// An account with a limit of zero.
    pub(crate) const fn new() -> Self {
        Account {
            charge: Charge::new(0),
            group: AtomicPtr::new(null_mut()),
            process: AtomicPtr::new(null_mut()),
            pid: AtomicI32::new(0),
            metadata: AtomicU64::new(0),
            memory: OwnMemory::new(),
        }
    }

    /// Opens the account of this process: the limits are the group's knobs, the counters are
    /// `process`'s.
    pub(crate) fn open(&self, group: &'static Group, process: &'static Process) {
        self.group
            .store(core::ptr::from_ref(group).cast_mut(), Relaxed);
        self.become_process(process);
    }

    /// Makes `process` the record of this process: at start, and in a fork child.
    pub(crate) fn become_process(&self, process: &'static Process) {
        self.process
            .store(core::ptr::from_ref(process).cast_mut(), Relaxed);
        self.pid.store(thread::getpid(), Relaxed);
        self.charge.follow(&self.group().membership(process));
    }

    /// Closes it: nothing is counted any more, and it can be opened anew.
    pub(crate) fn close(&self) {
        self.metadata.store(0, Relaxed);
        self.charge.leave();
    }

    /// The engine's own memory.
    pub(crate) const fn memory(&self) -> &OwnMemory {
        &self.memory
    }

    /// The charge and its limit.
    #[inline]
    pub(crate) const fn charge(&self) -> &Charge {
        &self.charge
    }

    /// The group.
    #[inline]
    pub(crate) fn group(&self) -> &'static Group {
        // SAFETY: set by `open`, before any other call, to a group that is never unmapped.
        unsafe { &*self.group.load(Relaxed) }
    }

    /// The group's live knobs.
    #[inline]
    pub(crate) fn knobs(&self) -> &'static Knobs {
        &self.group().knobs
    }

    /// This process's record in the group.
    #[inline]
    pub(crate) fn process(&self) -> &'static Process {
        // SAFETY: as for `group`; records of a group are never unmapped.
        unsafe { &*self.process.load(Relaxed) }
    }

    /// By which other processes give its reclaimer work. `None`: the record is not its alone.
    pub(crate) fn kick(&self) -> Option<&'static Kick> {
        let process = self.process();
        self.group().number_of(process).map(|_| &process.ask.kick)
    }

    /// This process's counters.
    #[inline]
    pub(crate) fn counters(&self) -> &'static Counters {
        &self.process().counters
    }

    /// The owner of this memory.
    pub(crate) fn pid(&self) -> i32 {
        self.pid.load(Relaxed)
    }

    /// Whether the caller is the owner of this memory, not a vfork child in it, nor its reclaimer.
    #[inline]
    pub(crate) fn is_own_process(&self) -> bool {
        thread::getpid() == self.pid()
    }

    /// Whether the process exceeds its limit rather than dying.
    pub(crate) fn may_exceed(&self) -> bool {
        self.group().config.over_limit_allow.load(Relaxed) != 0
    }

    /// The limit of this process if it were alone, in bytes.
    pub(crate) fn limit_bytes(&self) -> u64 {
        let own = match self.knobs().ram_per_process.load(Relaxed) {
            0 => u64::MAX,
            own => own,
        };
        self.limits().map(|(_, bytes)| bytes).fold(own, u64::min)
    }

    /// The nodes that this process counts in, and their limits in bytes.
    fn limits(&self) -> impl Iterator<Item = (usize, u64)> {
        let group = self.group();
        let nodes = self.charge.share().path().nodes();
        nodes.map(|node| (node, group.limit_of(node)))
    }

    /// Whether each process has a limit of its own, so that what two of them have in common counts
    /// in both.
    pub(crate) fn is_limited_alone(&self) -> bool {
        self.knobs().ram_per_process.load(Relaxed) != 0
    }

    /// Whether the process would be within its limits with `nr` pages more if it were alone.
    pub(crate) fn fits_alone(&self, nr: u64) -> bool {
        let share = self.charge.share();
        let pages = share.used() + share.shared() + nr;
        let ledger = &self.group().ledger;
        let fits = |(node, bytes)| pages <= ledger.grantable(node, bytes, 0);
        self.limits().all(fits) && pages * wide(PAGE_SIZE) <= self.limit_bytes()
    }

    /// Charges `nr` pages although the group as a whole is at its limit.
    pub(crate) fn charge_beyond_group(&self, nr: u64) {
        self.charge.charge_unchecked(nr);
        self.counters().over_limit_pages.fetch_add(nr, Relaxed);
        // For the peaks.
        self.charge.levels();
    }

    /// Whether process ids of the group mean the same to this process as to the supervisor.
    pub(crate) fn knows_pids(&self) -> bool {
        file::fstatat(file::AT_FDCWD, c"/proc/self/ns/pid", 0)
            .is_ok_and(|stat| stat.st_ino == self.group().config.pid_namespace.load(Relaxed))
    }

    /// Maximum pages that one operation brings in at once: a fraction of the limit.
    pub(crate) fn max_window(&self) -> usize {
        narrow(self.charge.limit() / 32).max(1)
    }

    /// Counts `pages`, already charged, as the engine's own memory.
    pub(crate) fn add_metadata(&self, pages: u64) {
        self.metadata.fetch_add(pages, Relaxed);
    }

    /// Uncounts `pages` of the engine's own memory.
    pub(crate) fn sub_metadata(&self, pages: u64) {
        let before = self.metadata.fetch_sub(pages, Relaxed);
        strict_assert!(before >= pages, "metadata below zero");
    }

    /// Pages of the engine's own memory.
    pub(crate) fn metadata(&self) -> u64 {
        self.metadata.load(Relaxed)
    }

    /// Bytes of the limit that this process would take if it were alone: what it has charged, what
    /// it shares, and what is outside.
    pub(crate) fn used_bytes(&self) -> u64 {
        let share = self.charge.share();
        let outside = self.group().ledger.outside_of(self.tightest_node());
        (share.used() + share.shared()) * wide(PAGE_SIZE) + outside
    }

    /// The node with the least limit.
    fn tightest_node(&self) -> usize {
        let least = self.limits().min_by_key(|(_, bytes)| *bytes);
        least.map_or(Path::ROOT_NODE, |(node, _)| node)
    }

    /// Where it says why it ended.
    fn failure(&self) -> &'static Failure {
        &self.group().run_of(self.process()).failure
    }

    /// Ends the process; `uzswap run` reports the reason.
    pub(crate) fn die(&self, reason: FailureReason, errno: u32, needed: u64) -> ! {
        let pid = thread::getpid().unsigned_abs();
        if self.process().reclaimer.load(Relaxed) == pid {
            let owner = self.pid();
            self.failure().record(
                reason,
                owner.unsigned_abs(),
                errno,
                0,
                needed,
                self.limit_bytes(),
            );
            let _ = signal::tgkill(owner, owner, SIGKILL);
        }
        self.failure()
            .record(reason, pid, errno, 0, needed, self.limit_bytes());
        if !self.group().is_published() {
            // Of a library's pool nobody else reports.
            let _ = write_line(
                2,
                format_args!(
                    "uzswap: a pool ends the process: {reason:?}, error {errno}; {needed} bytes \
                     needed, {} allowed",
                    self.limit_bytes()
                ),
            );
        }
        thread::exit_group(125)
    }
}
