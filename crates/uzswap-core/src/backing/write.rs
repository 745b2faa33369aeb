//! *What*: writes a run: slots on the first device that has room, and on another device when the
//! write fails.
//!
//! Devices are filled by priority; those of equal priority take turns by run. When no device has
//! room, the copies of pages in RAM are dropped; likewise, once per run, when a device reports that
//! its disk is full.
//!
//! *Invariants*: taken slots are counted once for the writeback until it is done with them; slots
//! whose write failed are freed or retired before others are taken.
//! *Locking*: the writeback lock is held. *Context*: signal, worker.

use core::ops::RangeInclusive;

use super::Backing;
use super::device::SwapDevice;
use uzswap_group::counters::add;
use uzswap_group::group::{NR_DEVICES, Text};
use uzswap_io::{DeviceError, SLOT};
use uzswap_slots::Run;
use uzswap_sys::fmt::write_line;
use uzswap_sys::{Errno, arch};

/// Why a run was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteError {
    /// No device is on.
    NoDevice,
    /// No device has room.
    Full,
    /// A device failed, and no other took the run.
    Failed,
    /// The connection to a device broke, and nothing took the run.
    Reset,
}

/// The devices that one run may go to.
pub(crate) struct Candidates([bool; NR_DEVICES]);

impl Candidates {
    /// The devices of `backing` that are on and not backed off from.
    pub(crate) fn of(backing: &Backing) -> Result<Self, WriteError> {
        let mut candidates = Candidates([false; NR_DEVICES]);
        let mut on = false;
        for (device, candidate) in backing.devices.iter().zip(&mut candidates.0) {
            *candidate = device.is_due();
            on |= device.is_on();
        }
        match candidates.is_empty() {
            false => Ok(candidates),
            // All devices that are on were full recently.
            true if on => Err(WriteError::Full),
            true => Err(WriteError::NoDevice),
        }
    }

    /// The remaining candidates, in the order in which devices are filled.
    fn in_turn<'a>(&self, backing: &'a Backing) -> impl Iterator<Item = &'a SwapDevice> {
        backing
            .devices
            .in_turn()
            .filter(|(at, _)| self.0.get(*at).copied().unwrap_or(false))
            .map(|(_, device)| device)
    }

    fn is_empty(&self) -> bool {
        !self.0.contains(&true)
    }

    fn leave_out(&mut self, backing: &Backing, device: &SwapDevice) {
        for (one, candidate) in backing.devices.iter().zip(&mut self.0) {
            *candidate &= !core::ptr::eq(one, device);
        }
    }
}

/// The slots that a run is written to.
pub(crate) struct Destination<'a> {
    pub device: &'a SwapDevice,
    pub run: Run,
}

impl Backing {
    /// Takes slots for a run, of the highest of `orders` that is available.
    pub(crate) fn take_slots(
        &self,
        candidates: &Candidates,
        orders: &RangeInclusive<u32>,
    ) -> Option<Destination<'_>> {
        let taken = self.find_slots(candidates, orders);
        if taken.is_some() || candidates.is_empty() || !self.drop_copies() {
            return taken;
        }
        self.find_slots(candidates, orders)
    }

    fn find_slots(
        &self,
        candidates: &Candidates,
        orders: &RangeInclusive<u32>,
    ) -> Option<Destination<'_>> {
        let mut reaped = false;
        for device in candidates.in_turn(self) {
            let mut run = self.take_run(device, *orders.end());
            if run.is_none() {
                // Slots of dead processes may suffice.
                if !core::mem::replace(&mut reaped, true) {
                    self.reap(self.account.group(), self.account.process());
                }
                let mut orders = orders.clone().rev();
                run = orders.find_map(|order| self.take_run(device, order));
            }
            match run {
                Some(run) => return Some(Destination { device, run }),
                None => device.backoff.found_full(),
            }
        }
        None
    }

    /// Allocates a run of `order`, each slot counted once.
    fn take_run(&self, device: &SwapDevice, order: u32) -> Option<Run> {
        let taken = device.alloc(order);
        if let Some(counters) = self.account.process().orders.get(order as usize) {
            let cell = match taken {
                Some(_) => &counters.swpout,
                None => &counters.swpout_fallback,
            };
            add(cell, 1);
        }
        taken
    }

    /// Writes `bytes`, as write number `write`, to `taken` or, if its device fails, to slots of another. Returns where they
    /// went.
    pub(crate) fn write_out<'a>(
        &'a self,
        mut candidates: Candidates,
        mut taken: Destination<'a>,
        bytes: &[u8],
        write: u32,
    ) -> Result<Destination<'a>, WriteError> {
        let order = (bytes.len() / SLOT).next_power_of_two().ilog2();
        let (mut made_room, mut reset) = (false, false);
        loop {
            taken.device.note_write(taken.run, write);
            let began = arch::ticks();
            let written = taken.device.write(taken.run, bytes);
            let took = arch::ticks().wrapping_sub(began);
            add(&self.account.counters().swap_ticks, took);
            let Err(error) = written else {
                self.devices.next_turn();
                return Ok(taken);
            };
            let error = self.write_failed(&taken, error);
            let room = error == WriteError::Full
                && !core::mem::replace(&mut made_room, true)
                && (self.drop_copies() | taken.device.discard_more());
            // The connection broke: the device is asked once more, for other slots.
            let again = error == WriteError::Reset && !core::mem::replace(&mut reset, true);
            if !room && !again {
                candidates.leave_out(self, taken.device);
            }
            taken = self
                .take_slots(&candidates, &(order..=order))
                .ok_or(error)?;
        }
    }

    /// Frees the slots of a failed write if the disk was full, else retires them.
    fn write_failed(&self, taken: &Destination<'_>, error: DeviceError) -> WriteError {
        let &Destination { device, run } = taken;
        if error == DeviceError::Full {
            device.put_run(run);
            device.backoff.found_full();
            return WriteError::Full;
        }
        let counters = self.account.counters();
        add(&counters.swap_write_fail, 1);
        if error == DeviceError::Io(Errno::ECONNRESET) {
            device.retire(run);
            return WriteError::Reset;
        }
        if device.write_failed(run) {
            add(&counters.swap_device_fail, 1);
            let name = &device.config.name;
            let _ = write_line(
                2,
                format_args!(
                    "uzswap: writing to the swap device {} keeps failing: nothing more goes there, what is there \
                     stays",
                    name.get(&mut [0; Text::LEN]),
                ),
            );
        }
        WriteError::Failed
    }
}
