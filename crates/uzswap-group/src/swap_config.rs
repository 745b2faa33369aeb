//! *What*: the swap devices of a group and how much of them is in use.
//! *Invariants*: devices are sorted by priority, highest first, and fixed once the group is
//! published; their state, use and sums change.
//! *Locking*: none; every cell is an atomic. *Context*: any process of the group, and the CLI.

use crate::shared::{Shared, encoded};
use crate::text::Text;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use uzswap_slots::Slots;

/// Swap devices that a group has at most.
pub const NR_DEVICES: usize = 8;

/// The swap devices that every supervisor holds open, and how they are used.
#[derive(Debug)]
#[repr(C)]
pub struct SwapConfig {
    /// The devices, those of the highest priority first; unused entries have no slots.
    pub devices: [DeviceConfig; NR_DEVICES],
    /// 1: what is written is encrypted.
    pub encrypt: AtomicU32,
    /// The most slots of all devices together that were in use at a time, as of the last reclaim.
    pub peak: AtomicU64,
}

impl SwapConfig {
    /// The devices in use.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceConfig> + Clone {
        let there = |device: &&DeviceConfig| device.nr_slots.load(Ordering::Relaxed) > 0;
        self.devices.iter().take_while(there)
    }

    /// Slots of all devices that are not off.
    #[must_use]
    pub fn nr_slots(&self) -> u64 {
        let there =
            |device: &&DeviceConfig| device.state.load(Ordering::Relaxed) != DeviceState::Off;
        let slots = self.devices().filter(there).map(|device| &device.nr_slots);
        slots.map(|nr| nr.load(Ordering::Relaxed)).sum()
    }

    /// Slots of all devices in use, as of the last reclaim.
    #[must_use]
    pub fn used(&self) -> u64 {
        let used = self.devices().map(|device| &device.used);
        used.map(|nr| nr.load(Ordering::Relaxed)).sum()
    }
}

impl DeviceConfig {
    /// Where the numbers of the writes that `nr_slots` slots hold begin in the memory of the
    /// device's slot allocator, bytes.
    #[must_use]
    pub fn writes_at(nr_slots: u32) -> usize {
        Slots::memory_len(nr_slots).next_multiple_of(size_of::<AtomicU32>())
    }

    /// Bytes of that memory, if the device has `nr_slots` slots.
    #[must_use]
    pub fn table_len(&self, nr_slots: u32) -> usize {
        let numbers = match self.fresh.load(Ordering::Relaxed) {
            0 => 0,
            _ => nr_slots as usize * size_of::<AtomicU32>(),
        };
        Self::writes_at(nr_slots) + numbers
    }
}

encoded! {
    /// Whether a swap device is used.
    DeviceState {
        /// It is read and written.
        On,
        /// It failed too often and is only read.
        Failed = 1,
        /// What is on it is being brought back, or was.
        Off = 2,
    }
}

/// One of the swap devices.
#[derive(Debug)]
#[repr(C)]
pub struct DeviceConfig {
    /// Slots of 4 KiB that it has; 0: there is no device.
    pub nr_slots: AtomicU64,
    /// The number of its first slot. No two devices share a slot number, and a gap lies between the
    /// numbers of two devices.
    pub first: AtomicU64,
    /// 1: it is opened past the page cache.
    pub direct: AtomicU32,
    /// 1: it is memory of other machines; its descriptor is that of an exchange with a broker.
    pub remote: AtomicU32,
    /// 1: its slots remember the number of the write that they hold, so that older contents are
    /// told from it.
    pub fresh: AtomicU32,
    /// Devices of a higher priority are filled first; those of the same one take turns.
    pub priority: AtomicI32,
    /// Whether it is used.
    pub state: Shared<DeviceState>,
    /// Writes in a row that failed.
    pub failures: AtomicU32,
    /// Slots in use, as of the last reclaim.
    pub used: AtomicU64,
    /// The most that `used` was.
    pub peak: AtomicU64,
    /// Bytes read from it.
    pub bytes_in: AtomicU64,
    /// Bytes written to it.
    pub bytes_out: AtomicU64,
    /// Writes that failed.
    pub write_fail: AtomicU64,
    /// What messages call the device, UTF-8, padded with zeroes.
    pub name: Text,
    /// How the device is to fail, as `uzswap_io::inject` reads it.
    #[cfg(feature = "fault-injection")]
    pub failure_plan: Text,
}
