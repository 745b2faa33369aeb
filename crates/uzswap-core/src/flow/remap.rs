//! *What*: mremap: shrinks, grows in place, or moves a mapping with its contents.
//!
//! A stored page changes its owner and stays where it is. A resident page is copied and its
//! original dropped, one at a time, so that moving needs no extra memory.
//!
//! *Invariants*: a page's contents belong to one entry at any time, or to this operation alone. A
//! move that fails moves back what it moved. A page is moved to where there is nothing: what
//! another thread's fault beside it has filled with zeroes there meanwhile is dropped first.
//! *Locking*: op → one folio at a time, or a second one if it is free. *Context*: worker; addresses
//! and lengths are page aligned.

use super::access::note_access;
use super::decode::report_lost;
use super::drop::drop_pages;
use super::load::bring_in;
use super::reserve::{ready_chunk, reserve_pages};
use super::share::count_new;
use super::sizes::count_resident;
use super::space::{MapError, insert_free, replace, unmap};
use crate::arena::region::Flags;
use crate::op::OpGuard;
use crate::page::block::Entries;
use crate::page::{Entry, PAGE_SIZE, Page, PageRange, wide};
use crate::parts::Parts;
use uzswap_sys::{Errno, mem, thread};

/// Where [`Engine::remap`](crate::Engine::remap) may put the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemapTo {
    /// Where it is.
    InPlace,
    /// Anywhere, if it cannot stay.
    MayMove,
    /// Here, in place of what is mapped there.
    Fixed(usize),
    /// As [`RemapTo::Fixed`], and the old range stays mapped, empty.
    Leaving(usize),
}

/// mremap: shrinks, grows or moves a range.
pub(crate) fn remap(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    old: usize,
    old_len: usize,
    new_len: usize,
    to: RemapTo,
) -> Result<usize, MapError> {
    let regions = parts.arena.regions();
    let region = regions.lookup(old).ok_or(MapError::NotMapped)?;
    if region.end < old + old_len || region.flags.contains(Flags::FOREIGN) {
        return Err(MapError::NotMapped);
    }
    if let RemapTo::Fixed(new) | RemapTo::Leaving(new) = to {
        if new < old + old_len && old < new + new_len {
            return Err(MapError::Invalid);
        }
        replace(parts, op, new, new_len, region.flags)?;
        let moved = move_contents(parts, op, old, old_len, new, new_len, region.flags);
        return moved
            .map(|()| leave(parts, op, old, old_len, to, region.flags))
            .map(|()| new);
    }
    if new_len <= old_len {
        unmap(parts, op, old + new_len, old_len - new_len)?;
        return Ok(old);
    }
    let (end, more) = (old + old_len, new_len - old_len);
    if insert_free(parts, end, more, region.flags) {
        let prot = region.flags.prot();
        if let Err(errno) = parts.arena.set_prot(&parts.pages, end, more, prot) {
            let _ = unmap(parts, op, end, more);
            return Err(MapError::Kernel(errno));
        }
        return Ok(old);
    }
    if to == RemapTo::InPlace {
        return Err(MapError::NoSpace);
    }
    let new = regions.reserve(new_len, 0, region.flags)?;
    let moved = move_contents(parts, op, old, old_len, new, new_len, region.flags);
    moved
        .map(|()| leave(parts, op, old, old_len, to, region.flags))
        .map(|()| new)
}

/// Leaves an old range as `to` says, whose contents have moved.
fn leave(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    old: usize,
    old_len: usize,
    to: RemapTo,
    flags: Flags,
) {
    if let RemapTo::Leaving(_) = to {
        // What had to be readable to be copied is not any more.
        let _ = parts
            .arena
            .set_prot_now(&parts.pages, old, old_len, flags.prot());
    } else {
        // What cannot be unmapped is lost to the program as address space alone.
        let _ = unmap(parts, op, old, old_len);
    }
}

/// Moves contents to a region that is mapped for them, and is unmapped if that fails.
fn move_contents(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    old: usize,
    old_len: usize,
    new: usize,
    new_len: usize,
    flags: Flags,
) -> Result<(), MapError> {
    let from = PageRange::covering(old, old_len.min(new_len));
    let to = PageRange::covering(new, old_len.min(new_len));
    let readable = flags.prot() & mem::PROT_READ.unsigned_abs() != 0;
    let set_prot = |addr, len, prot| {
        let set = parts.arena.set_prot_now(&parts.pages, addr, len, prot);
        set.map_err(MapError::Kernel)
    };
    if !readable {
        // To be copied. The region map goes on saying that it is not readable, so no reclaimer
        // starts on it.
        if let Err(error) = set_prot(old, old_len, mem::PROT_READ.unsigned_abs()) {
            let _ = unmap(parts, op, new, new_len);
            return Err(error);
        }
    }
    let mut nr_moved = 0;
    let moved = move_pages(parts, op, from, to, &mut nr_moved).and_then(|()| {
        let set = parts
            .arena
            .set_prot(&parts.pages, new, new_len, flags.prot());
        set.map_err(MapError::Kernel)
    });
    if let Err(error) = moved {
        // Back, as far as can be: what moved left its room behind. The rest is in its place.
        let first = |range: PageRange| PageRange {
            end: range.start + nr_moved,
            ..range
        };
        let _ = move_pages(parts, op, first(to), first(from), &mut 0);
        if !readable {
            let _ = set_prot(old, old_len, flags.prot());
        }
        let _ = unmap(parts, op, new, new_len);
        return Err(error);
    }
    Ok(())
}

/// Moves contents from one range to another of the same length, where there is nothing, page by
/// page, and counts the pages in `nr_moved`.
fn move_pages(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    from: PageRange,
    to: PageRange,
    nr_moved: &mut usize,
) -> Result<(), MapError> {
    let mut moved = Ok(());
    parts.pages.for_each_folio(from, |_, part| {
        for page in part.pages() {
            if moved.is_ok() {
                let target = Page::from_index(to.start + (page.index() - from.start));
                moved = move_page(parts, op, page, target);
                *nr_moved += usize::from(moved.is_ok());
            }
        }
    });
    moved
}

/// Moves the contents of one page.
fn move_page(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    page: Page,
    target: Page,
) -> Result<(), MapError> {
    // Unlocked between the look at the entry and the move, so a reclaimer may store a resident
    // page: then the entry is read again.
    loop {
        let moved = match entry_of(parts, page) {
            entry if entry.is_empty() => return Ok(()),
            _ if !ready_chunk(parts, op, target) => return Err(MapError::NoSpace),
            // The target is a dropped page of a block: the block comes in first.
            _ if entry_of(parts, target).in_block() => bring_back(parts, op, target)?,
            Entry::Resident => {
                if !reserve_pages(parts, op, 1) {
                    return Err(MapError::NoSpace);
                }
                let mut credit = 1;
                let moved = copy_resident(parts, op, page, target, &mut credit);
                op.unreserve(credit);
                moved?
            }
            entry if entry.in_block() => bring_back(parts, op, page)?,
            Entry::Swapped { .. } => bring_back(parts, op, page)?,
            _ => move_stored(parts, page, target)?,
        };
        if moved {
            return Ok(());
        }
    }
}

/// Brings a page in, and the block it is in: from the device, where its label ties it to its
/// address, or because it is not stored alone. It is then moved as a resident one. `false`: it is
/// still to be moved.
fn bring_back(parts: &Parts, op: &mut OpGuard<'_>, page: Page) -> Result<bool, MapError> {
    let range = parts.pages.block_of(page);
    let mut credit = wide(range.len());
    if !reserve_pages(parts, op, credit) {
        return Err(MapError::NoSpace);
    }
    let index = parts.pages.index_of(page);
    let guard = parts.pages.folio(index).lock();
    let brought = bring_in(parts, op, &guard, range, false, &mut credit);
    if brought.is_ok() {
        note_access(parts, &guard, index, Entry::None);
    }
    drop(guard);
    op.unreserve(credit);
    match brought {
        Ok(_) => Ok(false),
        // No retry after a kernel error: part of a block may be in.
        Err(error) => {
            report_lost(parts, error);
            Err(MapError::Kernel(Errno::EFAULT))
        }
    }
}

/// Gives what is stored of `page` to `target`; `false`: it is still to be moved, as nothing is
/// stored any more, or `target` is not empty.
fn move_stored(parts: &Parts, page: Page, target: Page) -> Result<bool, MapError> {
    let (folio, target_folio) = (parts.pages.folio_of(page), parts.pages.folio_of(target));
    let source = folio.lock();
    // Whoever holds it may wait for the other.
    let second = match core::ptr::eq(folio, target_folio) {
        true => None,
        false => match target_folio.try_lock() {
            Some(guard) => Some(guard),
            None => {
                drop(source);
                thread::sched_yield();
                return Ok(false);
            }
        },
    };
    if parts.pages.get(target) != Entry::None {
        drop((source, second));
        return clear(parts, target).map(|()| false);
    }
    let taken = parts.transition().take(page, target);
    Ok(taken.is_some_and(|entry| {
        parts.transition().give(target, entry);
        true
    }))
}

/// Drops what another thread's fault beside it has filled `target` with.
fn clear(parts: &Parts, target: Page) -> Result<(), MapError> {
    drop_pages(parts, PageRange::one(target)).map_err(MapError::Kernel)
}

fn entry_of(parts: &Parts, page: Page) -> Entry {
    let _guard = parts.pages.folio_of(page).lock();
    parts.pages.get(page)
}

/// Copies a resident page to `target` and drops the original; `false` if it is not resident any
/// more. It is pinned while it is copied, so that it stays.
fn copy_resident(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    page: Page,
    target: Page,
    credit: &mut u64,
) -> Result<bool, MapError> {
    let source = parts.pages.folio_of(page).lock();
    if parts.pages.get(page) != Entry::Resident {
        return Ok(false);
    }
    source.pin();
    let isolated = source.cancel_reclaim();
    drop(source);
    if isolated {
        parts.pages.folio_of(page).wait_reclaim();
    }
    let readable = parts
        .arena
        .make_readable(&parts.pages, page)
        .map_err(MapError::Kernel);
    let done = readable.and_then(|()| copy_page(parts, op, page, target, credit));
    parts.pages.folio_of(page).lock().unpin();
    if !done? {
        return clear(parts, target).map(|()| false);
    }
    // What cannot be dropped stays behind full of zeroes.
    let _ = drop_pages(parts, PageRange::one(page));
    Ok(true)
}

/// Copies a page that is resident and pinned into fresh memory, through the load buffer: a system
/// call that is given memory of the arena would be guarded. `false`: `target` is not empty.
fn copy_page(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    page: Page,
    target: Page,
    credit: &mut u64,
) -> Result<bool, MapError> {
    let index = parts.pages.index_of(target);
    let guard = parts.pages.folio(index).lock();
    if parts.pages.get(target) != Entry::None {
        return Ok(false);
    }
    let source = page.addr() as *const u8;
    let buffer = op.load.as_mut_ptr();
    loop {
        // SAFETY: the source stays present while it is pinned, and the buffer is longer than a
        // page; the target is fresh arena memory.
        let copied = unsafe {
            core::ptr::copy_nonoverlapping(source, buffer, PAGE_SIZE);
            parts
                .arena
                .install(&guard, target.addr(), Some(buffer), PAGE_SIZE)
        };
        match copied {
            Ok(_) => break,
            Err(error) if error.errno == Errno::EAGAIN => {}
            Err(error) => return Err(MapError::Kernel(error.errno)),
        }
    }
    parts.transition().make_resident(target, |_| false);
    guard.add_resident(1);
    count_resident(parts, 1);
    count_new(parts, &guard, PageRange::one(target));
    note_access(parts, &guard, index, Entry::None);
    *credit = credit.saturating_sub(1);
    Ok(true)
}
