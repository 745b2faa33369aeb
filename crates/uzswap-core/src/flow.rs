//! *What*: what happens to pages: functions over the [parts](crate::parts), each taking just the owners it needs. A flow
//! calls those below it, never back up:
//!
//! ```text
//! request  space  remap  fork  threads  swapoff          what the program, or somebody outside, asks for
//! fault  pin  densify                                    a page is wanted; cold pages get denser
//! reserve  overlapped_read  shut  workers                room for a caller, codecs as asked for
//! codecs  reclaim                                        room is made
//! evict  sample                                          isolate → protect → store → drop
//! shrink  writeback  recompress  readahead  drop         what is stored becomes smaller, or leaves RAM
//! block_exit  load  decode  compact                      back in; pool
//! entries  access  sizes                                 what an entry held; recency; published sizes
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
