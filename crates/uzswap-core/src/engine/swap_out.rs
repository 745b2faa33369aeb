//! *What*: where a run goes: slots for it on the first device that has them, and another device when the write fails.
//!
//! The devices are filled by priority; of the same priority, each takes a run in turn. Where there is no room
//! at all, the copies of what is in RAM give theirs up first; so they do when a disk says that it is full, once
//! for a run.
//!
//! *Invariants*: slots that are taken are counted once for the writeback until it is done with them; slots that were
//! not written are counted off, or retired, before others are taken.
//! *Locking*: the writeback's is held. *Context*: signal, worker.

use core::ops::RangeInclusive;

use super::Parts;
use super::device::SwapDevice;
use super::swap::Swap;
use super::writeback::Stuck;
use uzswap_group::counters::add;
use uzswap_group::group::{NR_DEVICES, Text};
use uzswap_io::{DeviceError, SLOT};
use uzswap_slots::Run;
use uzswap_sys::arch;
use uzswap_sys::fmt::write_line;

/// Devices that are asked for room for one run.
pub(super) struct Asked([bool; NR_DEVICES]);

impl Asked {
    /// Those of `swap` whose turn it is; `Err`: none is.
    pub(super) fn of(swap: &Swap) -> Result<Self, Stuck> {
        let mut asked = Asked([false; NR_DEVICES]);
        let mut on = false;
        for (device, asked) in swap.devices().zip(&mut asked.0) {
            *asked = device.is_due();
            on |= device.is_on();
        }
        match asked.is_empty() {
            false => Ok(asked),
            // Those that are passed over were full.
            true if on => Err(Stuck::Full),
            true => Err(Stuck::Nothing),
        }
    }

    /// Of `swap`'s devices those that are still asked, in the order in which they are filled.
    fn in_turn<'a>(&self, swap: &'a Swap) -> impl Iterator<Item = &'a SwapDevice> {
        swap.in_turn()
            .filter(|(at, _)| self.0.get(*at).copied().unwrap_or(false))
            .map(|(_, device)| device)
    }

    fn is_empty(&self) -> bool {
        !self.0.contains(&true)
    }

    /// Leaves one out.
    fn leave_out(&mut self, swap: &Swap, device: &SwapDevice) {
        for (one, asked) in swap.devices().zip(&mut self.0) {
            *asked &= !core::ptr::eq(one, device);
        }
    }
}

/// Slots that a run may be written to.
pub(super) struct Taken<'a> {
    pub device: &'a SwapDevice,
    pub run: Run,
}

impl Parts {
    /// Takes slots for a run, as many of them as `orders` says are to be had.
    pub(super) fn take_slots<'a>(
        &self,
        swap: &'a Swap,
        asked: &Asked,
        orders: &RangeInclusive<u32>,
    ) -> Option<Taken<'a>> {
        let taken = self.find_slots(swap, asked, orders);
        if taken.is_some() || asked.is_empty() || !self.forget_copies(swap) {
            return taken;
        }
        self.find_slots(swap, asked, orders)
    }

    fn find_slots<'a>(
        &self,
        swap: &'a Swap,
        asked: &Asked,
        orders: &RangeInclusive<u32>,
    ) -> Option<Taken<'a>> {
        let mut reaped = false;
        for device in asked.in_turn(swap) {
            let mut run = self.take_run(device, *orders.end());
            if run.is_none() {
                // What dead processes left behind may do.
                if !core::mem::replace(&mut reaped, true) {
                    swap.reap(self.group, self.process());
                }
                let mut orders = orders.clone().rev();
                run = orders.find_map(|order| self.take_run(device, order));
            }
            match run {
                Some(run) => return Some(Taken { device, run }),
                None => device.patience.found_full(),
            }
        }
        None
    }

    /// A run of that order, each of its slots counted once.
    fn take_run(&self, device: &SwapDevice, order: u32) -> Option<Run> {
        let taken = device.alloc(order);
        if let Some(counters) = self.process().orders.get(order as usize) {
            let cell = match taken {
                Some(_) => &counters.swpout,
                None => &counters.swpout_fallback,
            };
            add(cell, 1);
        }
        taken
    }

    /// Writes `bytes` to the slots that were taken or, should their device fail, to others that it takes instead.
    pub(super) fn write_out<'a>(
        &self,
        swap: &'a Swap,
        mut asked: Asked,
        mut taken: Taken<'a>,
        bytes: &[u8],
    ) -> Result<Taken<'a>, Stuck> {
        let order = (bytes.len() / SLOT).next_power_of_two().ilog2();
        let mut made_room = false;
        loop {
            let began = arch::rdtsc();
            let written = taken.device.write(taken.run, bytes);
            let took = arch::rdtsc().wrapping_sub(began);
            add(&self.counters().swap_ticks, took);
            let Err(error) = written else {
                swap.next_turn();
                return Ok(taken);
            };
            let stuck = self.write_failed(&taken, error);
            let room = stuck == Stuck::Full
                && !core::mem::replace(&mut made_room, true)
                && (self.forget_copies(swap) | taken.device.discard_more());
            if !room {
                asked.leave_out(swap, taken.device);
            }
            taken = self
                .take_slots(swap, &asked, &(order..=order))
                .ok_or(stuck)?;
        }
    }

    /// The slots were not written: they are free again, or not used again.
    fn write_failed(&self, taken: &Taken<'_>, error: DeviceError) -> Stuck {
        let &Taken { device, run } = taken;
        if error == DeviceError::Full {
            device.put_run(run);
            device.patience.found_full();
            return Stuck::Full;
        }
        add(&self.counters().swap_write_fail, 1);
        if device.write_failed(run) {
            add(&self.counters().swap_device_fail, 1);
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
        Stuck::Broken
    }
}
