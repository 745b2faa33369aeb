//! *What*: swapoff in one process: everything that it has on one swap device returns to the pool,
//! still compressed and with its age, so that it is the first to go to another device.
//!
//! The device is off before any process is asked: nothing new goes there. What no longer fits the
//! pool is written back meanwhile, as with any store.
//!
//! *Invariants*: a device object is released only when its copy is in the pool, so nothing is lost
//! however this ends.
//! *Locking*: op → folio; the writeback lock alone, to wait for it.
//! *Context*: a thread of its own, or the signal.

use super::readahead::Fetched;
use super::{readahead, reserve, shrink, sizes};
use crate::backing::Backing;
use crate::backing::device::SwapDevice;
use crate::masked::Masked;
use crate::op::{LOAD_LEN, OpGuard, RESERVE_PAGES, SLACK_PAGES};
use crate::page::block::Entries;
use crate::page::{Entry, PAGE_SIZE, Page, PageRange, wide};
use crate::parts::Parts;
use uzswap_io::Location;
use uzswap_sync::charge::Reserve;

/// Pages whose objects are read, and put into the pool, at once.
const WINDOW: usize = LOAD_LEN / PAGE_SIZE;

/// Pool pages for them: each may be raw, and the last begin a zspage of any length.
const ROOM: u64 = wide(WINDOW) + 8;

/// Most walks over the page table. Operations under way when a walk begins may put pages on the
/// device behind it.
const MAX_WALKS: u32 = 4;

/// Something on the device cannot come back: it cannot be read, or the pool has no room.
struct Incomplete;

/// Brings back what this process has on device `number`, which is off. Returns how many bytes in
/// the pool that are; what could not be brought back is still counted on the device.
pub(crate) fn swap_off(parts: &Parts, masked: &Masked, number: usize) -> u64 {
    let mut bytes = 0;
    if let Some(backing) = &parts.backing
        && let Some(device) = backing.devices().get(number)
    {
        // A writeback that chose the device before it was off ends before this lock is ours.
        let op = parts.op(masked);
        drop(parts.writeback.lock());
        drop(op);
        for _ in 0..MAX_WALKS {
            let walked = walk_off(parts, masked, backing, device, &mut bytes);
            // A read that began earlier still holds counts on objects whose entries are gone.
            parts.ops.wait_for_all();
            if walked.is_err() || !device.is_used() {
                break;
            }
        }
        // Returns the room to the disk; the last process of the group to get here does it.
        while device.discard() {}
    }
    sizes::publish_sizes(parts);
    bytes
}

/// Once over everything that may be on `device`.
fn walk_off(
    parts: &Parts,
    masked: &Masked,
    backing: &Backing,
    device: &SwapDevice,
    bytes: &mut u64,
) -> Result<(), Incomplete> {
    let op = parts.op(masked);
    backing.drop_copies_on(device);
    drop(op);
    for chunk in parts.pages.ready_chunks(0) {
        for start in (chunk.start / WINDOW * WINDOW..chunk.end).step_by(WINDOW) {
            let window = PageRange {
                start,
                end: start + WINDOW,
            };
            if !window.pages().any(|page| is_on(parts, device, page)) {
                continue;
            }
            // One operation a window: fork does not wait for the rest.
            let mut op = parts.op(masked);
            let taken = take_back_window(parts, &mut op, backing, device, window);
            shrink::shrink(parts, &mut op);
            op.reserve.shrink_to(RESERVE_PAGES + SLACK_PAGES);
            *bytes += taken?;
        }
    }
    Ok(())
}

pub(crate) fn is_on(parts: &Parts, device: &SwapDevice, page: Page) -> bool {
    matches!(
        parts.pages.get(page),
        Entry::Swapped { location, .. } if device.has(Location::from_raw(location).slot)
    )
}

/// All of `window` that is on `device`. Returns how many bytes that is.
fn take_back_window(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    backing: &Backing,
    device: &SwapDevice,
    window: PageRange,
) -> Result<u64, Incomplete> {
    let mut bytes = 0;
    let mut begun = window.start;
    while begun < window.end {
        // Before the folio is held: to make room others are.
        if !reserve::reserve_pages(parts, op, ROOM) {
            return Err(Incomplete);
        }
        let mut room = Reserve::empty(parts.account.charge());
        room.put(ROOM);
        let rest = PageRange {
            start: begun,
            end: window.end,
        };
        let taken = take_back(parts, op, &mut room, backing, device, rest, &mut bytes);
        // No progress in spite of the room: a page cannot be read.
        begun = taken.filter(|next| *next > begun).ok_or(Incomplete)?;
    }
    Ok(bytes)
}

/// Of `window` what is on `device`, as far as `room` goes. Returns the page to go on with; `None`:
/// something cannot be read.
pub(crate) fn take_back(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    room: &mut Reserve<'static>,
    backing: &Backing,
    device: &SwapDevice,
    window: PageRange,
    bytes: &mut u64,
) -> Option<usize> {
    let mut folio = None;
    let mut next = Some(window.end);
    for page in window.pages() {
        let index = parts.pages.index_of(page);
        if folio.as_ref().is_none_or(|(held, _)| *held != index) {
            // One at a time.
            drop(folio.take());
            folio = Some((index, parts.pages.folio(index).lock()));
            // Without the folio its slots may have been reused since they were read.
            op.window.forget();
        }
        let Entry::Swapped { age, content, .. } = parts.pages.get(page) else {
            continue;
        };
        if !is_on(parts, device, page) {
            continue;
        }
        let range = PageRange {
            start: page.index(),
            end: window.end.min(parts.pages.range_of(index).end),
        };
        let (loc, size) = match readahead::fetch(parts, backing, &mut op.window, room, page, range)
        {
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
        parts.transition().fetch(page, loc, age, content, |_| false);
        *bytes += u64::from(size);
    }
    drop(folio);
    next
}
