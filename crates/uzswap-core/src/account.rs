//! *What*: the account of this process: the limit and what is charged to it, the group it belongs to, and the
//! counters it writes to. Every owner of state counts here.
//!
//! *Invariants*
//! - `charge` counts every page of resident + pool + metadata + what operations have set aside, before it is touched,
//!   and never exceeds the limit (unless the group allows it).
//! - `group` and `process` are set before the engine says that it has started, and never null after that.
//!
//! *Locking*: none; leaf. *Context*: any.

use core::ptr::null_mut;

use crate::page::{PAGE_SIZE, narrow, wide};
use uzswap_group::counters::Counters;
use uzswap_group::group::{FailureReason, Group, Process};
use uzswap_group::knobs::Knobs;
use uzswap_sync::charge::Charge;
use uzswap_sync::primitive::{AtomicI32, AtomicPtr, AtomicU64, Ordering::Relaxed};
use uzswap_sys::thread;

/// What this process may use, what it uses, and where it says so.
#[derive(Debug)]
pub(crate) struct Account {
    charge: Charge,
    group: AtomicPtr<Group>,
    process: AtomicPtr<Process>,
    /// Whose memory this is: another pid here is a vfork child running in it.
    pid: AtomicI32,
    /// Charged pages of the engine's own memory.
    metadata: AtomicU64,
}

impl Account {
    /// Nothing may be charged yet.
    pub(crate) const fn new() -> Self {
        Account {
            charge: Charge::new(0),
            group: AtomicPtr::new(null_mut()),
            process: AtomicPtr::new(null_mut()),
            pid: AtomicI32::new(0),
            metadata: AtomicU64::new(0),
        }
    }

    /// Opens the account of this process: the limit is the group's knob, the counters are `process`'s.
    pub(crate) fn open(&self, group: &'static Group, process: &'static Process) {
        self.charge.follow(&group.knobs.ram);
        self.group
            .store(core::ptr::from_ref(group).cast_mut(), Relaxed);
        self.become_process(process);
    }

    /// From now on this process is the one that counts into `process`: at start, and in a fork child.
    pub(crate) fn become_process(&self, process: &'static Process) {
        self.process
            .store(core::ptr::from_ref(process).cast_mut(), Relaxed);
        self.pid.store(thread::getpid(), Relaxed);
    }

    /// What is charged, and the limit.
    #[inline]
    pub(crate) const fn charge(&self) -> &Charge {
        &self.charge
    }

    /// The group.
    #[inline]
    pub(crate) fn group(&self) -> &'static Group {
        // SAFETY: set by `open`, before anybody asks, to a group that is mapped for good.
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

    /// This process's counters.
    #[inline]
    pub(crate) fn counters(&self) -> &'static Counters {
        &self.process().counters
    }

    /// Whether this is the process whose memory this is, and not a vfork child in it.
    #[inline]
    pub(crate) fn is_own_process(&self) -> bool {
        thread::getpid() == self.pid.load(Relaxed)
    }

    /// Whether the process goes over its limit rather than end.
    pub(crate) fn may_exceed(&self) -> bool {
        self.group().config.over_limit_allow.load(Relaxed) != 0
    }

    /// The limit in bytes.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.charge.limit() * wide(PAGE_SIZE)
    }

    /// Most pages that one operation brings in at once: a fraction of the limit.
    pub(crate) fn max_window(&self) -> usize {
        narrow(self.charge.limit() / 32).max(1)
    }

    /// Counts `pages`, which are charged, as the engine's own memory.
    pub(crate) fn add_metadata(&self, pages: u64) {
        self.metadata.fetch_add(pages, Relaxed);
    }

    /// Counts `pages` off that were the engine's own memory.
    pub(crate) fn sub_metadata(&self, pages: u64) {
        self.metadata.fetch_sub(pages, Relaxed);
    }

    /// Pages of the engine's own memory.
    pub(crate) fn metadata(&self) -> u64 {
        self.metadata.load(Relaxed)
    }

    /// Bytes that everything charged now takes.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.charge.used() * wide(PAGE_SIZE)
    }

    /// Ends the process: `uzswap run` tells why.
    pub(crate) fn die(&self, reason: FailureReason, errno: u32, needed: u64) -> ! {
        let pid = thread::getpid().unsigned_abs();
        self.group()
            .failure
            .record(reason, pid, errno, 0, needed, self.limit_bytes());
        thread::exit_group(125)
    }
}
