//! *What*: what can go wrong, and what to do about it.
//!
//! *Invariants*: each message says what happened, with its figures, and what to do next.
//! *Locking*: none. *Context*: any.

use std::io;
use std::path::PathBuf;

use uzswap_core::{Fault, MapError, StartError, StartStep};

use uzswap_swap::size::Size;
use uzswap_sys::Errno;

/// Why a pool could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The limit is below what the engine works with.
    #[error("a pool needs a limit of at least {} here, and {} is less: raise it", Size(*.least), Size(*.limit))]
    LimitTooLow {
        /// Bytes that were asked for.
        limit: u64,
        /// The least that works on this machine with this compressor, bytes.
        least: u64,
    },
    /// The process runs under `uzswap run`, which manages all of its memory already.
    #[error(
        "this process runs under 'uzswap run', which manages its memory already: allocate as usual, \
         or start it without"
    )]
    Managed,
    /// There are as many pools as a process can have.
    #[error("this process has {most} pools, as many as it can: drop one, or share it")]
    TooManyPools {
        /// Pools that a process can have.
        most: usize,
    },
    /// A fork child has the pools of a group, but adds none.
    #[error(
        "this process is a fork, and the group its parent's: build a pool, or a group, of its own"
    )]
    GroupOfParent,
    /// A compressor that does not exist.
    #[error("there is no compressor '{name}': use lz4, zstd[:1-22], deflate[:1-12], pz or auto")]
    Compressor {
        /// As it was given.
        name: String,
    },
    /// The swap file cannot be used.
    #[error("cannot swap to {}: {reason}: name another place, or go without (Swap::None)", .path.display())]
    Swap {
        /// Where it was to be.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The kernel, or a sandbox, refuses what the engine needs.
    #[error("cannot start: {error}: {}", advice(*.error))]
    Start {
        /// The step and its error.
        error: StartError,
    },
    /// A system call failed.
    #[error("cannot {what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        error: io::Error,
    },
}

impl BuildError {
    /// Whether the host has something at the addresses that the pool was to have.
    pub(crate) fn is_place_occupied(&self) -> bool {
        matches!(self, BuildError::Start { error }
            if (error.step, error.errno) == (StartStep::Arena, Errno::EEXIST))
    }
}

/// What to do about a failed start.
fn advice(error: StartError) -> &'static str {
    match error.step {
        StartStep::Arena => {
            "something lies between 16 and 20 TiB of this process's addresses, or 'ulimit -v' is set"
        }
        StartStep::Tables | StartStep::Workspace => {
            "it reserves a terabyte of addresses: lift 'ulimit -v', and vm.overcommit_memory=2"
        }
        StartStep::UffdOpen | StartStep::UffdApi | StartStep::UffdRegister => {
            "userfaultfd is not to be had in this way: try FaultMode::Segv, or FaultMode::Auto"
        }
        StartStep::Guard => "go without the guard of system calls (.guard(false)), and pin instead",
        StartStep::Memory => "/proc must be mounted, and /proc/self/mem writable",
        StartStep::Child => "it was killed while it forked: nothing is to be done",
        StartStep::RamTooSmall | StartStep::Compressor => "raise the limit",
    }
}

/// Why a pool has no memory to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The pool has no address space left, or no entry for one more region.
    #[error(
        "the pool has no addresses left for {}: it has {} in all; free some, or use another pool",
        Size(*.wanted),
        Size(*.capacity)
    )]
    NoSpace {
        /// Bytes that were asked for.
        wanted: u64,
        /// Bytes of addresses that the pool has.
        capacity: u64,
    },
    /// More would be mapped than the pool may hold.
    #[error(
        "the pool may hold {}, and has {}: {} more do not fit; free some, or build it with a higher \
         max_size",
        Size(*.most),
        Size(*.used),
        Size(*.wanted)
    )]
    TooLarge {
        /// Bytes that were asked for.
        wanted: u64,
        /// Bytes that are mapped.
        used: u64,
        /// Bytes that may be.
        most: u64,
    },
    /// The limit leaves no room, compressed or not, and there is no swap for it either.
    #[error(
        "the limit leaves no room for it: {} would be enough for now; raise the limit (set_limit), \
         add swap, or free some",
        Size(*.needed)
    )]
    OverLimit {
        /// Bytes that would be enough for now.
        needed: u64,
    },
    /// What was stored cannot be read back.
    #[error("what was stored there cannot be read back: the swap device failed, or memory did")]
    Lost,
    /// The memory is not this pool's.
    #[error("the memory is not this pool's")]
    NotOurs,
    /// The pool did not come along when this process was forked.
    #[error(
        "this process is a fork that has no part of the pool: the parent's had no room for it; exec, \
         or build a pool of its own"
    )]
    LostInFork,
    /// The kernel refused.
    #[error(
        "the kernel refuses ({0}): a process may have only so many mappings (vm.max_map_count)"
    )]
    Kernel(i32),
}

impl PoolError {
    pub(crate) fn of_map(error: MapError, wanted: usize, capacity: usize) -> Self {
        match error {
            MapError::NoSpace => PoolError::NoSpace {
                wanted: wanted as u64,
                capacity: capacity as u64,
            },
            MapError::Invalid | MapError::NotMapped => PoolError::NotOurs,
            MapError::Kernel(errno) => PoolError::Kernel(errno.0),
        }
    }

    pub(crate) fn of_fault(fault: Fault) -> Self {
        match fault {
            Fault::OverLimit { needed_bytes } => PoolError::OverLimit {
                needed: needed_bytes,
            },
            Fault::Corrupt => PoolError::Lost,
            Fault::NotMapped | Fault::Foreign | Fault::Resolved => PoolError::NotOurs,
        }
    }
}

/// Why a limit was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// It is below what the engine works with.
    #[error("a pool needs a limit of at least {} here, and {} is less", Size(*.least), Size(*.limit))]
    TooLow {
        /// Bytes that were asked for.
        limit: u64,
        /// The least that works, bytes.
        least: u64,
    },
    /// What the pool holds does not fit.
    #[error(
        "the pool has {} and cannot come down to {}: free some of it, unpin, or add swap; the limit is \
         as before",
        Size(*.used),
        Size(*.limit)
    )]
    DoesNotFit {
        /// Bytes that were asked for.
        limit: u64,
        /// Bytes that are used.
        used: u64,
    },
    /// See [`PoolError::LostInFork`].
    #[error("this process is a fork that has no part of the pool")]
    LostInFork,
    /// A fork child cannot change the limit of a group.
    #[error("this process is a fork: the limit of the group is changed by the one that made it")]
    GroupOfParent,
}

/// The host has replaced a signal handler by which faults arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the handler of signal {signal} was replaced after the first pool was built, and gets the pools' \
     faults now: call uzswap::faults::reinstall(), which keeps the new one behind"
)]
pub struct Replaced {
    /// Its number.
    pub signal: i32,
}
