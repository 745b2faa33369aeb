//! Memory pools that hold more than their limit of RAM: cold pages are compressed, and what does
//! not fit then is written to a swap file, compressed and encrypted.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = uzswap::Pool::builder().limit(64 << 20).build()?;
//! let mut table = pool.map(256 << 20)?; // four times the limit
//! for (n, page) in table.chunks_mut(4096).enumerate() {
//!     page[..8].copy_from_slice(&n.to_le_bytes());
//! }
//! assert_eq!(table[4096 * 1000..][..2], 1000_u16.to_le_bytes());
//! println!("{}", pool.stats());
//! # Ok(())
//! # }
//! ```
//!
//! - [`Pool`]: a limit, and the memory under it; `&Pool` and `Pool` are allocators
//! - [`PoolGroup`]: several pools under one limit
//! - [`Ranking`]: a rule of the host's about what is evicted first
//! - [`Region`]: raw bytes of a pool
//! - [`Alloc`]: a pool as the `#[global_allocator]`
//! - [`faults`]: how accesses reach the library, and what that means to its host
//! - [`guard`]: how the kernel's do
//!
//! What holds for threads, signals, system calls and fork: docs/library.md.
#![cfg_attr(feature = "nightly", feature(allocator_api))]

mod alloc;
mod builder;
mod engines;
mod error;
pub mod faults;
mod fork;
mod group;
pub mod guard;
mod heap;
mod limit;
mod masks;
mod pool;
mod pool_group;
mod region;
mod server;
mod sites;
mod stack;
mod stats;
mod swap;
mod user;

pub use alloc::Alloc;
pub use builder::{Builder, FaultMode, MemberBuilder, is_managed};
pub use error::{BuildError, LimitError, PoolError, Replaced};
pub use pool::{Pinned, Pool};
pub use pool_group::PoolGroup;
pub use region::Region;
pub use stats::Stats;
pub use swap::Swap;
pub use uzswap_core::{Candidate, Ranking};
pub use uzswap_swap::size::Size;
