//! Swap devices and what is written on them.
//!
//! *What*: [`device`] reads, writes and discards slots of an open file or block device, [`queue`] reads several places at once; [`format`](mod@format)
//! packs compressed pages into runs of slots and finds them again; [`seal`] encrypts them, or guards
//! them by a checksum; [`fault`] is a device that fails on purpose. `docs/on-disk-format.md` says
//! what the bytes are and why.
//!
//! *Invariants*: a page is given back only if every bit of it, and whose page it is, was
//! checked; nothing reaches a device in the clear while encryption is on.
//!
//! *Locking*: none. Buffers are the caller's, used by one thread at a time; a device, a key and a
//! sequence are shared freely.
//!
//! *Context*: any, signal handlers included: no allocation, no panic, no `errno`. Device calls wait.
#![cfg_attr(not(test), no_std)]

pub mod crc;
pub mod device;
pub mod fault;
pub mod format;
pub mod queue;
pub mod seal;

pub use device::{Device, DeviceError};
pub use format::{Extent, Layout, Location, OpenError, PackError, Place, Run, Window};
pub use queue::{MOST_READS, Queue};
pub use seal::{Fingerprint, Key, Label, Seal, Sequence};

/// Bytes of a slot, the unit in which a device is allocated, read and written.
pub const SLOT: usize = uzswap_sys::PAGE_SIZE;
/// Most slots that are packed and written at once: 256 KiB.
pub const MAX_RUN: usize = 64;
/// Slots before slot 0 of a device: its header, which says that it is a swap area. A whole run, so that runs
/// stay aligned on what the device is made of.
pub const HEADER_SLOTS: u64 = MAX_RUN as u64;
/// Most slots of a device, and numbers for the slots of several: 1 TiB, as far as a [`Location`] of 36 bits reaches.
pub const MAX_DEVICE_SLOTS: u64 = 1 << 28;
/// Objects begin at multiples of this, in bytes.
pub const GRAIN: usize = 16;
/// Most slots that one object touches.
pub const MAX_SLOTS: usize = 2;
