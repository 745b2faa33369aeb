//! Swap to the memory of other machines: what an URL names, and the broker, a process that serves
//! one remote device to the programs of a run.
//!
//! - [`url`]: the places that an URL can name; [`order`]: what supervisor and broker tell each
//!   other; [`process`]: starts one
//! - [`broker`]: the process; `worker`: its threads that serve requests; `upkeep`: the one that
//!   probes, renews and sweeps
//! - `client`: what serves requests; `nbd`: on NBD servers, reached
//!   by `handshake` and `stream`; on Redis and Valkey servers `redis`: which
//!   may be used, `topology`, `nodes`, `link`: connections to them, `pieces`: requests as commands,
//!   `copies`: which are lost
//!
//! *Invariants*: what leaves the process is sealed already; secrets are in no message and no
//! argument.
//! *Locking*: see `worker`. *Context*: std; the supervisor uses [`url`] and [`order`] alone, and
//! starts no thread for any of this.

pub mod broker;
mod client;
mod copies;
mod handshake;
mod link;
mod nbd;
mod nodes;
pub mod order;
mod pieces;
pub mod process;
mod redis;
mod stream;
mod topology;
mod upkeep;
pub mod url;
mod worker;
