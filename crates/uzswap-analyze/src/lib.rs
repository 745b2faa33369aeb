//! What uzswap would do for a program that runs without it.
//!
//! *What*: watches processes ([`observe`], [`watch`], [`process`]), looks at what is in their memory ([`contents`], [`heap`]), reckons how much slower they would be
//! under a limit ([`model`]) from what a fault costs here ([`cost`]), and puts it in words ([`advice`]). docs/analyze.md tells how well.
//! *Invariants*: a process is only read; nothing stops it.
//! *Locking*: none.
//! *Context*: the command line tool.

pub mod advice;
pub mod contents;
pub mod cost;
pub mod heap;
pub mod model;
pub mod observe;
pub mod process;
pub mod watch;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Bytes of a MiB, for showing sizes.
const MIB: f64 = 1_048_576.0;
