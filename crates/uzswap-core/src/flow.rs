//! *What*: what happens to pages: functions over the [parts](crate::parts), each taking just the owners it needs. A flow
//! calls those below it, never back up:
//!
//! ```text
//! fork  remap  threads                          what the program or the kernel asks for
//! pin  request  space
//! fault  swapoff                                pages are wanted back
//! overlapped_read  reserve  shut                room for a caller
//! densify  follow                               cold pages get denser; knobs are taken up
//! workers
//! codecs
//! reclaim                                       room is made
//! evict                                         isolate → protect → store → drop
//! block_exit  shrink                            one page of a block; the pool becomes smaller
//! drop  load  recompress                        away; back in; once more, denser
//! access  compact  decode  readahead  sample  sizes  writeback
//! ```
//!
//! *Invariants*: entries change with their folio held. *Locking*: see [`crate::parts`]. *Context*: signal, worker.

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
mod load;
mod overlapped_read;
pub(crate) mod pin;
mod readahead;
mod reclaim;
pub(crate) mod recompress;
pub(crate) mod remap;
pub(crate) mod request;
mod reserve;
mod sample;
mod shrink;
mod shut;
pub(crate) mod sizes;
pub(crate) mod space;
mod swapoff;
pub(crate) mod threads;
mod workers;
pub(crate) mod writeback;
