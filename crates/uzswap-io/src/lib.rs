//! Swap devices and what is written on them.
//!
//! *What*: [`device`] reads, writes and discards slots of an open file or block device; [`queue`]
//! reads several places at the same time; [`remote`] is a device in other machines' memory, which a
//! broker reaches by an [`exchange`]; [`format`](mod@format) packs compressed pages into runs
//! of slots and finds them again; [`seal`] encrypts them, or adds a checksum; [`inject`] makes a
//! device fail, for tests. `docs/on-disk-format.md` has the format and its reasons.
//!
//! *Invariants*: a page is returned only if every bit of it, and its label, was checked; with
//! encryption on, nothing reaches a device in the clear.
//! *Locking*: none. Buffers are the caller's, used by one thread at a time; a device, a key and a
//! sequence are shared freely.
//! *Context*: any, signal handlers included: no allocation, panic or `errno`. Device calls wait.
#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable
    )
)]

pub mod crc;
pub mod device;
pub mod exchange;
pub mod format;
pub mod inject;
pub mod opened;
pub mod queue;
pub mod remote;
pub mod seal;

pub use device::{Device, DeviceError};
pub use format::{Extent, Layout, Location, OpenError, PackError, Place, Run, Window};
pub use queue::{MAX_READS, Queue};
pub use seal::{Fingerprint, Key, Label, Seal, Sequence};

/// Bytes of a slot, the unit in which a device is allocated, read and written.
pub const SLOT: usize = uzswap_sys::PAGE_SIZE;
/// Slots of one run, at most: 256 KiB are written by one call.
pub const MAX_RUN: usize = 64;
/// Slots of a device's header, before slot 0. A whole run, so that runs stay aligned to the
/// device's erase blocks.
pub const HEADER_SLOTS: u64 = MAX_RUN as u64;
/// Slots of all devices together, at most: 1 TiB, what a [`Location`] of 36 bits can name.
pub const MAX_DEVICE_SLOTS: u64 = 1 << 28;
/// Alignment of objects, in bytes.
pub const GRAIN: usize = 16;
/// Slots that one object touches, at most.
pub const MAX_SLOTS: usize = 2;
