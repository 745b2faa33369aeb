//! *What*: policies: which codec, what to write back and when, when memory is short. They decide;
//! [`flow`](crate::flow) moves pages.
//!
//! - `auto`: the codec of `--compressor auto`
//! - `colder`: whose memory goes when the group is full
//! - `floor`: what stays resident
//! - `pool_limit`: whether the pool is kept, recompressed or written back
//! - `recompress`: position and pauses of the recompression sweep
//! - `shrinker`: what is written back ahead of need
//! - `sweep`: what is written back next
//! - `watermark`: when the reclaimer works
//!
//! *Invariants*: nothing here changes an entry or a page.
//! *Locking*: as each says. *Context*: signal, worker.

pub(crate) mod auto;
pub(crate) mod colder;
pub(crate) mod floor;
pub(crate) mod pool_limit;
pub(crate) mod recompress;
pub(crate) mod shrinker;
pub(crate) mod sweep;
pub(crate) mod watermark;
