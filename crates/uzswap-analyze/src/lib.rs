//! What uzswap would do for a program that runs without it.
//!
//! *What*: watches processes ([`observe`], [`watch`], [`process`]), samples their memory
//! ([`contents`], [`heap`]), predicts from the cost of a fault here ([`cost`]) how much slower they
//! would be under a limit ([`model`]), and reports that ([`advice`]). docs/analyze.md has its
//! accuracy.
//! *Invariants*: a process is only read; nothing stops it.
//! *Locking*: none.
//! *Context*: the command-line tool.

pub mod advice;
pub mod contents;
pub mod cost;
pub mod heap;
pub mod model;
pub mod observe;
pub mod process;
pub mod watch;

/// Bytes of a page.
pub const PAGE: u64 = uzswap_corpus::PAGE as u64;
/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

/// Bytes, rounded up to a MiB.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, far below 2^64"
)]
fn whole_mib(bytes: f64) -> u64 {
    (bytes as u64).next_multiple_of(1 << 20)
}
