//! *What*: the swap devices as the engine sees them: opened for this process, and their slots
//! counted for the entries that name them.
//!
//! - `process`: [`Backing`], the owner of all, as one process has it
//! - `devices`: all devices, in the order in which they are filled; `device`: one device
//! - `keys`: how objects are sealed
//! - `read`: objects from the devices; `write`: slots for a run, and its writing
//! - `swap_cache`: copies on a device of pages that are in RAM
//! - `readahead`: how many pages are read along with one
//!
//! The slots of all devices share one number space, in which each device has a range; so a location
//! identifies its device. An object belongs to one page of one process (and, after fork, of its
//! children), and is sealed with the page's number. Its entry names it by location, size and age;
//! no other record exists.
//!
//! *Invariants*: every slot of an object is counted once for each entry that names it, from before
//! the entry is published until after it is gone. A process counts slots on all devices or on none.
//! *Locking*: none of its own; a cluster's lock is a leaf below all others. *Context*: init
//! (`open`); signal, worker.

#[cfg(not(loom))]
pub(crate) mod device;
#[cfg(not(loom))]
pub(crate) mod devices;
#[cfg(not(loom))]
mod keys;
#[cfg(not(loom))]
mod process;
#[cfg(not(loom))]
pub(crate) mod read;
pub mod readahead;
pub mod swap_cache;
#[cfg(not(loom))]
pub(crate) mod write;

#[cfg(not(loom))]
pub(crate) use self::devices::Owners;
#[cfg(not(loom))]
pub(crate) use self::keys::{KEY_PAGES, label};
#[cfg(not(loom))]
pub(crate) use self::process::Backing;
