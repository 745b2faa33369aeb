//! What the processes of one `uzswap run`, the supervisor and the commands that look at it share.
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

pub mod ask;
pub mod config;
pub mod counters;
pub mod environment;
pub mod failure;
pub mod follow;
pub mod group;
pub mod histogram;
pub mod image;
pub mod knobs;
pub mod library;
pub mod outside;
pub mod process;
pub mod request;
pub mod reservation;
pub mod run;
pub mod shared;
pub mod state;
pub mod swap_config;
mod swap_max;
pub mod text;
