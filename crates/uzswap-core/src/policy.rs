//! *What*: the rules: which codec, what to write back and when, when memory is short. They decide; [`flow`](crate::flow)
//! moves pages.
//!
//! - `auto`: the codec of `--compressor auto`
//! - `pool_limit`: whether the pool is kept, recompressed or written back; `sweep`: what is written next
//! - `recompress`: when what is in the pool is compressed once more
//! - `shrinker`: what is written before there is need
//! - `watermark`: when the background reclaimer works
//!
//! *Invariants*: nothing here changes an entry or a page.

pub(crate) mod auto;
pub(crate) mod pool_limit;
pub(crate) mod recompress;
pub(crate) mod shrinker;
pub(crate) mod sweep;
pub(crate) mod watermark;
