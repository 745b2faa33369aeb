//! *What*: the swap devices as the engine sees them: opened for this process, their slots counted, and put
//! back when an entry that named them goes.
//!
//! - `device`: one of them; `read`: objects from the devices; `write`: where a run is written
//! - `cache`, `copies`: copies on a device of pages that are in RAM
//! - `readahead`: how much is read along with a page
//!
//! The slots of all devices have numbers from one row, in which each device has a range of its own: so a location
//! tells the device. An object on a device belongs to one page of one process (and,
//! after fork, of its children), by which it was sealed; so an entry names it by location, size
//! and age, and nothing about it is kept elsewhere.
//!
//! *Invariants*: every slot that a swapped entry's object touches is counted once for it, from before
//! the entry is published until after it is gone. A process counts slots on all devices or on none.
//! *Locking*: none of its own; a cluster's lock is a leaf below all others. *Context*: init (`open`);
//! signal, worker.

pub mod cache;
#[cfg(not(loom))]
pub(crate) mod copies;
#[cfg(not(loom))]
pub(crate) mod device;
#[cfg(not(loom))]
pub(crate) mod devices;
#[cfg(not(loom))]
pub(crate) mod read;
pub mod readahead;
#[cfg(not(loom))]
pub(crate) mod write;

#[cfg(not(loom))]
pub(crate) use self::devices::{Backing, Owners, label};
