//! The uzswap engine: page table, compressed store, reclaim and faults.
//!
//! `no_std` without `alloc`: the fault path cannot call the program's malloc.
//!
//! Arrows point down only; `tests/directions.rs` reads the `use` lines.
//!
//! ```text
//! engine                                  the façade
//! start                                   builds the parts
//! flow                                    fault, load, reclaim, writeback, fork: over the parts
//! parts                                   what a started engine is made of
//! arena   store   backing   policy        mappings; pool and codecs; swap devices; rules
//! op                                      the context of one operation
//! account   memory   masked   accel       limit, counters; own memory; signal masks; accelerators
//! page                                    entries, folios, lists
//! ```
#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable
    )
)]
#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        reason = "test data is cut to size on purpose"
    )
)]

pub mod accel;
#[cfg(not(loom))]
mod account;
pub mod arena;
pub mod backing;
#[cfg(not(loom))]
mod engine;
#[cfg(not(loom))]
mod flow;
pub mod masked;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
pub mod op;
pub mod page;
#[cfg(not(loom))]
mod parts;
#[cfg(not(loom))]
mod policy;
#[cfg(not(loom))]
mod start;
#[cfg(not(loom))]
mod start_error;
#[cfg(not(loom))]
mod store;

#[cfg(not(loom))]
pub use engine::{Engine, FaultMode};
#[cfg(not(loom))]
pub use flow::{
    densify::MIN_DENSE_ORDER,
    fault::Fault,
    fork::ForkGuard,
    pin::Pin,
    remap::RemapTo,
    space::{ForkPolicy, MapError},
    threads::NoRoom,
};
pub use masked::Masked;
#[cfg(not(loom))]
pub use page::ranking::{Candidate, Ranking};
pub use page::{ARENA_BASE, ARENA_LEN, PAGE_SIZE, Partition, arena_part, in_arena};
#[cfg(not(loom))]
pub use start::{MIN_RAM, min_ram};
#[cfg(not(loom))]
pub use start_error::{StartError, StartStep};
