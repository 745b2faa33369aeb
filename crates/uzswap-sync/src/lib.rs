//! What the parts of the engine that run at the same time agree by: locks that need no
//! initialisation, the futex word beneath them, the account of a strict memory limit, and the
//! presence of a helper.
//!
//! `primitive` is the seam where model checkers look in; every crate above takes its atomics there.
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

pub mod charge;
pub mod ledger;
mod level;
pub mod lock;
pub mod node;
pub mod presence;
pub mod primitive;
mod share;
pub mod strict;
pub mod word;
