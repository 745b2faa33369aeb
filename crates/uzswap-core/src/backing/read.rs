//! *What*: reads objects from the swap devices: those of several pages at once, and what lies
//! beside one on its device.
//!
//! *Invariants*: an object's seal is checked before its contents are used.
//! *Locking*: the folio is held. *Context*: signal, worker.

use super::Backing;
use super::device::SwapDevice;
use crate::op::ReadWindow;
use crate::page::{Entries, Entry, Page, PageRange, Pages, wide};
use uzswap_group::counters::add;
use uzswap_group::group::Text;
use uzswap_io::{Extent, Fingerprint, Label, Location, Window};
use uzswap_sync::primitive::Ordering::Relaxed;
use uzswap_sys::arch;
use uzswap_sys::fmt::write_line;

use super::label;

impl Backing {
    /// Passes to `unpack` the stored form of a swapped `page`, read into `window` unless it is
    /// there already, and its fingerprint if its copy on the device is worth keeping. The pages
    /// that follow in `range` are read with it. `None`: it cannot be read.
    pub(crate) fn read_object<T>(
        &self,
        pages: &Pages,
        window: &mut ReadWindow,
        page: Page,
        range: PageRange,
        unpack: impl FnOnce(&[u8], Option<Fingerprint>) -> T,
    ) -> Option<T> {
        let Entry::Swapped {
            location,
            size,
            age,
            ..
        } = pages.get(page)
        else {
            return None;
        };
        let needed = self.extent(location, size);
        if window.read(needed).is_none() {
            self.plan_read(pages, window, needed, page, range);
            // It may be a neighbour that cannot be read: try the page alone.
            let read = self.read(window) || window.only(needed) && self.read(window);
            if !read {
                window.forget();
                return None;
            }
        }
        let device = self.devices.of_slot(needed.slot);
        let keeps = device.is_some_and(SwapDevice::keeps_copies);
        let write = device.map_or(0, |device| device.write_of(needed.slot));
        let sealed = (label(page, age, write), Location::from_raw(location));
        if let Some(body) = self.open_object(window, needed, sealed, size) {
            let fingerprint = keeps.then(|| self.keys.fingerprint(page, body));
            return Some(unpack(body, fingerprint));
        }
        // A server that took over after another's failure may have what was there before.
        self.read_copy(device?, window, needed)?;
        let body = self.open_object(window, needed, sealed, size)?;
        let fingerprint = keeps.then(|| self.keys.fingerprint(page, body));
        Some(unpack(body, fingerprint))
    }

    /// The body of the object within `needed`, whose slots are in the window; `None`: it is not
    /// what was written under that label.
    fn open_object<'a>(
        &self,
        window: &'a mut ReadWindow,
        needed: Extent,
        (label, location): (Label, Location),
        size: u16,
    ) -> Option<&'a [u8]> {
        let (first, slots) = window.read(needed)?;
        let window = Window::new(first, slots);
        let body = window.into_object(self.seal(), label, location, size.into());
        body.ok().map(|body| &*body)
    }

    /// Reads `needed` alone into the window, from another copy. `None`: there is none.
    fn read_copy(
        &self,
        device: &SwapDevice,
        window: &mut ReadWindow,
        needed: Extent,
    ) -> Option<()> {
        window.only(needed);
        let (_, buffer) = window.to_read();
        let read = device.read_copy(needed, buffer);
        if read.is_err() {
            window.forget();
        }
        read.ok()
    }

    /// Adds `needed`, the extent of `page`, to the window, and as many of the pages that follow in
    /// `range` as fit.
    fn plan_read(
        &self,
        pages: &Pages,
        window: &mut ReadWindow,
        needed: Extent,
        page: Page,
        range: PageRange,
    ) {
        let beside = match window.around {
            Some(around) => self.beside(pages, needed, around),
            None => needed,
        };
        window.forget();
        let mut room = window.add(beside);
        for index in page.index() + 1..range.end {
            if !room {
                break;
            }
            if let Entry::Swapped { location, size, .. } = pages.get(Page::from_index(index)) {
                room = window.add(self.extent(location, size));
            }
        }
    }

    /// `needed`, joined with the extents of pages `around` that lie beside it.
    pub(crate) fn beside(&self, pages: &Pages, needed: Extent, around: PageRange) -> Extent {
        let mut all = needed;
        let mut join = |page| {
            if let Some(extent) = self.extent_of(pages, page) {
                all = ReadWindow::joined(all, extent).unwrap_or(all);
            }
        };
        // Neighbours in memory lie on the device in rising or falling order.
        around.pages().for_each(&mut join);
        around.pages().rev().for_each(&mut join);
        all
    }

    /// The extent of a page that is on a device and in no block.
    pub(crate) fn extent_of(&self, pages: &Pages, page: Page) -> Option<Extent> {
        match pages.get(page) {
            Entry::Swapped {
                location,
                size,
                content,
                ..
            } if content.is_page() => Some(self.extent(location, size)),
            _ => None,
        }
    }

    /// The pages of `folio` around `page` to read ahead, if it is read from a device.
    pub(crate) fn around(&self, pages: &Pages, page: Page, folio: PageRange) -> Option<PageRange> {
        self.extent_of(pages, page)?;
        let around = self.readahead.around(page, folio);
        (around.len() > 1).then_some(around)
    }

    /// Reads the extents of the window: those in a row on the same device together.
    fn read(&self, window: &mut ReadWindow) -> bool {
        let (extents, buffer) = window.to_read();
        let mut queue = match extents.len() {
            1 => None,
            _ => self.try_queue(),
        };
        let counters = self.account.counters();
        add(&counters.swap_bytes_in, wide(buffer.len()));
        add(&counters.swap_reads, wide(extents.len()));
        let mut rest = buffer;
        let began = arch::ticks();
        let device_of =
            |extent: &Extent| self.devices.of_slot(extent.slot).map(core::ptr::from_ref);
        let mut runs = extents.chunk_by(|one, next| device_of(one) == device_of(next));
        let read = runs.all(|run| {
            let len: usize = run.iter().map(Extent::bytes).sum();
            let device = run
                .first()
                .and_then(|first| self.devices.of_slot(first.slot));
            device
                .zip(rest.split_off_mut(..len))
                .is_some_and(|(device, buffer)| {
                    device.read(queue.as_deref_mut(), run, buffer).is_ok()
                })
        });
        let ticks = arch::ticks().wrapping_sub(began);
        add(&counters.swap_ticks, ticks);
        window.waited += ticks;
        read
    }

    /// Counts an unreadable page, or block that begins with it; reports the first on stderr.
    pub(crate) fn report_unreadable(&self, pages: &Pages, page: Page) {
        add(&self.account.counters().swap_read_fail, 1);
        // The device of the page, or of the first piece of its block that is on one.
        let device = pages.block_of(page).pages().find_map(|page| {
            let Entry::Swapped { location, .. } = pages.get(page) else {
                return None;
            };
            self.devices.of_slot(Location::from_raw(location).slot)
        });
        if let Some(device) = device
            && !self.reported_unreadable.swap(true, Relaxed)
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
