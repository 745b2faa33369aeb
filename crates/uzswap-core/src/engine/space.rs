//! *What*: the address space: map, unmap, discard, protect, and their like, as bookkeeping on
//! the arena's one mapping.
//!
//! Mapping is taking a range from the region map; its pages come at first touch. Unmapping drops the
//! pages and gives the range back. Only protections, and mappings of the program's own that it lays
//! over a part of the arena, change the kernel's mappings.
//!
//! *Invariants*: a range in no live region has no contents and no pages (entries only of [`blocks`](super::block) that
//! lie in part elsewhere), and the arena's own mapping, so that it can be mapped again.
//! *Locking*: slot → folios (rising, at most [`HELD_FOLIOS`] at once) or the region map. A folio under
//! reclaim is waited for with no folio held.
//! *Context*: worker; the caller's addresses and lengths are page aligned.

use super::{Engine, Parts};
use crate::arena::{PAGE_SIZE, Page, PageRange, in_arena, wide};
use crate::folio::FolioGuard;
use crate::masked::Masked;
use crate::region::{ENTRY_LEN, Flags, Region, RegionError};
use crate::slot::SlotGuard;
use crate::table::Entry;
use uzswap_group::group::FailureReason;
use uzswap_sync::primitive::Ordering::Relaxed;
use uzswap_sys::Errno;
use uzswap_sys::mem::{self, MADV_DONTNEED};

/// Folios whose pages are dropped with one call.
const HELD_FOLIOS: usize = 32;
/// What fresh memory of the arena may be used for.
const PROT_ARENA: i32 = mem::PROT_READ | mem::PROT_WRITE;

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

/// What a fork child gets of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkPolicy {
    /// A copy.
    Inherit,
    /// Nothing: it is not mapped there.
    DontFork,
    /// Zeroes.
    Wipe,
}

impl Engine {
    pub(super) fn ready(&self) -> Result<&'static Parts, MapError> {
        self.parts().ok_or(MapError::NoSpace)
    }

    /// Maps `len` bytes of fresh memory, aligned to `align` (0: a folio).
    ///
    /// # Errors
    /// [`MapError::NoSpace`], [`MapError::Kernel`].
    pub fn map(
        &self,
        masked: &Masked,
        len: usize,
        align: usize,
        prot: u32,
    ) -> Result<usize, MapError> {
        let parts = self.ready()?;
        let mut slot = parts.slot(masked);
        let addr = parts.regions.reserve(len, align, Flags::from_prot(prot))?;
        parts.charge_regions(&mut slot);
        if let Err(errno) = parts.set_prot(addr, len, prot) {
            let _ = parts.unmap(&mut slot, addr, len);
            return Err(MapError::Kernel(errno));
        }
        Ok(addr)
    }

    /// Maps fresh memory exactly there, in the arena, in place of what was.
    ///
    /// # Errors
    /// [`MapError::Invalid`] outside the arena; as [`Engine::map`].
    pub fn map_fixed(
        &self,
        masked: &Masked,
        addr: usize,
        len: usize,
        prot: u32,
    ) -> Result<(), MapError> {
        let parts = self.ready()?;
        if !in_arena(addr) || !in_arena(addr.saturating_add(len).wrapping_sub(1)) {
            return Err(MapError::Invalid);
        }
        let mut slot = parts.slot(masked);
        parts.replace(&mut slot, addr, len, Flags::from_prot(prot))?;
        parts.charge_regions(&mut slot);
        parts.set_prot(addr, len, prot).map_err(MapError::Kernel)
    }

    /// Unmaps a range; parts that are not mapped are passed over.
    ///
    /// # Errors
    /// [`MapError::NoSpace`]: the region map has no room to split; [`MapError::Kernel`].
    pub fn unmap(&self, masked: &Masked, addr: usize, len: usize) -> Result<(), MapError> {
        let parts = self.ready()?;
        parts.unmap(&mut parts.slot(masked), addr, len)
    }

    /// Changes the protection.
    ///
    /// # Errors
    /// ENOMEM if part of the range is not mapped, and what the kernel says.
    pub fn protect(
        &self,
        masked: &Masked,
        addr: usize,
        len: usize,
        prot: u32,
    ) -> Result<(), Errno> {
        let parts = self.parts().ok_or(Errno::ENOMEM)?;
        let _slot = parts.slot(masked);
        // The kernel goes as far as the first hole, then says ENOMEM.
        let hole = parts.regions.first_hole(addr, len);
        let len = hole.map_or(len, |hole| hole - addr);
        if len > 0 {
            parts.change_prot(addr, len, prot)?;
        }
        if hole.is_some() {
            return Err(Errno::ENOMEM);
        }
        Ok(())
    }

    /// Drops the contents of a range: it reads as zero.
    ///
    /// # Errors
    /// ENOMEM if part of the range is not mapped; the rest is dropped.
    pub fn discard(&self, masked: &Masked, addr: usize, len: usize) -> Result<(), Errno> {
        let parts = self.parts().ok_or(Errno::ENOMEM)?;
        let _slot = parts.slot(masked);
        parts.regions.for_each_in(addr, len, |region| {
            if !region.flags.contains(Flags::FOREIGN) {
                // What stays reads as zero.
                let _ = parts.drop_pages(covering(&region));
            }
        });
        match parts.regions.first_hole(addr, len) {
            Some(_) => Err(Errno::ENOMEM),
            None => Ok(()),
        }
    }

    /// Evicts a range now.
    ///
    /// # Errors
    /// ENOMEM if part of the range is not mapped.
    pub fn pageout(&self, masked: &Masked, addr: usize, len: usize) -> Result<(), Errno> {
        let parts = self.parts().ok_or(Errno::ENOMEM)?;
        parts.pageout(&mut parts.slot(masked), PageRange::covering(addr, len));
        match parts.regions.first_hole(addr, len) {
            Some(_) => Err(Errno::ENOMEM),
            None => Ok(()),
        }
    }

    /// Makes a range the next to be evicted.
    ///
    /// # Errors
    /// ENOMEM if part of the range is not mapped.
    pub fn cold(&self, masked: &Masked, addr: usize, len: usize) -> Result<(), Errno> {
        let parts = self.parts().ok_or(Errno::ENOMEM)?;
        let _slot = parts.slot(masked);
        parts.for_each_folio(PageRange::covering(addr, len), |index, _| {
            let guard = parts.folios.at(index).lock();
            parts.lru.deactivate(&parts.folios, &guard, index);
        });
        match parts.regions.first_hole(addr, len) {
            Some(_) => Err(Errno::ENOMEM),
            None => Ok(()),
        }
    }

    /// The program has laid a mapping of its own over this range of the arena, after
    /// [`Engine::unmap`]: it is left alone until it is unmapped.
    pub fn foreign(&self, masked: &Masked, addr: usize, len: usize) -> Result<(), MapError> {
        let parts = self.ready()?;
        let mut slot = parts.slot(masked);
        parts.regions.insert_fixed(addr, len, Flags::FOREIGN)?;
        parts.charge_regions(&mut slot);
        Ok(())
    }

    /// What fork children get of a range.
    pub fn fork_policy(&self, masked: &Masked, addr: usize, len: usize, policy: ForkPolicy) {
        let flags = match policy {
            ForkPolicy::Inherit => Flags::NONE,
            ForkPolicy::DontFork => Flags::DONT_FORK,
            ForkPolicy::Wipe => Flags::WIPE_ON_FORK,
        };
        if let Some(parts) = self.parts() {
            let _slot = parts.slot(masked);
            let _ = parts.regions.set_flags(addr, len, Flags::FORK, flags);
        }
    }

    /// For each page of `[addr, addr + 4096 * vec.len())`: 1 if it holds data, resident or stored.
    ///
    /// # Errors
    /// ENOMEM if part of the range is not mapped.
    pub fn residency(&self, masked: &Masked, addr: usize, vec: &mut [u8]) -> Result<(), Errno> {
        let parts = self.parts().ok_or(Errno::ENOMEM)?;
        let _slot = parts.slot(masked);
        let len = vec.len() * PAGE_SIZE;
        if parts.regions.first_hole(addr, len).is_some() {
            return Err(Errno::ENOMEM);
        }
        for (page, out) in PageRange::covering(addr, len).pages().zip(vec) {
            // A handler thread wakes its thread by the copy itself, before the entries say so.
            let _guard = parts.folios.of(page).lock();
            let holds = parts.table.is_ready(page) && !parts.table.get(page).is_empty();
            *out = u8::from(holds);
        }
        Ok(())
    }

    /// Whether all of a range is mapped and ours, with which flags at its start.
    #[must_use]
    pub fn region(&self, addr: usize) -> Option<Region> {
        self.parts()?.regions.lookup(addr)
    }
}

fn covering(region: &Region) -> PageRange {
    PageRange::covering(region.start, region.end - region.start)
}

impl Parts {
    /// Charges what the region map has grown by.
    fn charge_regions(&self, slot: &mut SlotGuard<'_>) {
        let pages = wide((self.regions.nr_regions() * ENTRY_LEN).div_ceil(PAGE_SIZE));
        let charged = self.region_pages.fetch_max(pages, Relaxed);
        if pages > charged {
            let grown = pages - charged;
            // The map has grown already; room for it is made now.
            if !self.reserve_pages(slot, grown) {
                self.charge.charge_unchecked(grown);
            }
            self.metadata.fetch_add(grown, Relaxed);
        }
    }

    /// Gives fresh arena memory its protection, unless it is what the arena has anyway.
    pub(super) fn set_prot(&self, addr: usize, len: usize, prot: u32) -> Result<(), Errno> {
        if prot == PROT_ARENA.unsigned_abs() {
            return Ok(());
        }
        self.set_prot_now(addr, len, prot)
    }

    /// Changes the protection of a range, nowhere unmapped, so that a reclaimer never reads what the kernel lets
    /// nobody read: the region map says that it is readable later than the kernel, and not so sooner.
    fn change_prot(&self, addr: usize, len: usize, prot: u32) -> Result<(), Errno> {
        let _turn = self.protecting.lock();
        let in_map = || {
            let done = self.regions.set_prot(addr, len, prot);
            done.map_err(|_| Errno::ENOMEM)
        };
        let readable = prot & mem::PROT_READ.unsigned_abs() != 0;
        if readable && !self.prot_follows() {
            self.set_prot_now(addr, len, prot)?;
            return in_map();
        }
        in_map()?;
        if !readable {
            // From here on no reclaimer starts to read it; one that does is waited for.
            self.wait_reclaim(PageRange::covering(addr, len));
        }
        self.set_prot_now(addr, len, prot)
    }

    pub(super) fn unmap(
        &self,
        slot: &mut SlotGuard<'_>,
        addr: usize,
        len: usize,
    ) -> Result<(), MapError> {
        self.empty(addr, len, |region| {
            self.regions.finish_unmap(region.start, region.len());
        })?;
        self.charge_regions(slot);
        Ok(())
    }

    /// Puts a fresh region in place of whatever is in its range, which is nobody else's in between.
    pub(super) fn replace(
        &self,
        slot: &mut SlotGuard<'_>,
        addr: usize,
        len: usize,
        flags: Flags,
    ) -> Result<(), MapError> {
        let emptied = self.empty(addr, len, |_| {});
        let inserted = emptied.and_then(|()| Ok(self.regions.insert_fixed(addr, len, flags)?));
        if inserted.is_err() {
            self.regions.finish_unmap(addr, len);
        }
        self.charge_regions(slot);
        inserted
    }

    /// Drops everything in a range, region by region, and leaves it dying; tells `emptied` of each.
    fn empty(&self, addr: usize, len: usize, emptied: impl Fn(&Region)) -> Result<(), MapError> {
        let end = addr + len;
        let mut at = addr;
        // Each part once: what was finished may be another thread's by now.
        while let Some(region) = self.regions.begin_unmap(at, end - at)? {
            at = region.end;
            if region.flags.contains(Flags::FOREIGN) {
                self.reclaim_foreign(region.start, region.len())
                    .map_err(MapError::Kernel)?;
            } else {
                // What cannot be dropped stays nobody's: left dying, it is never mapped again.
                self.drop_pages(covering(&region))
                    .map_err(MapError::Kernel)?;
                if region.flags.prot() != PROT_ARENA.unsigned_abs() {
                    self.set_prot_now(region.start, region.len(), PROT_ARENA.unsigned_abs())
                        .map_err(MapError::Kernel)?;
                }
            }
            emptied(&region);
        }
        Ok(())
    }

    /// Puts the arena's own mapping back where the program had one of its own.
    fn reclaim_foreign(&self, addr: usize, len: usize) -> Result<(), Errno> {
        // SAFETY: the region map says that the program's own mapping lies exactly there, and the
        // program is unmapping it.
        unsafe {
            mem::mmap(
                addr,
                len,
                self.mapping.prot(),
                mem::MAP_PRIVATE | mem::MAP_ANONYMOUS | mem::MAP_NORESERVE | mem::MAP_FIXED,
                -1,
                0,
            )
        }?;
        self.mapping.adopt(addr, len)
    }

    /// Calls `f` with each folio of `range` whose entries may be touched, and its part of `range`.
    pub(crate) fn for_each_folio(&self, range: PageRange, mut f: impl FnMut(u32, PageRange)) {
        let mut at = range.start;
        while let Some(page) = self.table.next_ready(at).filter(|&page| page < range.end) {
            let index = self.folios.index_of(Page::from_index(page));
            let folio = self.folios.range(index);
            f(index, folio.and(range));
            at = folio.end;
        }
    }

    /// Waits until no reclaimer is reading any page of `range`.
    fn wait_reclaim(&self, range: PageRange) {
        self.for_each_folio(range, |index, _| {
            let folio = self.folios.at(index);
            // Under the lock: whoever isolated it before is seen, whoever does so after sees what the
            // region map says now.
            if folio.lock().cancel_reclaim() {
                folio.wait_reclaim();
            }
        });
    }

    /// Drops all contents of `range`, wherever they are.
    ///
    /// # Errors
    /// ENOMEM: the kernel had no mapping left to close some pages with; those stay resident, full of zeroes.
    pub(crate) fn drop_pages(&self, range: PageRange) -> Result<(), Errno> {
        let mut kept = false;
        let mut held = HeldFolios {
            parts: self,
            range: PageRange { start: 0, end: 0 },
            nr: 0,
            dropped: 0,
            must_zero: false,
        };
        self.for_each_folio(range, |index, part| {
            let folio = self.folios.at(index);
            let guard = loop {
                let guard = folio.lock();
                if !guard.cancel_reclaim() {
                    break guard;
                }
                drop(guard);
                held.flush();
                folio.wait_reclaim();
            };
            kept |= !held.add(index, part, guard);
        });
        held.flush();
        self.publish_sizes();
        if kept { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    /// Empties the entries of `part`, but for those of resident pages that are `kept`. Returns how many pages were resident.
    fn clear_entries(
        &self,
        index: u32,
        part: PageRange,
        guard: &FolioGuard<'_>,
        kept: bool,
    ) -> usize {
        let mut resident = 0;
        for page in part.pages() {
            let entry = self.table.get(page);
            if entry == Entry::None || (kept && entry == Entry::Resident) {
                continue;
            }
            if entry.in_block() {
                let block = self.block_of(page);
                if block.and(part) != block {
                    self.drop_from_block(page, entry);
                    continue;
                }
            }
            self.table.set(page, Entry::None);
            self.forget(entry);
            self.forget_copy(page);
            resident += usize::from(entry == Entry::Resident);
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a folio has 512 pages at most"
        )]
        guard.sub_resident(resident as u16);
        if resident > 0 && guard.nr_resident() == 0 {
            self.lru.remove(&self.folios, guard, index);
        }
        resident
    }
}

/// Folios that are held while their pages are dropped with one call.
struct HeldFolios<'a> {
    parts: &'a Parts,
    range: PageRange,
    nr: usize,
    dropped: usize,
    /// Some of their resident pages stay.
    must_zero: bool,
}

impl HeldFolios<'_> {
    /// Adds a folio that lies right of those held, or drops those first. `false`: its resident pages stay.
    fn add(&mut self, index: u32, part: PageRange, guard: FolioGuard<'_>) -> bool {
        if self.nr > 0 && (self.range.end != part.start || self.nr == HELD_FOLIOS) {
            self.flush();
        }
        let closed = guard.nr_resident() == 0 || self.parts.close(part);
        let resident = self.parts.clear_entries(index, part, &guard, !closed);
        if self.nr == 0 {
            self.range = part;
        } else {
            self.range.end = part.end;
        }
        self.nr += 1;
        self.dropped += resident;
        self.must_zero |= !closed;
        // Let go of in `flush`, when the pages are gone.
        core::mem::forget(guard);
        closed
    }

    fn flush(&mut self) {
        if self.nr == 0 {
            return;
        }
        let parts = self.parts;
        if self.dropped > 0 || self.must_zero {
            let (addr, len) = (self.range.addr(), self.range.bytes());
            // SAFETY: arena memory whose contents the program gives up; its folios are held.
            let done = unsafe { mem::madvise(addr, len, MADV_DONTNEED) };
            if let Err(errno) = done {
                parts.die(FailureReason::Internal, errno.0.unsigned_abs(), 0);
            }
            parts.count_dropped(self.dropped);
            parts.charge.uncharge(wide(self.dropped));
        }
        let first = parts.folios.index_of(Page::from_index(self.range.start));
        for step in 0..self.nr {
            #[expect(clippy::cast_possible_truncation, reason = "at most HELD_FOLIOS")]
            let index = first + step as u32;
            // SAFETY: locked by `add` on this thread, its guard forgotten.
            drop(unsafe { parts.folios.at(index).held() });
        }
        self.nr = 0;
        self.dropped = 0;
        self.must_zero = false;
    }
}
