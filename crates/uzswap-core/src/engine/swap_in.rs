//! *What*: what is read back from the swap devices: the objects of several pages at once, wherever they lie.
//!
//! *Invariants*: no object is taken for a page's contents before its seal was checked.
//! *Locking*: the folio is held. *Context*: signal, worker.

use super::Parts;
use super::device::SwapDevice;
use super::swap::{Swap, label};
use crate::arena::{Page, PageRange, wide};
use crate::counters::add;
use crate::group::Text;
use crate::lock::Lock;
use crate::primitive::Ordering::Relaxed;
use crate::slot::SwapIn;
use crate::table::Entry;
use uzswap_io::{Extent, Fingerprint, Location, Window};
use uzswap_sys::fmt::write_line;

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
        window.forget();
        let mut room = window.add(needed);
        for index in page.index() + 1..range.end {
            if !room {
                break;
            }
            if let Entry::Swapped { location, size, .. } = self.table.get(Page::from_index(index)) {
                room = window.add(swap.extent(location, size));
            }
        }
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
        let device_of = |extent: &Extent| swap.device_of(extent.slot).map(core::ptr::from_ref);
        let mut parts = extents.chunk_by(|one, next| device_of(one) == device_of(next));
        parts.all(|part| {
            let len: usize = part.iter().map(Extent::bytes).sum();
            let device = part.first().and_then(|first| swap.device_of(first.slot));
            device
                .zip(rest.split_off_mut(..len))
                .is_some_and(|(device, buffer)| {
                    device.read(queue.as_deref_mut(), part, buffer).is_ok()
                })
        })
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
