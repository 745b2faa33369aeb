//! *What*: what `uzswap swapoff` asks of a process: everything that it has on one swap device comes back into the
//! pool, as it is: compressed, with its age, so that it is the first to go to another device.
//!
//! The device is off before anybody is asked: nothing new goes there. What the pool has no room for any more is
//! evicted and written back meanwhile, as with any store.
//!
//! *Invariants*: the object on the device is let go of only when its copy is in the pool, so whenever this ends, and
//! however, nothing is lost.
//! *Locking*: slot → folio; the writeback's alone, to wait for it. *Context*: a thread of its own, or the signal.

use super::Parts;
use super::device::SwapDevice;
use super::store::Stored;
use super::swap::Swap;
use super::swap_in::Fetched;
use crate::arena::{PAGE_SIZE, Page, PageRange, wide};
use crate::masked::Masked;
use crate::slot::{LOAD_LEN, RESERVE_PAGES, SLACK_PAGES, SlotGuard};
use crate::table::Entry;
use uzswap_io::Location;
use uzswap_sync::charge::Reserve;

/// Pages whose objects are read, and put into the pool, at once.
const WINDOW: usize = LOAD_LEN / PAGE_SIZE;
/// Pool pages for them: each may be raw, and the last begin a zspage of any length.
const ROOM: u64 = wide(WINDOW) + 8;
/// Walks over the page table. What a walk passes may come there once more, from what was under way when it began.
const MOST_WALKS: u32 = 4;

/// Something on the device cannot come back.
struct Stuck;

impl Parts {
    /// Brings back what this process has on device `number`, which is off. Returns how many bytes in the pool that are; what
    /// could not be brought back is still counted on the device.
    pub(super) fn swap_off(&self, masked: &Masked, number: usize) -> u64 {
        let mut bytes = 0;
        if let Some(swap) = &self.swap
            && let Some(device) = swap.device(number)
        {
            // Who chose the device before it was off is done with it after this.
            let slot = self.slot(masked);
            drop(swap.writeback.lock());
            drop(slot);
            for _ in 0..MOST_WALKS {
                let walked = self.walk_off(masked, swap, device, &mut bytes);
                // A read that was begun before counts what is not there any more.
                self.slots.wait_for_all();
                if walked.is_err() || !device.is_used() {
                    break;
                }
            }
            // The disk has its room again, whoever of the group is the last.
            while device.discard() {}
        }
        self.publish_sizes();
        bytes
    }

    /// Once over everything that may be on `device`.
    fn walk_off(
        &self,
        masked: &Masked,
        swap: &Swap,
        device: &SwapDevice,
        bytes: &mut u64,
    ) -> Result<(), Stuck> {
        let slot = self.slot(masked);
        self.forget_copies_on(swap, device);
        drop(slot);
        for chunk in self.table.ready_chunks(0) {
            for start in (chunk.start / WINDOW * WINDOW..chunk.end).step_by(WINDOW) {
                let window = PageRange {
                    start,
                    end: start + WINDOW,
                };
                if !window.pages().any(|page| self.is_on(device, page)) {
                    continue;
                }
                // A slot for a window: fork does not wait for the rest.
                let mut slot = self.slot(masked);
                let taken = self.take_back_window(&mut slot, device, window);
                self.shrink(&mut slot);
                slot.reserve.shrink_to(RESERVE_PAGES + SLACK_PAGES);
                *bytes += taken?;
            }
        }
        Ok(())
    }

    fn is_on(&self, device: &SwapDevice, page: Page) -> bool {
        matches!(
            self.table.get(page),
            Entry::Swapped { location, .. } if device.has(Location::from_raw(location).slot)
        )
    }

    /// All of `window` that is on `device`. Returns how many bytes that is.
    fn take_back_window(
        &self,
        slot: &mut SlotGuard<'_>,
        device: &SwapDevice,
        window: PageRange,
    ) -> Result<u64, Stuck> {
        let mut bytes = 0;
        let mut begun = window.start;
        while begun < window.end {
            // Before the folio is held: to make room others are.
            if !self.reserve_pages(slot, ROOM) {
                return Err(Stuck);
            }
            let mut room = Reserve::empty(self.charge);
            room.put(ROOM);
            let rest = PageRange {
                start: begun,
                end: window.end,
            };
            let taken = self.take_back(slot, &mut room, device, rest, &mut bytes);
            // None: with this much room there is a page that cannot be read.
            begun = taken.filter(|next| *next > begun).ok_or(Stuck)?;
        }
        Ok(bytes)
    }

    /// Of `window` what is on `device`, as far as `room` goes. Returns the page to go on with; `None`: something
    /// cannot be read.
    fn take_back(
        &self,
        slot: &mut SlotGuard<'_>,
        room: &mut Reserve<'static>,
        device: &SwapDevice,
        window: PageRange,
        bytes: &mut u64,
    ) -> Option<usize> {
        let mut stored = Stored::default();
        let mut folio = None;
        let mut next = Some(window.end);
        for page in window.pages() {
            let index = self.folios.index_of(page);
            if folio.as_ref().is_none_or(|(held, _)| *held != index) {
                // One at a time.
                drop(folio.take());
                folio = Some((index, self.folios.at(index).lock()));
                // What was read before the folio was held may be another's by now.
                slot.swap_in.forget();
            }
            let old = self.table.get(page);
            let Entry::Swapped { age, holds, .. } = old else {
                continue;
            };
            if !self.is_on(device, page) {
                continue;
            }
            let range = PageRange {
                start: page.index(),
                end: window.end.min(self.folios.range(index).end),
            };
            let (loc, size) = match self.fetch(&mut slot.swap_in, room, page, range) {
                Fetched::Object { loc, size, .. } => (loc, size),
                Fetched::NoRoom => {
                    next = Some(page.index());
                    break;
                }
                Fetched::Unreadable => {
                    next = None;
                    break;
                }
            };
            let new = Entry::Stored {
                loc,
                size,
                age,
                writing: false,
                holds,
            };
            self.table.set(page, new);
            self.forget(old);
            if !new.is_empty() {
                stored.add(new);
            }
            *bytes += u64::from(size);
        }
        drop(folio);
        self.count_stored(&stored);
        next
    }
}
