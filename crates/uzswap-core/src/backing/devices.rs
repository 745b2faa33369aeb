//! *What*: [`Devices`]: the swap devices that this process has open, in the order in which they are
//! filled.
//!
//! *Invariants*: as [`super`]. *Locking*: none of its own. *Context*: init (`open`); signal,
//! worker.

use core::ops::Range;

use super::device::SwapDevice;
use crate::account::Account;
use uzswap_group::group::{NR_DEVICES, SwapConfig};
use uzswap_slots::{IsAlive, Owner};
use uzswap_sync::primitive::{AtomicU32, Ordering::Relaxed};

/// The owner that a process counts slots as, on each device.
pub(crate) type Owners = [Option<Owner>; NR_DEVICES];

/// The swap devices, open in this process.
pub(crate) struct Devices {
    /// In the order of the configuration, without gaps.
    devices: [Option<SwapDevice>; NR_DEVICES],
    /// Runs written: selects the next of the devices of equal priority.
    turn: AtomicU32,
}

impl Devices {
    /// Opens the group's devices, as the supervisor of the process's run holds them. `None`: this
    /// process may not open them all.
    pub(super) fn open(account: &'static Account, is_alive: IsAlive<'static>) -> Option<Devices> {
        let config = &account.group().config.swap;
        let mut devices = Devices {
            devices: [const { None }; NR_DEVICES],
            turn: AtomicU32::new(0),
        };
        let numbered = (0..).zip(config.devices());
        for (place, (number, device)) in devices.devices.iter_mut().zip(numbered) {
            let priorities = config.devices().map(|device| device.priority.load(Relaxed));
            let peers = peers(priorities, device.priority.load(Relaxed));
            *place = SwapDevice::open(account, device, number, is_alive, peers);
        }
        if devices.iter().count() < config.devices().count() {
            devices.close();
            return None;
        }
        Some(devices)
    }

    /// Closes the devices, none of which was written to.
    pub(super) fn close(&self) {
        self.iter().for_each(SwapDevice::close);
    }

    /// The devices, those of the highest priority first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &SwapDevice> {
        self.devices.iter().flatten()
    }

    /// The device of that number.
    pub(crate) fn get(&self, number: usize) -> Option<&SwapDevice> {
        self.devices.get(number)?.as_ref()
    }

    /// The device that has `slot`.
    pub(crate) fn of_slot(&self, slot: u64) -> Option<&SwapDevice> {
        self.iter().find(|device| device.has(slot))
    }

    /// The devices with their numbers, in the order in which they are filled: those of equal
    /// priority take turns.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = (usize, &SwapDevice)> {
        let turn = self.turn.load(Relaxed) as usize;
        (0..NR_DEVICES).filter_map(move |at| {
            let at = rotated(at, &self.get(at)?.peers, turn);
            Some((at, self.get(at)?))
        })
    }

    /// Advances the turn after a run was written.
    pub(super) fn next_turn(&self) {
        self.turn.fetch_add(1, Relaxed);
    }

    /// The devices' descriptors in this process; -1 where there is none.
    pub(crate) fn fds(&self) -> [i32; NR_DEVICES] {
        self.devices.each_ref().map(|device| match device {
            Some(device) => device.fd(),
            None => -1,
        })
    }

    /// Publishes the use of the devices in the group.
    pub(crate) fn publish_use(&self, config: &SwapConfig) {
        let (mut used, mut peak) = (0, 0);
        for device in self.iter() {
            let (its, its_peak) = device.publish_use();
            used += its;
            peak = its_peak.max(peak);
        }
        // Between two calls, only each device's own peak is known.
        let peak = used.max(peak);
        if peak > config.peak.load(Relaxed) {
            config.peak.fetch_max(peak, Relaxed);
        }
    }

    /// Whether this process counts slots.
    pub(crate) fn counts(&self) -> bool {
        self.iter().any(|device| device.owner().is_some())
    }

    /// Counts for the future process of number `user` what this process counts.
    pub(super) fn fork(&self, user: usize) -> Owners {
        let devices = self.devices.each_ref();
        devices.map(|device| device.as_ref()?.fork(user))
    }

    /// Frees the slots that process `user` counted.
    pub(super) fn release(&self, user: usize) {
        self.iter().for_each(|device| device.release(user));
    }
}

/// The numbers of the devices of priority `own` among `priorities`, highest first.
fn peers(priorities: impl Iterator<Item = i32> + Clone, own: i32) -> Range<usize> {
    let higher = priorities.clone().take_while(|&one| one > own).count();
    higher..priorities.take_while(|&one| one >= own).count()
}

/// The device that takes the place of device `at`, one of `peers`, in this turn.
fn rotated(at: usize, peers: &Range<usize>, turn: usize) -> usize {
    peers.start + (at - peers.start + turn) % peers.len().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a plain model, for all ways in which up to five devices can share priorities: higher
    /// ones first, and in as many turns as there are peers each of them is at each of their places
    /// once.
    #[test]
    fn devices_are_filled_by_priority_and_peers_by_turns() {
        for nr in 1..=5_usize {
            for pattern in 0..1_u32 << (nr - 1) {
                let mut priorities = vec![9];
                for at in 1..nr {
                    let lower = i32::from(pattern >> (at - 1) & 1 == 1);
                    priorities.push(priorities[at - 1] - lower);
                }
                let order = |turn| -> Vec<usize> {
                    let all = priorities.iter().copied();
                    let rotated = |at| rotated(at, &peers(all.clone(), priorities[at]), turn);
                    (0..nr).map(rotated).collect()
                };
                let mut firsts = vec![0; nr];
                for turn in 0..60 {
                    let order = order(turn);
                    let mut sorted = order.clone();
                    sorted.sort_unstable();
                    assert!(sorted.iter().copied().eq(0..nr), "{order:?}");
                    assert!(order.is_sorted_by_key(|&at| -priorities[at]), "{order:?}");
                    firsts[order[0]] += 1;
                }
                let best = priorities.iter().filter(|&&one| one == 9).count();
                assert!(firsts[..best].iter().all(|&times| times == 60 / best));
            }
        }
    }
}
