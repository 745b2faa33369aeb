//! *What*: the pages of the arena: where the contents of each are, which folios have resident
//! pages, and the eviction clock.
//!
//! - `address`: how addresses, pages and folios number each other
//! - `entry`, `table`: one page's entry; all of them
//! - `content`: what the object in an entry holds
//! - `folio`: a folio's lock and its state in reclaim; `lru`: the lists of folios;
//!   `marks`: how long they have been on them
//! - `ranking`: what a host decides instead
//! - `clock`: the eviction clock, which ages are measured by
//! - `block`: pages that are compressed as one object
//! - `batch`: the pages and folios under reclaim
//! - `walk`: walks over the page table
//! - `transition`: every change of an entry; `tally`: counts of stored pages
//! - `pages`: [`Pages`], the owner of all that
//!
//! *Invariants*: a page is present in the arena only if its entry is [`Entry::Resident`].
//! *Locking*: folio → LRU; see [`folio`]. *Context*: signal, worker, init.

pub mod address;
#[cfg(not(loom))]
pub mod batch;
pub mod bitmap;
pub mod block;
#[cfg(not(loom))]
pub mod clock;
pub mod content;
pub mod entry;
pub mod folio;
#[cfg(not(loom))]
pub mod lru;
#[cfg(not(loom))]
mod marks;
#[cfg(not(loom))]
mod pages;
#[cfg(not(loom))]
pub mod ranking;
#[cfg(not(loom))]
mod shared;
pub mod table;
pub mod tally;
pub mod transition;
#[cfg(not(loom))]
mod walk;

pub use address::{
    ARENA_BASE, ARENA_LEN, NR_PAGES, PAGE_SHIFT, PAGE_SIZE, Page, PageRange, Partition, arena_part,
    in_arena, narrow, wide,
};
pub use block::Entries;
pub use content::Content;
pub use entry::{Age, Entry};
#[cfg(not(loom))]
pub(crate) use pages::Pages;
