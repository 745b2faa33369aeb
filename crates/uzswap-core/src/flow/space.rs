//! *What*: the address space: map, unmap, discard, protect and the like, as bookkeeping on the
//! arena's one mapping.
//!
//! Mapping takes a range from the region map; its pages come at first touch. Unmapping drops the
//! pages and returns the range. Only protections, mappings that the program lays over a part of the
//! arena, and holes change the kernel's mappings.
//!
//! *Invariants*: a range in no live region has no contents and no pages (entries only of
//! [blocks](crate::page::block) that lie partly elsewhere), and is covered by the arena's own
//! mapping, so that it can be mapped again: at once, or when a [hole](Flags::HOLE) is mended.
//! *Locking*: op → folios (as [`super::drop`]) or the region map.
//! *Context*: worker; the caller's addresses and lengths are page aligned.

use super::drop::drop_pages;
use super::reserve::charge_regions;
use super::{codecs, evict, reclaimer};
use crate::arena::ranges::PROT_ARENA;
use crate::arena::region::{Flags, Region, RegionError};
use crate::op::OpGuard;
use crate::page::block::Entries;
use crate::page::{PAGE_SIZE, PageRange, in_arena};
use crate::parts::Parts;
use uzswap_sys::Errno;

/// Why a range could not be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// No room in the arena or in the region map: ENOMEM to the program.
    NoSpace,
    /// The range is taken, or an argument makes no sense: EINVAL to the program.
    Invalid,
    /// Part of the range is not mapped: EFAULT or ENOMEM to the program, by the call.
    NotMapped,
    /// The kernel refused.
    Kernel(Errno),
}

impl From<RegionError> for MapError {
    fn from(_: RegionError) -> Self {
        MapError::NoSpace
    }
}

/// What a fork child gets of a range in place of a copy. Each holds or does not, by itself; nothing
/// goes before zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkPolicy {
    /// Nothing: it is not mapped there.
    DontFork,
    /// Zeroes.
    Wipe,
}

/// Maps `len` bytes of fresh memory: at `hint` if that is in the arena and free, else where there
/// is room, aligned to a folio.
pub(crate) fn map(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    len: usize,
    hint: usize,
    prot: u32,
) -> Result<usize, MapError> {
    let (regions, flags) = (parts.arena.regions(), Flags::from_prot(prot));
    let addr = match in_arena(hint) && insert_free(parts, hint, len, flags) {
        true => hint,
        false => regions.reserve(len, 0, flags)?,
    };
    charge_regions(parts, op);
    if let Err(errno) = parts.arena.set_prot(&parts.pages, addr, len, prot) {
        let _ = unmap(parts, op, addr, len);
        return Err(MapError::Kernel(errno));
    }
    Ok(addr)
}

/// Gives a range to the program if nothing is mapped there.
pub(crate) fn insert_free(parts: &Parts, addr: usize, len: usize, flags: Flags) -> bool {
    let insert = || parts.arena.regions().insert_free(addr, len, flags).is_ok();
    insert() || (mend_holes(parts, addr, len) && insert())
}

/// Makes holes in a range what they were before they were touched; `false`: there are none.
fn mend_holes(parts: &Parts, addr: usize, len: usize) -> bool {
    let (regions, end) = (parts.arena.regions(), addr + len);
    let (mut at, mut mended) = (addr, false);
    while let Ok(Some(hole)) = regions.begin_mend(at, end - at) {
        at = hole.end;
        if empty_region(parts, &hole).is_ok() {
            regions.finish_unmap(hole.start, hole.len());
            mended = true;
        }
    }
    mended
}

/// A touch of a page that is not mapped ends in SIGSEGV from now on.
pub(crate) fn make_hole(parts: &Parts, op: &mut OpGuard<'_>, addr: usize) -> Result<(), Errno> {
    parts.arena.make_hole(addr)?;
    charge_regions(parts, op);
    Ok(())
}

/// Maps fresh memory exactly there, in the arena, in place of what was.
pub(crate) fn map_fixed(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    addr: usize,
    len: usize,
    prot: u32,
) -> Result<(), MapError> {
    if !in_arena(addr) || !in_arena(addr.saturating_add(len).wrapping_sub(1)) {
        return Err(MapError::Invalid);
    }
    replace(parts, op, addr, len, Flags::from_prot(prot))?;
    charge_regions(parts, op);
    parts
        .arena
        .set_prot(&parts.pages, addr, len, prot)
        .map_err(MapError::Kernel)
}

/// Changes the protection.
pub(crate) fn protect(parts: &Parts, addr: usize, len: usize, prot: u32) -> Result<(), Errno> {
    // The kernel goes as far as the first hole, then says ENOMEM.
    let hole = parts.arena.regions().first_hole(addr, len);
    let len = hole.map_or(len, |hole| hole - addr);
    if len > 0 {
        parts.arena.change_prot(&parts.pages, addr, len, prot)?;
    }
    if hole.is_some() {
        return Err(Errno::ENOMEM);
    }
    Ok(())
}

/// ENOMEM, as the kernel's advice says it, if part of the range is not mapped.
fn mapped_whole(parts: &Parts, addr: usize, len: usize) -> Result<(), Errno> {
    match parts.arena.regions().first_hole(addr, len) {
        Some(_) => Err(Errno::ENOMEM),
        None => Ok(()),
    }
}

/// Drops the contents of a range: it reads as zero.
pub(crate) fn discard(parts: &Parts, addr: usize, len: usize) -> Result<(), Errno> {
    parts.arena.regions().for_each_in(addr, len, |region| {
        if !region.flags.contains(Flags::FOREIGN) {
            // What stays reads as zero.
            let _ = drop_pages(parts, region.pages());
        }
    });
    mapped_whole(parts, addr, len)
}

/// Evicts a range now.
pub(crate) fn pageout(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    addr: usize,
    len: usize,
) -> Result<(), Errno> {
    codecs::follow_compressor(parts, op);
    evict::pageout(parts, op, PageRange::covering(addr, len));
    reclaimer::note_eviction(parts);
    mapped_whole(parts, addr, len)
}

/// Makes a range the next to be evicted.
pub(crate) fn cold(parts: &Parts, addr: usize, len: usize) -> Result<(), Errno> {
    let pages = &parts.pages;
    pages.for_each_folio(PageRange::covering(addr, len), |index, _| {
        let guard = pages.folio(index).lock();
        pages.deactivate(&guard, index);
    });
    mapped_whole(parts, addr, len)
}

/// The program has laid a mapping of its own over this range of the arena.
pub(crate) fn foreign(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    addr: usize,
    len: usize,
) -> Result<(), MapError> {
    let regions = parts.arena.regions();
    regions.insert_fixed(addr, len, Flags::FOREIGN)?;
    charge_regions(parts, op);
    Ok(())
}

/// For each page from `addr` on: 1 if it holds data, resident or stored.
pub(crate) fn residency(parts: &Parts, addr: usize, vec: &mut [u8]) -> Result<(), Errno> {
    let len = vec.len() * PAGE_SIZE;
    mapped_whole(parts, addr, len)?;
    let pages = &parts.pages;
    for (page, out) in PageRange::covering(addr, len).pages().zip(vec) {
        // A handler thread wakes its thread by the copy itself, before the entries say so.
        let _guard = pages.folio_of(page).lock();
        let has_data = pages.is_ready(page) && !pages.get(page).is_empty();
        *out = u8::from(has_data);
    }
    Ok(())
}

/// Unmaps a range; parts that are not mapped are passed over.
pub(crate) fn unmap(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    addr: usize,
    len: usize,
) -> Result<(), MapError> {
    empty(parts, addr, len, |region| {
        parts
            .arena
            .regions()
            .finish_unmap(region.start, region.len());
    })?;
    charge_regions(parts, op);
    Ok(())
}

/// Puts a fresh region in place of whatever is in its range. No other thread can map the range in
/// between: it stays dying.
pub(crate) fn replace(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    addr: usize,
    len: usize,
    flags: Flags,
) -> Result<(), MapError> {
    let inserted = loop {
        let emptied = empty(parts, addr, len, |_| {});
        match emptied.map(|()| parts.arena.regions().insert_emptied(addr, len, flags)) {
            // Another thread has mapped some of it, or touched what was not mapped.
            Ok(Err(RegionError::Taken)) => {}
            done => break done.and_then(|inserted| Ok(inserted?)),
        }
    };
    if inserted.is_err() {
        parts.arena.regions().finish_unmap(addr, len);
    }
    charge_regions(parts, op);
    inserted
}

/// Drops everything in a range, region by region, and calls `emptied` for each. The regions stay
/// dying.
fn empty(
    parts: &Parts,
    addr: usize,
    len: usize,
    emptied: impl Fn(&Region),
) -> Result<(), MapError> {
    let end = addr + len;
    let mut at = addr;
    // Each part once: a finished region may already belong to another thread.
    while let Some(region) = parts.arena.regions().begin_unmap(at, end - at)? {
        at = region.end;
        // On failure the region stays dying, and is never mapped again.
        empty_region(parts, &region).map_err(MapError::Kernel)?;
        emptied(&region);
    }
    Ok(())
}

/// Drops a dying region's contents, and restores the arena's own mapping and protection there.
fn empty_region(parts: &Parts, region: &Region) -> Result<(), Errno> {
    let (start, len) = (region.start, region.len());
    if region.flags.contains(Flags::FOREIGN) {
        return parts.arena.reclaim_foreign(start, len);
    }
    if region.flags.contains(Flags::HOLE) {
        return parts.arena.mend_hole(start, len);
    }
    drop_pages(parts, region.pages())?;
    let prot = PROT_ARENA.unsigned_abs();
    if region.flags.prot() == prot {
        return Ok(());
    }
    parts.arena.set_prot_now(&parts.pages, start, len, prot)
}
