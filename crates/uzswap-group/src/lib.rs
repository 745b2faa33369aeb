//! What the processes of one `uzswap run`, the supervisor and the commands that look at it share.
#![cfg_attr(not(test), no_std)]

pub mod counters;
pub mod group;
pub mod knobs;
pub mod request;
