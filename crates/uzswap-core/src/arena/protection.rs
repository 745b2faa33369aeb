//! *What*: the arena without userfaultfd. An absent page is closed (`PROT_NONE`), so that a touch
//! raises SIGSEGV; a write-protected one is read-only.
//!
//! A closed page gets its contents through `/proc/self/mem`, which ignores protection, and is
//! opened after that: no other thread ever sees half of it. Every change of protection splits a
//! mapping or joins two, and a process has few (`vm.max_map_count`). Hence larger limits bring in
//! more pages together ([`granule`]), and folios are at least as large.
//!
//! *Invariants*
//! - A page that is not resident is closed and has no memory: opened, it would read as zeroes.
//! - A resident page is open as the region map says; read-only while a reclaimer has isolated it;
//!   or in either state if its folio is `PROT_STALE`, because no mapping was left. Then a fault on
//!   it, or a pin, opens it; reclaim passes it over.
//! - Opening a page of an isolated folio cancels its reclaim.
//!
//! *Locking*: the folio is held while pages are opened or closed; they are made read-only under
//! `RECLAIM`. The region map is read under the folio's lock, so whoever changes it opens the
//! resident pages again afterwards. *Context*: as the engine's.

use crate::arena::Arena;
use crate::arena::region::Flags;
use crate::page::batch::{Batch, BatchFolio};
use crate::page::folio::{FolioGuard, PROT_STALE};
use crate::page::{Entry, PAGE_SIZE, Page, PageRange, Pages, narrow, wide};
use crate::start_error::{StartError, StartStep, failed};
use uzswap_sys::mem::{MADV_DONTNEED, PROT_NONE, PROT_READ};
use uzswap_sys::uffd::CopyError;
use uzswap_sys::{Errno, file, mem};

/// Maximum granules in the limit: with as many gaps between them they take half of the mappings
/// that a process may have by default (65530).
const MAX_GRANULES: u64 = 1 << 14;

/// Pages of the largest granule: the largest folio.
const MAX_GRANULE_PAGES: u64 = 512;

/// [`Mapping::granule`](super::mapping::Mapping::granule) under a limit of `limit` pages.
pub(crate) fn granule(limit: u64) -> usize {
    let least = limit.div_ceil(MAX_GRANULES).next_power_of_two();
    narrow(least.min(MAX_GRANULE_PAGES))
}

/// Opens this process's memory as a file, and tests that it can write to closed pages.
pub(crate) fn open_memory() -> Result<i32, StartError> {
    let error = |errno| failed(StartStep::Memory, errno);
    let flags = file::O_RDWR | file::O_CLOEXEC;
    let fd = file::openat(file::AT_FDCWD, c"/proc/self/mem", flags, 0).map_err(error)?;
    match test_write(fd) {
        Ok(()) => Ok(fd),
        Err(errno) => {
            let _ = file::close(fd);
            Err(error(errno))
        }
    }
}

fn test_write(fd: i32) -> Result<(), Errno> {
    let flags = mem::MAP_PRIVATE | mem::MAP_ANONYMOUS | mem::MAP_NORESERVE;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let addr = unsafe { mem::mmap(0, PAGE_SIZE, PROT_NONE, flags, -1, 0) }?;
    let written = file::pwrite(fd, &[1], wide(addr));
    // SAFETY: the mapping made just now.
    let _ = unsafe { mem::munmap(addr, PAGE_SIZE) };
    match written? {
        0 => Err(Errno::EIO),
        _ => Ok(()),
    }
}

/// Sets the protection of arena pages; `false`: the process has no mapping left for it.
pub(crate) fn protect(range: PageRange, prot: i32) -> bool {
    // SAFETY: arena memory. It becomes unreadable only where no reclaimer reads it: its folio is
    // held and not isolated by another, or the caller has waited for those that isolated it.
    unsafe { mem::mprotect(range.addr(), range.bytes(), prot) }.is_ok()
}

/// Calls `f` with each run of adjacent pages; `pages` are in rising order.
fn for_each_run(pages: impl Iterator<Item = Page>, mut f: impl FnMut(PageRange)) {
    let mut run: Option<PageRange> = None;
    for page in pages {
        match &mut run {
            Some(run) if run.end == page.index() => run.end += 1,
            _ => {
                if let Some(done) = run.replace(PageRange::one(page)) {
                    f(done);
                }
            }
        }
    }
    if let Some(done) = run {
        f(done);
    }
}

impl Arena {
    /// [`Arena::install`] by protection.
    ///
    /// # Safety
    /// As for [`Arena::install`].
    pub(crate) unsafe fn fill_and_open(
        &self,
        memory: i32,
        guard: &FolioGuard<'_>,
        addr: usize,
        source: Option<*const u8>,
        len: usize,
    ) -> Result<usize, CopyError> {
        let mut done = 0;
        while let Some(source) = source.filter(|_| done < len) {
            // SAFETY: the caller's promise.
            let data = unsafe { core::slice::from_raw_parts(source.add(done), len - done) };
            match file::pwrite(memory, data, wide(addr + done)) {
                Ok(nr) if nr > 0 => done += nr,
                Err(Errno::EINTR) => {}
                other => {
                    // Absent pages have no memory.
                    // SAFETY: closed pages of the arena that no entry calls resident.
                    let _ = unsafe { mem::madvise(addr, len, MADV_DONTNEED) };
                    return Err(CopyError {
                        copied: 0,
                        errno: other.err().unwrap_or(Errno::EIO),
                    });
                }
            }
        }
        self.open(guard, PageRange::covering(addr, len));
        Ok(len)
    }

    /// Opens pages, resident or about to be, as the region map says. `false`: no mapping was left,
    /// and the folio is `PROT_STALE`.
    pub(crate) fn open(&self, guard: &FolioGuard<'_>, range: PageRange) -> bool {
        let mut opened = true;
        self.regions
            .for_each_in(range.addr(), range.bytes(), |region| {
                if !region.flags.contains(Flags::FOREIGN) {
                    opened &= protect(region.pages(), region.flags.prot().cast_signed());
                }
            });
        if !opened {
            guard.set(PROT_STALE);
        }
        opened
    }

    /// Opens the resident pages of a folio. Its reclaim, if any, is cancelled already.
    pub(crate) fn open_folio(&self, pages: &Pages, guard: &FolioGuard<'_>, index: u32) {
        guard.clear(PROT_STALE);
        for_each_run(pages.resident(pages.range_of(index)), |run| {
            self.open(guard, run);
        });
    }

    /// Opens the resident pages of `range` as the region map says now.
    pub(crate) fn open_again(&self, pages: &Pages, range: PageRange) -> Result<(), Errno> {
        let mut opened = true;
        pages.for_each_folio(range, |index, part| {
            let guard = pages.folio(index).lock();
            guard.cancel_reclaim();
            for_each_run(pages.resident(part), |run| opened &= self.open(&guard, run));
        });
        opened.then_some(()).ok_or(Errno::ENOMEM)
    }

    /// [`Arena::make_readable`] by protection.
    pub(crate) fn let_read(&self, pages: &Pages, page: Page) -> Result<(), Errno> {
        let open = self.is_readable(page) && !pages.folio_of(page).has(PROT_STALE);
        if open || protect(PageRange::one(page), PROT_READ) {
            return Ok(());
        }
        Err(Errno::ENOMEM)
    }

    /// [`Arena::protect_batch`] by protection: of the batch's pages only, since an absent page
    /// would read as zeroes.
    pub(crate) fn make_read_only(&self, pages: &Pages, batch: &Batch) {
        let places = batch.pages.iter().take(batch.nr_pages);
        for_each_run(places.map(|place| place.page), |run| {
            if protect(run, PROT_READ) {
                return;
            }
            for page in run.pages() {
                let guard = pages.folio_of(page).lock();
                guard.set(PROT_STALE);
                guard.cancel_reclaim();
            }
        });
    }

    /// [`Arena::close_stored`] by protection.
    pub(crate) fn close_batch(
        &self,
        guard: &FolioGuard<'_>,
        batch: &Batch,
        folio: &BatchFolio,
    ) -> bool {
        let pages = batch.pages.iter().skip(folio.first).take(folio.nr);
        let stored = pages.filter(|batch| batch.entry != Entry::None);
        let mut closed = true;
        for_each_run(stored.map(|batch| batch.page), |run| {
            closed = closed && protect(run, PROT_NONE);
        });
        if !closed {
            guard.set(PROT_STALE);
        }
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_the_limit_the_more_pages_come_together() {
        let granule = |mib: u64| granule(mib << 8);
        assert_eq!(granule(8), 1);
        assert_eq!(granule(64), 1);
        assert_eq!(granule(65), 2);
        assert_eq!(granule(1024), 16);
        assert_eq!(granule(32 << 10), 512);
        assert_eq!(granule(1 << 20), 512, "not more than the largest folio");
    }

    #[test]
    fn pages_next_to_each_other_are_one_run() {
        let mut runs = [(0, 0); 4];
        let mut nr = 0;
        let pages = [3, 4, 5, 9, 11, 12].map(Page::from_index);
        for_each_run(pages.into_iter(), |run| {
            runs[nr] = (run.start, run.end);
            nr += 1;
        });
        assert_eq!(&runs[..nr], &[(3, 6), (9, 10), (11, 13)]);
        for_each_run(core::iter::empty(), |_| unreachable!());
    }
}
