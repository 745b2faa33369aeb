//! *What*: what a supervisor tells the broker that it starts, by a line on standard input, and what
//! the broker answers, by a line on standard output. The end of its input ends the broker.
//!
//! *Invariants*: secrets travel by this pipe alone.
//! *Locking*: none. *Context*: `uzswap run`, the broker.

use serde::{Deserialize, Serialize};

/// What a broker is to serve.
#[derive(Serialize, Deserialize)]
pub struct Order {
    /// The place, secrets included.
    pub url: String,
    /// The process that holds the exchange open, and by which descriptor.
    pub supervisor: u32,
    /// See `supervisor`.
    pub exchange: u32,
    /// What tells the keys of this run from those of others.
    pub job: String,
    /// There is no other device to take what this one does not.
    pub alone: bool,
    /// A broker served this before, and has died: nothing is to be checked or prepared.
    pub again: bool,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The place can be used.
    Ready {
        /// Bytes that it has room for, header included.
        bytes: u64,
    },
    /// It cannot: why, and what to do.
    Refused(String),
}
