//! *What*: the region map: which ranges of the arena the program has mapped, with which protection
//! and fork policy, and where there is room. It is to the arena what the VMA tree is to the kernel;
//! pages and their contents are the page table's business.
//!
//! *Invariants*
//! - Entries are sorted, do not overlap, and are never empty.
//! - Adjacent entries with equal flags are one entry, except dying ones: a dying entry belongs to
//!   the caller that marked it, and stays apart, so that removing it never needs room in the table.
//! - No aligned gap begins below `open_from`, so a search may begin there.
//!
//! *Locking*: one leaf lock inside, held for a single operation and never while a caller's closure
//! runs. Sequences of operations (look up, drop pages, remove) are not atomic; the dying mark keeps
//! a range from being reused meanwhile.
//! *Context*: signal, worker, init.

mod flags;

use crate::page::PageRange;
use uzswap_sync::lock::{Lock, LockGuard};
use uzswap_sys::{PAGE_SHIFT, PAGE_SIZE};

pub use flags::Flags;

/// Requests of this many bytes or more are aligned to as much. mimalloc takes segments and arenas
/// of this size and alignment: aligned at the first try, it need not map twice as much and trim.
pub const LARGE_ALIGN: usize = 32 << 20;

/// A range of the arena, [`start`](Self::start) to [`end`](Self::end) exclusive,
/// page aligned and never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: usize,
    /// First address after it.
    pub end: usize,
    /// Its properties.
    pub flags: Flags,
}

impl Region {
    /// Bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub const fn len(&self) -> usize {
        self.end - self.start
    }

    /// Its pages.
    #[must_use]
    pub fn pages(&self) -> PageRange {
        PageRange::covering(self.start, self.len())
    }
}

/// Why the map could not be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionError {
    /// No gap is large enough, or the range is not inside the arena.
    NoSpace,
    /// The table has no entry left; the kernel answers ENOMEM past
    /// `vm.max_map_count` likewise.
    TableFull,
    /// Part of the range is taken.
    Taken,
}

/// A region in the table: page numbers counted from the arena's base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Entry {
    start: u32,
    end: u32,
    flags: Flags,
}

/// Bytes of metadata memory that one region takes.
pub const ENTRY_LEN: usize = size_of::<Entry>();

/// The regions of one arena.
#[derive(Debug)]
pub struct RegionMap {
    table: Lock<Table>,
}

/// The map, held by [`RegionMap::hold`] until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Held<'a> {
    _table: LockGuard<'a, Table>,
}

#[derive(Debug)]
struct Table {
    /// `capacity` entries, the first `nr` of them in use.
    entries: *mut Entry,
    nr: usize,
    capacity: usize,
    base: usize,
    nr_pages: u32,
    /// Default alignment in pages, a power of two.
    align: u32,
    /// See the module's invariants.
    open_from: u32,
}

// SAFETY: the table's memory belongs to it alone (`RegionMap::init`), so it may
// be used from whichever thread holds the lock.
unsafe impl Send for Table {}

impl RegionMap {
    /// A map of nothing: every lookup says unmapped until [`init`](Self::init).
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            table: Lock::new(Table::new()),
        }
    }

    /// A map of nothing: every lookup says unmapped until [`init`](Self::init).
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self {
            table: Lock::new(Table::new()),
        }
    }

    /// Maps the arena `[base, base + len)`, all of it free. `default_align` is the
    /// alignment of a reservation that asks for less, bytes, a power of two (the
    /// folio size); `len` is at most 16 TiB.
    ///
    /// # Safety
    /// `entries` points to `capacity * ENTRY_LEN` bytes, aligned to 4, that nobody
    /// else uses as long as the map lives. They are touched as regions come.
    pub unsafe fn init(
        &self,
        base: usize,
        len: usize,
        default_align: usize,
        entries: *mut u8,
        capacity: usize,
    ) {
        let mut t = self.table.lock();
        *t = Table {
            entries: entries.cast(),
            nr: 0,
            capacity,
            base,
            nr_pages: pages(len),
            align: pages(default_align).max(1),
            open_from: 0,
        };
    }

    /// Takes the lowest gap of `len` bytes aligned to `align` (or to the default,
    /// or to [`LARGE_ALIGN`] for large ones, whichever is most) and maps it.
    /// `len` is page aligned and not 0, `align` 0 or a power of two.
    pub fn reserve(&self, len: usize, align: usize, flags: Flags) -> Result<usize, RegionError> {
        let mut t = self.table.lock();
        let large = if len >= LARGE_ALIGN { LARGE_ALIGN } else { 0 };
        if len == 0 || len > t.len() || align > t.len() {
            return Err(RegionError::NoSpace);
        }
        let align = pages(align.max(large)).max(t.align);
        let (start, open) = t.find_gap(pages(len), align).ok_or(RegionError::NoSpace)?;
        t.replace(start, start + pages(len), Some(flags))?;
        t.open_from = open;
        Ok(t.addr(start))
    }

    /// Maps exactly `[addr, addr + len)` in place of whatever is there; the caller
    /// has dropped the pages of what it replaces.
    pub fn insert_fixed(&self, addr: usize, len: usize, flags: Flags) -> Result<(), RegionError> {
        let mut t = self.table.lock();
        let (start, end) = t.span(addr, len).ok_or(RegionError::NoSpace)?;
        t.replace(start, end, Some(flags))
    }

    /// [`insert_fixed`](Self::insert_fixed), if nothing is there but what is dying.
    pub fn insert_emptied(&self, addr: usize, len: usize, flags: Flags) -> Result<(), RegionError> {
        let is_left = |flags: Flags| !flags.contains(Flags::DYING);
        self.insert_unless(addr, len, flags, is_left)
    }

    /// Maps exactly `[addr, addr + len)` if all of it is free, and no [hole](Flags::HOLE): growing
    /// in place, hints.
    pub fn insert_free(&self, addr: usize, len: usize, flags: Flags) -> Result<(), RegionError> {
        self.insert_unless(addr, len, flags, |_| true)
    }

    fn insert_unless(
        &self,
        addr: usize,
        len: usize,
        flags: Flags,
        is_taken: impl Fn(Flags) -> bool,
    ) -> Result<(), RegionError> {
        let mut t = self.table.lock();
        let (start, end) = t.span(addr, len).ok_or(RegionError::NoSpace)?;
        if t.next(start, end, is_taken).is_some() {
            return Err(RegionError::Taken);
        }
        t.replace(start, end, Some(flags))
    }

    /// Marks the first part of `[addr, addr + len)` that is live or a hole dying and returns it
    /// with its former flags; `None`: there is none. The caller drops the
    /// pages of the part, then [`finish_unmap`](Self::finish_unmap)s it (or inserts
    /// over it), and goes on behind it: a part that was finished may be mapped
    /// again by somebody else. Two callers never get the same part.
    pub fn begin_unmap(&self, addr: usize, len: usize) -> Result<Option<Region>, RegionError> {
        self.begin(addr, len, |flags| !flags.contains(Flags::DYING))
    }

    /// [`begin_unmap`](Self::begin_unmap) for holes alone.
    pub fn begin_mend(&self, addr: usize, len: usize) -> Result<Option<Region>, RegionError> {
        self.begin(addr, len, |flags| {
            flags.contains(Flags::HOLE) && !flags.contains(Flags::DYING)
        })
    }

    fn begin(
        &self,
        addr: usize,
        len: usize,
        is_wanted: impl Fn(Flags) -> bool,
    ) -> Result<Option<Region>, RegionError> {
        let mut t = self.table.lock();
        let Some((start, end)) = t.clip(addr, len) else {
            return Ok(None);
        };
        let Some(part) = t.next(start, end, is_wanted) else {
            return Ok(None);
        };
        t.replace(part.start, part.end, Some(part.flags.with(Flags::DYING)))?;
        Ok(Some(t.region(part)))
    }

    /// Frees the dying parts of `[addr, addr + len)` for reuse.
    pub fn finish_unmap(&self, addr: usize, len: usize) {
        let mut t = self.table.lock();
        let Some((mut start, end)) = t.clip(addr, len) else {
            return;
        };
        while let Some((_, e)) = t.first_from(start).filter(|(_, e)| e.start < end) {
            let (s, stop) = (e.start.max(start), e.end.min(end));
            if e.flags.contains(Flags::DYING) {
                // Cannot fail: a dying entry is never larger than what its owner
                // marked, so it goes as a whole or shrinks, and both take no entry.
                let _ = t.replace(s, stop, None);
            }
            start = stop;
        }
    }

    /// Replaces, on every live region in `[addr, addr + len)`, the flags in `mask`
    /// by those in `value`. Holes are skipped.
    pub fn set_flags(
        &self,
        addr: usize,
        len: usize,
        mask: Flags,
        value: Flags,
    ) -> Result<(), RegionError> {
        let mut t = self.table.lock();
        let Some((mut start, end)) = t.clip(addr, len) else {
            return Ok(());
        };
        while let Some(live) = t.next_live(start, end) {
            let flags = live.flags.without(mask).with(value.common(mask));
            if flags != live.flags {
                t.replace(live.start, live.end, Some(flags))?;
            }
            start = live.end;
        }
        Ok(())
    }

    /// [`set_flags`](Self::set_flags) for the protection.
    pub fn set_prot(&self, addr: usize, len: usize, prot: u32) -> Result<(), RegionError> {
        self.set_flags(addr, len, Flags::PROT, Flags::from_prot(prot))
    }

    /// The live region that holds `addr`.
    #[inline]
    #[must_use]
    pub fn lookup(&self, addr: usize) -> Option<Region> {
        let t = self.table.lock();
        let page = t.page(addr)?;
        let (_, e) = t.first_from(page)?;
        (e.start <= page && e.flags.is_live()).then(|| t.region(e))
    }

    /// The first live region in `[addr, addr + len)`, clipped to it.
    #[must_use]
    pub fn next_in(&self, addr: usize, len: usize) -> Option<Region> {
        let t = self.table.lock();
        let (start, end) = t.clip(addr, len)?;
        t.next_live(start, end).map(|e| t.region(e))
    }

    /// The first part of `[addr, addr + len)` where the kernel has not the arena's own mapping.
    #[must_use]
    pub fn next_other(&self, addr: usize, len: usize) -> Option<Region> {
        let t = self.table.lock();
        let (start, end) = t.clip(addr, len)?;
        let is_other = |flags: Flags| flags.contains(Flags::FOREIGN) || flags.contains(Flags::HOLE);
        t.next(start, end, is_other).map(|e| t.region(e))
    }

    /// Calls `f` with each live region in `[addr, addr + len)`, clipped to it, lowest first. The
    /// lock is not held while `f` runs: `f` may change the map, as may others.
    pub fn for_each_in(&self, addr: usize, len: usize, mut f: impl FnMut(Region)) {
        let end = addr.saturating_add(len);
        let mut at = addr;
        while let Some(region) = self.next_in(at, end - at) {
            at = region.end;
            f(region);
        }
    }

    /// The lowest address in `[addr, addr + len)` that no live region holds: where
    /// the kernel would stop with ENOMEM.
    #[must_use]
    pub fn first_hole(&self, addr: usize, len: usize) -> Option<usize> {
        let t = self.table.lock();
        let Some((start, end)) = t.span(addr, len) else {
            return Some(addr);
        };
        let mut at = start;
        while at < end {
            match t.next_live(at, end) {
                Some(e) if e.start == at => at = e.end,
                _ => return Some(t.addr(at)),
            }
        }
        None
    }

    /// Locks the map, so that a fork child inherits it in a consistent state.
    pub fn hold(&self) -> Held<'_> {
        Held {
            _table: self.table.lock(),
        }
    }

    /// Bytes of the arena that no region holds.
    #[must_use]
    pub fn free_space(&self) -> usize {
        let t = self.table.lock();
        let taken: usize = t.entries().iter().map(|e| t.region(*e).len()).sum();
        t.len() - taken
    }

    /// Entries in use.
    #[must_use]
    pub fn nr_regions(&self) -> usize {
        self.table.lock().nr
    }
}

impl Default for RegionMap {
    fn default() -> Self {
        Self::new()
    }
}

impl Table {
    const fn new() -> Self {
        Self {
            entries: core::ptr::null_mut(),
            nr: 0,
            capacity: 0,
            base: 0,
            nr_pages: 0,
            align: 1,
            open_from: 0,
        }
    }

    fn entries(&self) -> &[Entry] {
        if self.nr == 0 {
            return &[];
        }
        // SAFETY: `init` gave `capacity` entries to this table alone; the first
        // `nr <= capacity` have been written by `replace`.
        unsafe { core::slice::from_raw_parts(self.entries, self.nr) }
    }

    fn len(&self) -> usize {
        bytes(self.nr_pages)
    }

    fn addr(&self, page: u32) -> usize {
        self.base + bytes(page)
    }

    fn region(&self, e: Entry) -> Region {
        Region {
            start: self.addr(e.start),
            end: self.addr(e.end),
            flags: e.flags,
        }
    }

    /// Page number of an address inside the arena.
    fn page(&self, addr: usize) -> Option<u32> {
        let offset = addr.checked_sub(self.base)?;
        (offset < self.len()).then(|| pages(offset))
    }

    /// Page numbers of a range that lies inside the arena.
    fn span(&self, addr: usize, len: usize) -> Option<(u32, u32)> {
        let offset = addr.checked_sub(self.base)?;
        let end = offset.checked_add(len)?;
        (len > 0 && end <= self.len()).then(|| (pages(offset), pages(end)))
    }

    /// Page numbers of the part of a range that lies inside the arena.
    fn clip(&self, addr: usize, len: usize) -> Option<(u32, u32)> {
        let end = addr.saturating_add(len).min(self.base + self.len());
        let start = addr.max(self.base);
        (start < end).then(|| (pages(start - self.base), pages(end - self.base)))
    }

    /// The entry that holds `page`, else the next one above it.
    fn first_from(&self, page: u32) -> Option<(usize, Entry)> {
        let i = self.entries().partition_point(|e| e.end <= page);
        self.entries().get(i).map(|e| (i, *e))
    }

    /// The first live entry in `[start, end)`, clipped.
    fn next_live(&self, start: u32, end: u32) -> Option<Entry> {
        self.next(start, end, Flags::is_live)
    }

    /// The first entry in `[start, end)` whose flags are wanted, clipped.
    fn next(&self, start: u32, end: u32, is_wanted: impl Fn(Flags) -> bool) -> Option<Entry> {
        // An empty range inside an entry would clip to nothing for ever.
        if start >= end {
            return None;
        }
        let (i, _) = self.first_from(start)?;
        self.entries()
            .get(i..)?
            .iter()
            .take_while(|e| e.start < end)
            .find(|e| is_wanted(e.flags))
            .map(|e| Entry {
                start: e.start.max(start),
                end: e.end.min(end),
                flags: e.flags,
            })
    }

    /// The lowest aligned gap of `len` pages, and what `open_from` is once that
    /// gap has been taken.
    fn find_gap(&self, len: u32, align: u32) -> Option<(u32, u32)> {
        let (first, _) = self.first_from(self.open_from).unwrap_or((self.nr, EMPTY));
        let mut from = self.open_from;
        let mut open = None;
        let above = self.entries().get(first..).unwrap_or(&[]);
        let last = Entry {
            start: self.nr_pages,
            ..EMPTY
        };
        for e in above.iter().chain(core::iter::once(&last)) {
            let gap = align_up(from, self.align);
            if open.is_none() && gap < e.start {
                open = Some(gap);
            }
            let start = align_up(from, align);
            if start.checked_add(len).is_some_and(|end| end <= e.start) {
                let open = match open {
                    Some(open) if open < start => open,
                    _ => align_up(start + len, self.align),
                };
                return Some((start, open));
            }
            from = e.end;
        }
        None
    }

    /// Gives `[start, end)` to one entry with `flags`, or to none: the one place
    /// where the table changes. Needs at most two entries more.
    fn replace(&mut self, start: u32, end: u32, flags: Option<Flags>) -> Result<(), RegionError> {
        let entries = self.entries();
        let mut lo = entries.partition_point(|e| e.end <= start);
        let mut hi = entries.partition_point(|e| e.start < end);
        let overlapped = entries.get(lo..hi).unwrap_or(&[]);
        let mut left = overlapped
            .first()
            .filter(|e| e.start < start)
            .map(|e| Entry { end: start, ..*e });
        let mut right = overlapped
            .last()
            .filter(|e| e.end > end)
            .map(|e| Entry { start: end, ..*e });
        let mut new = flags.map(|flags| Entry { start, end, flags });
        if let Some(new) = new.as_mut().filter(|e| !e.flags.contains(Flags::DYING)) {
            let before = left.or_else(|| lo.checked_sub(1).and_then(|i| entries.get(i)).copied());
            if let Some(e) = before.filter(|e| e.end == start && e.flags == new.flags) {
                new.start = e.start;
                if left.take().is_none() {
                    lo -= 1;
                }
            }
            let after = right.or_else(|| entries.get(hi).copied());
            if let Some(e) = after.filter(|e| e.start == end && e.flags == new.flags) {
                new.end = e.end;
                if right.take().is_none() {
                    hi += 1;
                }
            }
        }
        let nr_new = [&left, &new, &right].iter().filter(|e| e.is_some()).count();
        let nr = self.nr - (hi - lo) + nr_new;
        if nr > self.capacity {
            return Err(RegionError::TableFull);
        }
        // SAFETY: `lo <= hi <= self.nr` and `nr <= capacity`, so source and
        // destination lie in the table's memory, which `init` made ours alone;
        // `ptr::copy` allows the overlap, and every entry below `nr` that the move
        // does not fill is written in the loop.
        unsafe {
            core::ptr::copy(
                self.entries.add(hi),
                self.entries.add(lo + nr_new),
                self.nr - hi,
            );
            for (i, e) in [left, new, right].into_iter().flatten().enumerate() {
                self.entries.add(lo + i).write(e);
            }
        }
        self.nr = nr;
        if flags.is_none() {
            self.open_from = self.open_from.min(start);
        }
        Ok(())
    }
}

const EMPTY: Entry = Entry {
    start: 0,
    end: 0,
    flags: Flags::NONE,
};

#[allow(
    clippy::cast_possible_truncation,
    reason = "callers pass offsets into an arena of at most 16 TiB: 2^32 pages"
)]
const fn pages(bytes: usize) -> u32 {
    (bytes >> PAGE_SHIFT) as u32
}

const fn bytes(pages: u32) -> usize {
    pages as usize * PAGE_SIZE
}

/// Saturates above the last multiple: no gap starts there.
const fn align_up(page: u32, align: u32) -> u32 {
    page.saturating_add(align - 1) & !(align - 1)
}

#[cfg(all(test, not(loom)))]
mod tests;
