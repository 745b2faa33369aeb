//! *What*: what commands and reports read of a running group: its processes, its swap devices
//! ([`device`]) and the sums of its counters ([`totals`]).
//!
//! *Invariants*: nothing here changes a group or contacts a process; it reads atomics of the mapped
//! group file, so values read one after the other may belong to different moments. Process slots
//! that were never used are not touched: reading them would allocate pages of the shared file.
//! *Locking*: none. *Context*: any command.

pub mod device;
mod part;
pub mod totals;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use uzswap_group::follow::Follows;
use uzswap_group::group::{self, Group, Process};
use uzswap_sys::PAGE_SIZE;
use uzswap_sys::clock::Moment;

pub use part::{Part, name_of_path};
use totals::seconds;

/// Bytes of a page.
pub const PAGE: u64 = PAGE_SIZE as u64;

/// The processes of a part that still exist.
pub fn live_processes<'a>(part: &Part<'a>) -> impl Iterator<Item = &'a Process> + use<'a> {
    part.used_slots()
        .filter(|process| is_alive(pid_of(process)))
}

/// Whether process `pid` exists. A slot whose process has not registered yet has pid 0.
pub fn is_alive(pid: u32) -> bool {
    pid != 0 && group::is_alive(pid)
}

/// Process id, 0 before the process has registered.
pub fn pid_of(process: &Process) -> u32 {
    process.pid.load(Relaxed)
}

/// The process's name as the kernel has it, printable characters only.
pub fn name_of(process: &Process) -> String {
    text_of(&process.comm)
}

/// The printable characters of a zero-padded name.
pub fn text_of(cells: &[AtomicU64]) -> String {
    let bytes = cells.iter().flat_map(|c| c.load(Relaxed).to_ne_bytes());
    let bytes: Vec<u8> = bytes.take_while(|&b| b != 0).collect();
    let name = String::from_utf8_lossy(&bytes);
    name.chars().filter(|c| !c.is_control()).collect()
}

/// `name (pid)`.
pub fn label(process: &Process) -> String {
    format!("{} ({})", name_of(process), pid_of(process))
}

/// Memory of one process, bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Managed memory in RAM, uncompressed.
    pub resident: u64,
    /// RAM of the compressed pool.
    pub pool: u64,
    /// RAM of tables and buffers.
    pub metadata: u64,
    /// Data in the pool, before compression.
    pub stored: u64,
    /// What it has outside its account, as last measured.
    pub unmanaged: u64,
}

impl Sizes {
    /// The sizes of `process` now.
    pub fn of(process: &Process) -> Self {
        let counters = &process.counters;
        Sizes {
            resident: counters.resident.load(Relaxed),
            pool: counters.pool_total_size.load(Relaxed),
            metadata: counters.metadata.load(Relaxed),
            stored: counters.stored_pages.load(Relaxed) * PAGE,
            unmanaged: process.unmanaged.load(Relaxed),
        }
    }

    /// What counts towards the limit.
    pub fn in_use(&self) -> u64 {
        self.resident + self.pool + self.metadata
    }
}

/// What the group's limit follows; none if that is fixed.
pub fn followed(group: &Group) -> Option<&'static str> {
    match group.follow.what.load(Relaxed) {
        Follows::Nothing => None,
        Follows::Machine => Some("machine"),
        // It is not known yet, but will be in a moment.
        Follows::Asked | Follows::Cgroup => Some("cgroup"),
    }
}

/// Rate of the time stamp counter, in which the group's times are counted.
pub fn tsc_hz(group: &Group) -> u64 {
    group.config.tsc_hz.load(Relaxed)
}

/// Seconds since the first process whose slot is still in use started.
pub fn elapsed_s(group: &Part<'_>) -> f64 {
    let first = group.used_slots().map(|p| p.start_tsc.load(Relaxed)).min();
    first.map_or(0.0, |first| {
        seconds(Moment::now().ticks().saturating_sub(first), tsc_hz(group))
    })
}
