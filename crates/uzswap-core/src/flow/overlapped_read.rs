//! *What*: overlaps the device read of a faulting page with the eviction that makes room for it.
//!
//! ```text
//! begin (folio locked: entries noted, objects counted) → evict (nothing locked) → wait
//!       → check the entries (folio locked)
//! ```
//!
//! Done only where memory must be made anyway, and for a single page with its readahead.
//!
//! *Invariants*
//! - While the read is under way its objects hold one more count, so their slots are not reused: an
//!   entry that is unchanged when the folio is locked again names what was read.
//! - If an entry has changed (the page was loaded, and perhaps modified and stored again; dropped;
//!   or brought back by swapoff), or the read failed, the data are discarded and the page is loaded
//!   again.
//! - The operation is held throughout. So no fork happens meanwhile, whose child would inherit
//!   counts that it has no entries for, and swapoff can wait for the counts.
//!
//! *Locking*: op → queue (tried) → folio (tried; not held while waiting). *Context*: signal,
//! worker.

use super::follow;
use super::reclaim::evict_above_floor;
use crate::backing::Backing;
use crate::backing::device::SwapDevice;
use crate::backing::readahead::MAX_WINDOW;
use crate::op::{OpGuard, RESERVE_PAGES, SLACK_PAGES};
use crate::page::block::Entries;
use crate::page::folio::FolioGuard;
use crate::page::lru::Wanted;
use crate::page::{Entry, Page, PageRange, wide};
use crate::parts::Parts;
use uzswap_group::counters::add;
use uzswap_io::{Extent, Queue};
use uzswap_sync::lock::LockGuard;
use uzswap_sys::arch;

/// Pages to evict during one read, rounded up to whole folios: takes about as long as the read.
const READ_EVICT_PAGES: usize = 4;

/// A read under way. Dropped, it is waited for, and its objects are counted off.
pub(super) struct OverlappedRead<'a> {
    parts: &'a Parts,
    backing: &'a Backing,
    queue: LockGuard<'a, Queue>,
    /// The pages that may come in with it, itself among them.
    noted: [Noted; MAX_WINDOW],
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

impl OverlappedRead<'_> {
    /// Notes a page, and counts its object if that is read. `false`: it cannot be counted.
    fn note(&mut self, noted: Noted) -> bool {
        let Some(place) = self.noted.get_mut(self.nr) else {
            return false;
        };
        if noted.is_read
            && let Entry::Swapped { location, size, .. } = noted.entry
            && !self.backing.get(location, size)
        {
            return false;
        }
        *place = noted;
        self.nr += 1;
        true
    }

    /// Begins to read. `false`: it is read when its folio is held.
    fn start(&mut self, op: &mut OpGuard<'_>) -> bool {
        let Some((device, extent, buffer)) = extent(self.backing, op) else {
            return false;
        };
        let began = arch::ticks();
        // SAFETY: the buffer is of an operation, which lives as long as the process and is held
        // until this is dropped; nothing but what brings pages in, after that, looks at it.
        let started = unsafe { device.start_read(&mut self.queue, extent, buffer) };
        if started {
            let counters = self.parts.account.counters();
            add(&counters.swap_bytes_in, wide(extent.bytes()));
            add(&counters.swap_reads, 1);
            self.count_wait(op, began);
        }
        started
    }

    /// Waits for the read. Returns whether all of it came into the operation's window.
    fn wait(&mut self, op: &mut OpGuard<'_>) -> bool {
        let began = arch::ticks();
        let came = self.queue.finish() == 1;
        self.count_wait(op, began);
        came && extent(self.backing, op).is_some_and(|(device, _, buffer)| device.accepts(buffer))
    }

    /// What the device is waited for, from `began` until now.
    fn count_wait(&self, op: &mut OpGuard<'_>, began: u64) {
        let ticks = arch::ticks().wrapping_sub(began);
        op.window.waited += ticks;
        add(&self.parts.account.counters().swap_ticks, ticks);
    }

    /// With the folio held: whether its entries still name what was read.
    pub(super) fn is_current(&self, _guard: &FolioGuard<'_>) -> bool {
        let mut noted = self.noted.iter().take(self.nr);
        noted.all(|noted| self.parts.pages.get(noted.page) == noted.entry)
    }
}

/// The one extent that the operation's window is to hold, its device, and where it goes.
fn extent<'a>(
    backing: &'a Backing,
    op: &'a mut OpGuard<'_>,
) -> Option<(&'a SwapDevice, Extent, &'a mut [u8])> {
    let (&[extent], buffer) = op.window.to_read() else {
        return None;
    };
    Some((backing.devices().of_slot(extent.slot)?, extent, buffer))
}

impl Drop for OverlappedRead<'_> {
    fn drop(&mut self) {
        self.queue.finish();
        for noted in self.noted.iter().take(self.nr) {
            if noted.is_read
                && let Entry::Swapped { location, size, .. } = noted.entry
            {
                self.backing.put(location, size);
            }
        }
    }
}

/// Begins to read `page` into the operation's window, and of those `around` it what lies beside it,
/// if it is on a device and memory has to be made for it. `None`: it is read when its folio is
/// held.
pub(crate) fn begin_read<'a>(
    parts: &'a Parts,
    op: &mut OpGuard<'_>,
    page: Page,
    around: Option<PageRange>,
) -> Option<OverlappedRead<'a>> {
    let backing = parts.backing.as_ref()?;
    backing.extent_of(&parts.pages, page)?;
    if !is_short(parts, op) {
        return None;
    }
    let mut read = OverlappedRead {
        parts,
        backing,
        queue: backing.try_queue()?,
        noted: [Noted {
            page,
            entry: Entry::None,
            is_read: false,
        }; MAX_WINDOW],
        nr: 0,
    };
    let guard = parts.pages.folio_of(page).try_lock()?;
    let needed = backing.extent_of(&parts.pages, page)?;
    op.window.forget();
    op.window.add(around.map_or(needed, |around| {
        backing.beside(&parts.pages, needed, around)
    }));
    for page in around.unwrap_or(PageRange::one(page)).pages() {
        let extent = backing.extent_of(&parts.pages, page);
        let noted = Noted {
            page,
            entry: parts.pages.get(page),
            is_read: extent.is_some_and(|extent| op.window.read(extent).is_some()),
        };
        if !read.note(noted) {
            return None;
        }
    }
    drop(guard);
    read.start(op).then_some(read)
}

/// Whether room that is made now is wanted soon, and is made by evicting: what does not compress
/// only moves to the pool, until that is full, so that of it no more is evicted than
/// [`super::reclaim::make_room`] must, or what is hot would go for nothing.
fn is_short(parts: &Parts, op: &OpGuard<'_>) -> bool {
    let wanted = op.reserve.pages() < RESERVE_PAGES + SLACK_PAGES
        && parts.account.charge().room() < SLACK_PAGES;
    wanted && !op.window.freed_nothing
}

/// Locks the folio, when what was to be read before has come: it is in the operation's window then,
/// if it is still what the entries name.
pub(crate) fn lock_after_read<'a>(
    parts: &'a Parts,
    op: &mut OpGuard<'_>,
    index: u32,
    read: Option<OverlappedRead<'_>>,
) -> FolioGuard<'a> {
    let came = read.and_then(|mut read| read.wait(op).then_some(read));
    let guard = parts.pages.folio(index).lock();
    if came.is_some_and(|read| read.is_current(&guard)) {
        add(&parts.account.counters().swap_reads_early, 1);
        op.window.set_current();
    }
    guard
}

/// Evicts while a page is read.
pub(crate) fn evict_during_read(parts: &Parts, op: &mut OpGuard<'_>) {
    follow::follow_knobs(parts, op);
    let room = |op: &OpGuard<'_>| op.reserve.pages() + parts.account.charge().room();
    let before = room(op);
    evict_above_floor(parts, op, Wanted::about(READ_EVICT_PAGES));
    op.window.freed_nothing = room(op) <= before;
}
