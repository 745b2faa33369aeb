//! *What*: the group of pools, in memory of this process: limits, knobs and counters, as
//! `uzswap run` keeps them in a file. Fork children share it, and with it the limit.
//!
//! *Invariants*: the process that builds a pool is its own supervisor. The group is never
//! published: no process finds it by name. It outlives the pool's engine.
//! *Locking*: none; it is made of atomics. *Context*: a thread of the host.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::Relaxed;

use uzswap_group::group::{GROUP_LEN, Group, Identity, Process, is_alive};
use uzswap_sync::node::Path;
use uzswap_sys::{arch, mem};

/// The group's memory, shared with fork children.
#[derive(Debug)]
pub(crate) struct GroupMemory(usize);

impl GroupMemory {
    pub(crate) fn new() -> io::Result<GroupMemory> {
        let (prot, flags) = (
            mem::PROT_READ | mem::PROT_WRITE,
            mem::MAP_SHARED | mem::MAP_ANONYMOUS | mem::MAP_NORESERVE,
        );
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let addr = unsafe { mem::mmap(0, GROUP_LEN, prot, flags, -1, 0) };
        let addr = addr.map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
        let memory = GroupMemory(addr);
        let group = memory.group();
        group.knobs.reset();
        let namespace = identity().namespace;
        group.config.pid_namespace.store(namespace, Relaxed);
        // One for each pool.
        group.config.several_records.store(1, Relaxed);
        group.begin_run(Path::ROOT, std::process::id(), 0, |_| true);
        Ok(memory)
    }

    /// The group. The caller drops the reference before this.
    pub(crate) fn group(&self) -> &'static Group {
        // SAFETY: a mapping of that length, page aligned, which `Drop` alone unmaps; zeroed memory
        // is a valid group, as it is made of atomics.
        unsafe { &*(self.0 as *const Group) }
    }

    /// One more record of this process's, in run number `run`.
    pub(crate) fn claim(&self, run: usize) -> &'static Process {
        self.group().claim(run, identity(), is_alive)
    }

    /// An engine of this process, which has stopped, needs its record no more.
    pub(crate) fn leave(&self, record: &Process) {
        self.group().leave(record, identity(), is_alive);
    }
}

impl Drop for GroupMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; the engine that used it has stopped.
        let _ = unsafe { mem::munmap(self.0, GROUP_LEN) };
    }
}

/// Who this process is.
pub(crate) fn identity() -> Identity {
    Identity {
        pid: std::process::id(),
        ppid: std::os::unix::process::parent_id(),
        namespace: std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino()),
        start_tsc: arch::ticks(),
    }
}
