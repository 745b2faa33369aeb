//! *What*: what the supervisor measures of memory outside the engines' account: where it lies, and
//! which program has most of it. The sums are [`Run::unmanaged`](crate::run::Run::unmanaged)
//! and its peak.
//! *Invariants*: written by the supervisor alone; the values of one measurement are stored one
//! after the other, so a reader may see parts of two.
//! *Locking*: none; every cell is a relaxed atomic. *Context*: written by `uzswap run`, read by any
//! command and by the processes of the group.

use core::sync::atomic::AtomicU64;

/// Memory outside the account by kind, bytes.
#[derive(Debug)]
#[repr(C)]
pub struct Outside {
    /// Anonymous memory.
    pub anonymous: AtomicU64,
    /// Shared memory that a process of the run has mapped.
    pub shared: AtomicU64,
    /// Page tables and kernel stacks.
    pub tables: AtomicU64,
    /// What the program that has most of it has.
    pub most: AtomicU64,
    /// Name of that program, as `/proc/PID/comm` has it, zero-padded.
    pub most_name: [AtomicU64; 2],
}

impl Outside {
    pub(crate) fn cells(&self) -> [&AtomicU64; 6] {
        let [first, second] = &self.most_name;
        let (kinds, most) = ([&self.anonymous, &self.shared, &self.tables], &self.most);
        let [anonymous, shared, tables] = kinds;
        [anonymous, shared, tables, most, first, second]
    }
}
