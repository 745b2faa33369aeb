//! *What*: why the engine could not start: the step, and the system call's error.
//!
//! *Invariants*: a step's number is stored in the group's exit record, and never changes.
//! *Locking*: none. *Context*: init.

use core::fmt;

use uzswap_sys::Errno;

/// What `start` was doing when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum StartStep {
    /// Reserving the arena: EEXIST if something is mapped there, ENOMEM under an address space
    /// limit.
    Arena = 1,
    /// Reserving memory for the engine's tables.
    Tables = 2,
    /// userfaultfd(2): ENOSYS without kernel support, EPERM where a sandbox or a sysctl forbids it.
    UffdOpen = 3,
    /// Its features: write protection (5.7), and SIGBUS delivery in signal mode.
    UffdApi = 4,
    /// Registering the arena.
    UffdRegister = 5,
    /// A compressor's or decompressor's memory.
    Workspace = 6,
    /// The limit is below [`MIN_RAM`] or what the operations need.
    RamTooSmall = 7,
    /// A compressor or level that this library does not have.
    Compressor = 8,
    /// Installing the system call guard: ENOMEM below more than a hundred programs that each
    /// started the next; EEXIST if its addresses are taken; EACCES, EINVAL without seccomp.
    Guard = 9,
    /// Opening /proc/self/mem, or writing through it to memory that nobody may access: ENOENT
    /// without /proc, EIO where the kernel forbids that (`proc_mem.force_override`).
    Memory = 10,
    /// Beginning as a fork child: ESRCH if the parent was killed while it forked, and the child's
    /// place in the group was given to another before the child got to run.
    Child = 11,
}

impl StartStep {
    /// The step of that number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<StartStep> {
        Some(match number {
            1 => StartStep::Arena,
            2 => StartStep::Tables,
            3 => StartStep::UffdOpen,
            4 => StartStep::UffdApi,
            5 => StartStep::UffdRegister,
            6 => StartStep::Workspace,
            7 => StartStep::RamTooSmall,
            8 => StartStep::Compressor,
            9 => StartStep::Guard,
            10 => StartStep::Memory,
            11 => StartStep::Child,
            _ => return None,
        })
    }
}

/// Why the engine could not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartError {
    /// The step that failed.
    pub step: StartStep,
    /// The system call's error; 0 if none was involved.
    pub errno: Errno,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.step, self.errno)
    }
}

pub(crate) const fn failed(step: StartStep, errno: Errno) -> StartError {
    StartError { step, errno }
}
