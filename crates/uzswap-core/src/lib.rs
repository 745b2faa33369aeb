//! The uzswap engine: page table, compressed pool, reclaim and faults.
//!
//! `no_std` without `alloc`: the fault path cannot call the program's malloc.
#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        reason = "test data is cut to size on purpose"
    )
)]

pub mod accel;
pub mod arena;
#[cfg(not(loom))]
pub mod engine;
pub mod folio;

pub mod hazard;

#[cfg(not(loom))]
pub mod lru;
pub mod masked;

pub mod readahead;
pub mod region;

#[cfg(not(loom))]
pub mod slot;

pub mod swap_cache;
pub mod swap_readahead;
pub mod table;

pub use arena::{ARENA_BASE, ARENA_LEN, PAGE_SIZE, in_arena};
#[cfg(not(loom))]
pub use engine::{
    Engine, Fault, FaultMode, ForkGuard, ForkPolicy, MIN_DENSE_ORDER, MIN_RAM, MapError, Pin,
    RemapTo, StartError, StartStep, min_ram,
};
pub use masked::Masked;
