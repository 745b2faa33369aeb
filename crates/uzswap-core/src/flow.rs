//! *What*: what happens to pages: functions over the [parts](crate::parts), each taking just the
//! owners it needs. A flow calls those below it, never those above:
//!
//! ```text
//! fork                                          requests of the program or the kernel
//! fork_policy  remap  threads
//! pin  request  space
//! fault  swapoff                                pages come back
//! overlapped_read  reserve  shut                room for a caller
//! reclaimer                                     room is kept free from a process beside this one
//! densify  follow                               cold pages get denser; knobs are followed
//! workers
//! codecs
//! high                                          a group is slowed down above its limit
//! reclaim                                       room is made
//! evict                                         isolate → protect → store → drop
//! block_exit  shrink                            one page leaves its block; the pool shrinks
//! drop  load  recompress                        discard; bring in; compress again, denser
//! access  compact  decode  readahead  sample  sizes  stall  writeback
//! pool_max                                      what groups leave the pool
//! ```
//!
//! *Invariants*: an entry changes only while its folio is locked.
//! *Locking*: see [`crate::parts`]. *Context*: signal, worker.

pub(crate) mod access;
mod block_exit;
mod codecs;
mod compact;
mod decode;
pub(crate) mod densify;
mod drop;
mod evict;
pub(crate) mod fault;
mod follow;
pub(crate) mod fork;
mod fork_policy;
mod give_up;
mod high;
mod load;
pub(crate) mod others;
mod overlapped_read;
pub(crate) mod pin;
mod pool_max;
mod readahead;
mod reclaim;
pub(crate) mod reclaimer;
pub(crate) mod recompress;
pub(crate) mod remap;
pub(crate) mod request;
mod reserve;
mod sample;
mod share;
mod shrink;
mod shut;
pub(crate) mod sizes;
pub(crate) mod space;
mod stall;
mod swapoff;
pub(crate) mod threads;
mod unshare;
mod workers;
pub(crate) mod writeback;
