//! *What*: the group's swap devices, as `stat` prints them and as JSON has them.
//!
//! *Locking*: none. *Context*: any command.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use uzswap_group::group::{DeviceConfig, DeviceState, Group, Text};

use super::PAGE;
use crate::size::Size;

/// A swap device. Sizes are in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct SwapDevice {
    /// The file, directory or block device.
    pub name: String,
    /// Devices of higher priority are filled first.
    pub priority: i32,
    /// `on`; `failed`: no longer written to; `off`: emptied by `uzswap swapoff`.
    pub state: &'static str,
    /// Its size.
    pub total: u64,
    /// In use, counted in whole clusters.
    pub used: u64,
    /// The most that was ever in use.
    pub peak: u64,
    /// Read from it.
    pub bytes_in: u64,
    /// Written to it.
    pub bytes_out: u64,
    /// Writes that failed.
    pub write_fail: u64,
}

impl SwapDevice {
    fn of(device: &DeviceConfig) -> Self {
        let number = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        SwapDevice {
            name: device.name.get(&mut [0; Text::LEN]).to_owned(),
            priority: device.priority.load(Ordering::Relaxed),
            state: match device.state.load(Ordering::Relaxed) {
                DeviceState::On => "on",
                DeviceState::Failed => "failed",
                DeviceState::Off => "off",
            },
            total: number(&device.nr_slots) * PAGE,
            used: number(&device.used) * PAGE,
            peak: number(&device.peak) * PAGE,
            bytes_in: number(&device.bytes_in),
            bytes_out: number(&device.bytes_out),
            write_fail: number(&device.write_fail),
        }
    }
}

impl std::fmt::Display for SwapDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, priority, .. } = self;
        write!(
            f,
            "{name}, priority {priority}: {} of {} in use (peak {}), {} written, {} read",
            Size(self.used),
            Size(self.total),
            Size(self.peak),
            Size(self.bytes_out),
            Size(self.bytes_in),
        )?;
        match self.state {
            "on" => Ok(()),
            state => write!(f, ", {state}"),
        }
    }
}

/// The group's swap devices, in the order in which they are filled.
pub fn devices(group: &Group) -> Vec<SwapDevice> {
    group.config.swap.devices().map(SwapDevice::of).collect()
}

/// Their names, separated by commas; none if there are no devices.
pub fn names(group: &Group) -> Option<String> {
    let names: Vec<_> = devices(group).into_iter().map(|d| d.name).collect();
    (!names.is_empty()).then(|| names.join(", "))
}
