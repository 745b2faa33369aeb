//! *What*: what is read back from the swap devices: the objects of several pages at once, wherever they lie; and what lies
//! beside one on the device, of the pages around it, which goes into the pool ([`crate::swap_readahead`]).
//!
//! *Invariants*: no object is taken for a page's contents before its seal was checked.
//! *Locking*: the folio is held. *Context*: signal, worker.

use super::Parts;
use super::device::SwapDevice;
use super::object;
use super::store::Stored;
use super::swap::{Swap, label};
use crate::arena::{PAGE_SIZE, Page, PageRange, wide};
use crate::slot::{RESERVE_PAGES, SlotGuard, SwapIn};
use crate::table::{Entry, Holds};
use uzswap_group::counters::add;
use uzswap_group::group::Text;
use uzswap_group::knobs::is_on;
use uzswap_io::{Extent, Fingerprint, Location, Window};
use uzswap_pool::{CHAIN_MAX, Loc};
use uzswap_sync::charge::Reserve;
use uzswap_sync::lock::Lock;
use uzswap_sync::primitive::Ordering::Relaxed;
use uzswap_sys::arch;
use uzswap_sys::fmt::write_line;

/// What became of an object that was to come from a device into the pool.
pub(super) enum Fetched {
    /// It is there too.
    Object {
        loc: Loc,
        size: u16,
        fingerprint: Option<Fingerprint>,
    },
    /// The pool has no room for it.
    NoRoom,
    /// It cannot be had.
    Unreadable,
}

impl Parts {
    /// Gives `unpack` the stored form of a swapped `page`, read from the device into `window` unless it
    /// is there already, and its fingerprint, if its copy on the device is worth keeping. What follows it in
    /// `range` is read with it. `None`: it cannot be had.
    pub(crate) fn swap_in<T>(
        &self,
        window: &mut SwapIn,
        page: Page,
        range: PageRange,
        unpack: impl FnOnce(&[u8], Option<Fingerprint>) -> T,
    ) -> Option<T> {
        let swap = self.swap.as_ref()?;
        let Entry::Swapped {
            location,
            size,
            age,
            ..
        } = self.table.get(page)
        else {
            return None;
        };
        let needed = swap.extent(location, size);
        if window.read(needed).is_none() {
            self.plan_read(swap, window, needed, page, range);
            // What is read along may be what cannot be read.
            let read = self.read(swap, window) || window.only(needed) && self.read(swap, window);
            if !read {
                window.forget();
                return None;
            }
        }
        let keeps = swap
            .device_of(needed.slot)
            .is_some_and(SwapDevice::keeps_copies);
        let (first, slots) = window.read(needed)?;
        Window::new(first, slots)
            .open(
                swap.seal(),
                label(page, age),
                Location::from_raw(location),
                size.into(),
            )
            .ok()
            .map(|body| {
                let fingerprint = keeps.then(|| swap.fingerprint(page, body));
                unpack(body, fingerprint)
            })
    }

    /// Lists `needed`, where `page` is, and as much as there is room for of what is on the device of the pages that follow
    /// it in `range`, wherever it lies.
    fn plan_read(
        &self,
        swap: &Swap,
        window: &mut SwapIn,
        needed: Extent,
        page: Page,
        range: PageRange,
    ) {
        let beside = match window.around {
            Some(around) => self.beside(swap, needed, around),
            None => needed,
        };
        window.forget();
        let mut room = window.add(beside);
        for index in page.index() + 1..range.end {
            if !room {
                break;
            }
            if let Entry::Swapped { location, size, .. } = self.table.get(Page::from_index(index)) {
                room = window.add(swap.extent(location, size));
            }
        }
    }

    /// `needed`, and what of the pages `around` lies beside it.
    pub(super) fn beside(&self, swap: &Swap, needed: Extent, around: PageRange) -> Extent {
        let mut all = needed;
        let mut join = |page| {
            if let Some(extent) = self.extent_alone(swap, page) {
                all = SwapIn::joined(all, extent).unwrap_or(all);
            }
        };
        // Neighbours in memory that are such on the device are so in the same order, or were written in another.
        around.pages().for_each(&mut join);
        around.pages().rev().for_each(&mut join);
        all
    }

    /// Where a page lies that is on a device and in no block.
    pub(super) fn extent_alone(&self, swap: &Swap, page: Page) -> Option<Extent> {
        match self.table.get(page) {
            Entry::Swapped {
                location,
                size,
                holds,
                ..
            } if holds.is_page() => Some(swap.extent(location, size)),
            _ => None,
        }
    }

    /// The pages around `page` of `folio` that are worth reading with it, if it is read from a device.
    pub(super) fn around(&self, page: Page, folio: PageRange) -> Option<PageRange> {
        let swap = self.swap.as_ref()?;
        self.extent_alone(swap, page)?;
        let around = swap.readahead.around(page, folio);
        (around.len() > 1).then_some(around)
    }

    /// Puts into the pool what of `around` was read along with the page that was asked for, as far as the slot has
    /// room. The folio is held since then.
    pub(super) fn keep_ahead(&self, slot: &mut SlotGuard<'_>, around: PageRange) {
        let Some(swap) = &self.swap else { return };
        let mut room = Reserve::empty(self.charge);
        let spare = slot.reserve.pages().saturating_sub(RESERVE_PAGES);
        let spare = spare.min(2 * wide(CHAIN_MAX));
        if slot.reserve.take(spare) {
            room.put(spare);
        }
        let (age, mut stored) = (self.clock.now(), Stored::default());
        for page in around.pages() {
            let old = self.table.get(page);
            let Some(extent) = self.extent_alone(swap, page) else {
                continue;
            };
            // So much that the pool finds room for it.
            if room.pages() < wide(CHAIN_MAX) || slot.swap_in.read(extent).is_none() {
                continue;
            }
            // One that is damaged is told of when it is asked for.
            if let Fetched::Object {
                loc,
                size,
                fingerprint,
            } = self.fetch(&mut slot.swap_in, &mut room, page, PageRange::one(page))
            {
                let new = Entry::Stored {
                    loc,
                    size,
                    age,
                    writing: false,
                    holds: Holds::Ahead,
                };
                self.table.set(page, new);
                if !self.keep_copy(slot, page, old, fingerprint) {
                    self.forget(old);
                }
                stored.add(new);
            }
        }
        let rest = room.pages();
        if room.take(rest) {
            slot.reserve.put(rest);
        }
        self.count_stored(&stored);
        add(&self.counters().pswpin, wide(stored.pages));
        add(&self.counters().swap_ra, wide(stored.pages));
    }

    /// Puts what is on a device of `page` into the pool, as it is. What follows it in `range` is read with it.
    pub(super) fn fetch(
        &self,
        window: &mut SwapIn,
        room: &mut Reserve<'static>,
        page: Page,
        range: PageRange,
    ) -> Fetched {
        let fetched = self.swap_in(window, page, range, |data, fingerprint| {
            // SAFETY: a slice is readable.
            let loc = unsafe { self.put_object(room, page, data.as_ptr(), data.len()) };
            let Some((loc, size)) = loc.zip(u16::try_from(data.len()).ok()) else {
                return Fetched::NoRoom;
            };
            if data.len() == PAGE_SIZE && is_on(&self.group.knobs.checksum) {
                // SAFETY: the new object, a page, is not published yet.
                unsafe { self.pool.set_note(loc, object::note_of(data)) };
            }
            Fetched::Object {
                loc,
                size,
                fingerprint,
            }
        });
        fetched.unwrap_or(Fetched::Unreadable)
    }

    /// Reads what is listed, at once as far as it follows each other on one device.
    fn read(&self, swap: &Swap, window: &mut SwapIn) -> bool {
        let (extents, buffer) = window.to_read();
        let mut queue = match extents.len() {
            1 => None,
            _ => swap.queues.iter().find_map(Lock::try_lock),
        };
        let counters = self.counters();
        add(&counters.swap_bytes_in, wide(buffer.len()));
        add(&counters.swap_reads, wide(extents.len()));
        let mut rest = buffer;
        let began = arch::rdtsc();
        let device_of = |extent: &Extent| swap.device_of(extent.slot).map(core::ptr::from_ref);
        let mut parts = extents.chunk_by(|one, next| device_of(one) == device_of(next));
        let read = parts.all(|part| {
            let len: usize = part.iter().map(Extent::bytes).sum();
            let device = part.first().and_then(|first| swap.device_of(first.slot));
            device
                .zip(rest.split_off_mut(..len))
                .is_some_and(|(device, buffer)| {
                    device.read(queue.as_deref_mut(), part, buffer).is_ok()
                })
        });
        add(&counters.swap_ticks, arch::rdtsc().wrapping_sub(began));
        read
    }

    /// A page, or the block that begins with it, that cannot be read back is counted; the first time is told.
    pub(super) fn tell_unreadable(&self, page: Page) {
        let Some(swap) = &self.swap else { return };
        add(&self.counters().swap_read_fail, 1);
        // By the page alone if it is a page's, else by the first piece of its block that is on a device.
        let device = self.block_of(page).pages().find_map(|page| {
            let Entry::Swapped { location, .. } = self.table.get(page) else {
                return None;
            };
            swap.device_of(Location::from_raw(location).slot)
        });
        if let Some(device) = device
            && !swap.told.swap(true, Relaxed)
        {
            let name = &device.config.name;
            let _ = write_line(
                2,
                format_args!(
                    "uzswap: memory at {:#x} cannot be read back from the swap device {}: the \
                     program gets SIGBUS where it uses it",
                    page.addr(),
                    name.get(&mut [0; Text::LEN]),
                ),
            );
        }
    }
}
