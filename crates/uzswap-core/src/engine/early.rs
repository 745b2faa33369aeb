//! *What*: early: the read of a page that a fault asks for, begun before there is memory for it: what is evicted to
//! make that room is evicted while the device works, and not before.
//!
//! ```text
//! begin (folio held: entries noted, objects counted) → evict (nothing held) → wait → settle (folio held)
//! ```
//!
//! Only where memory has to be made anyway, and for a page that comes in alone, with what lies beside it.
//!
//! *Invariants*
//! - While the read is under way its objects are counted once more, so nothing else can be written to their slots:
//!   an entry that is the same when the folio is held again names what was read, whatever happened in between.
//! - If one is not (the page was brought in, and perhaps changed and stored again; dropped; brought back by swapoff),
//!   or the read failed, what was read is forgotten and the page brought in as if nothing had been.
//! - The operation's slot is held all the while. So there is no fork meanwhile, whose child would count what it does not
//!   name, and swapoff can wait for the counts.
//!
//! *Locking*: slot → queue (tried) → folio (tried; not held while anything is waited for). *Context*: signal, worker.

use super::Parts;
use super::device::SwapDevice;
use super::swap::Swap;
use crate::arena::{Page, PageRange, wide};
use crate::folio::FolioGuard;
use crate::slot::{RESERVE_PAGES, SLACK_PAGES, SlotGuard};
use crate::swap_readahead::WIDEST;
use crate::table::Entry;
use uzswap_group::counters::add;
use uzswap_io::{Extent, Queue};
use uzswap_sync::lock::{Lock, LockGuard};
use uzswap_sys::arch;

/// Pages to evict while one is read, which takes about as long: of the last folio all are.
const AIM_MEANWHILE: usize = 4;

/// A read under way. Dropped, it is waited for, and its objects are counted off.
pub(super) struct Early<'a> {
    parts: &'a Parts,
    swap: &'a Swap,
    queue: LockGuard<'a, Queue>,
    /// The pages that may come in with it, itself among them.
    noted: [Noted; WIDEST],
    nr: usize,
}

/// A page when its read was begun.
#[derive(Clone, Copy)]
struct Noted {
    page: Page,
    entry: Entry,
    /// Its object is read, and counted once for that.
    is_read: bool,
}

impl Early<'_> {
    /// Notes a page, and counts its object if that is read. `false`: it cannot be counted.
    fn note(&mut self, noted: Noted) -> bool {
        let Some(place) = self.noted.get_mut(self.nr) else {
            return false;
        };
        if noted.is_read
            && let Entry::Swapped { location, size, .. } = noted.entry
            && !self.swap.get(location, size)
        {
            return false;
        }
        *place = noted;
        self.nr += 1;
        true
    }

    /// Begins to read. `false`: it is read when its folio is held.
    fn start(&mut self, slot: &mut SlotGuard<'_>) -> bool {
        let Some((device, extent, buffer)) = extent(self.swap, slot) else {
            return false;
        };
        let began = arch::rdtsc();
        // SAFETY: the buffer is of a slot, which lives as long as the process and is held until this is dropped;
        // nothing but what brings pages in, after that, looks at it.
        let started = unsafe { device.start_read(&mut self.queue, extent, buffer) };
        if started {
            let counters = self.parts.counters();
            add(&counters.swap_bytes_in, wide(extent.bytes()));
            add(&counters.swap_reads, 1);
            self.count_wait(began);
        }
        started
    }

    /// Waits for the read. Returns whether all of it came into the slot's window.
    fn wait(&mut self, slot: &mut SlotGuard<'_>) -> bool {
        let began = arch::rdtsc();
        let came = self.queue.finish() == 1;
        self.count_wait(began);
        came && extent(self.swap, slot).is_some_and(|(device, _, buffer)| device.accepts(buffer))
    }

    /// What the device is waited for, from `began` until now.
    fn count_wait(&self, began: u64) {
        let ticks = arch::rdtsc().wrapping_sub(began);
        add(&self.parts.counters().swap_ticks, ticks);
    }

    /// With the folio held: whether its entries still name what was read.
    pub(super) fn is_current(&self, _guard: &FolioGuard<'_>) -> bool {
        let mut noted = self.noted.iter().take(self.nr);
        noted.all(|noted| self.parts.table.get(noted.page) == noted.entry)
    }
}

/// The one extent that the slot's window is to hold, its device, and where it goes.
fn extent<'a>(
    swap: &'a Swap,
    slot: &'a mut SlotGuard<'_>,
) -> Option<(&'a SwapDevice, Extent, &'a mut [u8])> {
    let (&[extent], buffer) = slot.swap_in.to_read() else {
        return None;
    };
    Some((swap.device_of(extent.slot)?, extent, buffer))
}

impl Drop for Early<'_> {
    fn drop(&mut self) {
        self.queue.finish();
        for noted in self.noted.iter().take(self.nr) {
            if noted.is_read
                && let Entry::Swapped { location, size, .. } = noted.entry
            {
                self.swap.put(location, size);
            }
        }
    }
}

impl Parts {
    /// Begins to read `page` into the slot's window, and of those `around` it what lies beside it, if it is on a
    /// device and memory has to be made for it. `None`: it is read when its folio is held.
    pub(super) fn read_early(
        &self,
        slot: &mut SlotGuard<'_>,
        page: Page,
        around: Option<PageRange>,
    ) -> Option<Early<'_>> {
        let swap = self.swap.as_ref()?;
        self.extent_alone(swap, page)?;
        if !self.is_short(slot) {
            return None;
        }
        let mut early = Early {
            parts: self,
            swap,
            queue: swap.queues.iter().find_map(Lock::try_lock)?,
            noted: [Noted {
                page,
                entry: Entry::None,
                is_read: false,
            }; WIDEST],
            nr: 0,
        };
        let guard = self.folios.of(page).try_lock()?;
        let needed = self.extent_alone(swap, page)?;
        slot.swap_in.forget();
        slot.swap_in
            .add(around.map_or(needed, |around| self.beside(swap, needed, around)));
        for page in around.unwrap_or(PageRange::one(page)).pages() {
            let extent = self.extent_alone(swap, page);
            let noted = Noted {
                page,
                entry: self.table.get(page),
                is_read: extent.is_some_and(|extent| slot.swap_in.read(extent).is_some()),
            };
            if !early.note(noted) {
                return None;
            }
        }
        drop(guard);
        early.start(slot).then_some(early)
    }

    /// Whether room that is made now is wanted soon, and is made by evicting: what does not compress only moves to the pool, until
    /// that is full, so that of it no more is evicted than [`Parts::make_room`] must, or what is hot would go for nothing.
    fn is_short(&self, slot: &SlotGuard<'_>) -> bool {
        let wanted =
            slot.reserve.pages() < RESERVE_PAGES + SLACK_PAGES && self.charge.room() < SLACK_PAGES;
        wanted && !slot.swap_in.in_vain
    }

    /// Locks the folio, when what was to be read before has come: it is in the slot's window then, if it is still
    /// what the entries name.
    pub(super) fn hold_when_read(
        &self,
        slot: &mut SlotGuard<'_>,
        index: u32,
        early: Option<Early<'_>>,
    ) -> FolioGuard<'_> {
        let came = early.and_then(|mut early| early.wait(slot).then_some(early));
        let guard = self.folios.at(index).lock();
        if came.is_some_and(|early| early.is_current(&guard)) {
            add(&self.counters().swap_reads_early, 1);
            slot.swap_in.set_current();
        }
        guard
    }

    /// Evicts while a page is read.
    pub(super) fn evict_meanwhile(&self, slot: &mut SlotGuard<'_>) {
        self.follow_compressor(slot);
        let room = |slot: &SlotGuard<'_>| slot.reserve.pages() + self.charge.room();
        let before = room(slot);
        self.reclaim_batch(slot, AIM_MEANWHILE);
        slot.swap_in.in_vain = room(slot) <= before;
    }
}
