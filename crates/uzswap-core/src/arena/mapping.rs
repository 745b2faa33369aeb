//! *What*: the kernel's side of the arena: how a page becomes present, absent and write-protected,
//! by userfaultfd or, where that is not available, by [`protection`](super::protection) alone.
//!
//! *Invariants*: an entry becomes resident after the kernel has the page, and stops being resident
//! before the kernel drops its memory; the folio is held in between.
//! *Locking*: the caller holds the pages' folio, except for write protection, where `RECLAIM` keeps
//! them in. *Context*: signal, worker; opening and adopting also init and the fork child.

use super::protection;
use super::{Arena, FaultMode};
use crate::arena::region::Flags;
use crate::memory::high_fd;
use crate::page::batch::{Batch, BatchFolio};
use crate::page::block::Entries;
use crate::page::folio::FolioGuard;
use crate::page::{Entry, Page, PageRange, Pages};
use crate::start_error::{StartError, StartStep, failed};
use uzswap_sys::uffd::{
    self, CopyError, MODE_DONTWAKE, REGISTER_MODE_MISSING, REGISTER_MODE_WP, Uffd, feature,
};
use uzswap_sys::{Errno, file, mem};

/// The kernel interface that manages the arena.
pub(crate) enum Mapping {
    /// An absent page faults; protection is the program's alone.
    Userfaultfd {
        uffd: Uffd,
        /// Whether faulting threads sleep in the kernel and have to be woken.
        wakes: bool,
    },
    /// An absent page is `PROT_NONE`.
    Protection {
        /// This process's own memory, as a file.
        memory: i32,
        /// See [`Mapping::granule`].
        granule: usize,
    },
}

impl Mapping {
    /// Opens what `mode` needs, under a limit of `limit` pages, at a high descriptor number.
    pub fn open(mode: FaultMode, limit: u64) -> Result<Mapping, StartError> {
        let fd = high_fd(open_for(mode)?);
        Ok(match mode {
            FaultMode::Segv => Mapping::Protection {
                memory: fd,
                granule: protection::granule(limit),
            },
            _ => Mapping::Userfaultfd {
                uffd: Uffd(fd),
                wakes: mode == FaultMode::Thread,
            },
        })
    }

    /// The descriptor that the program must not close.
    pub const fn fd(&self) -> i32 {
        match self {
            Mapping::Userfaultfd { uffd, .. } => uffd.0,
            Mapping::Protection { memory, .. } => *memory,
        }
    }

    /// Where a handler thread reads faults.
    pub const fn uffd(&self) -> Option<Uffd> {
        match self {
            Mapping::Userfaultfd { uffd, .. } => Some(*uffd),
            Mapping::Protection { .. } => None,
        }
    }

    /// The protection of the arena where it is not mapped by the program.
    pub const fn prot(&self) -> i32 {
        match self {
            Mapping::Userfaultfd { .. } => mem::PROT_READ | mem::PROT_WRITE,
            Mapping::Protection { .. } => mem::PROT_NONE,
        }
    }

    /// Minimum pages, a power of two, that are brought in together: a lone resident page costs a
    /// mapping or two, of which a process has few.
    pub const fn granule(&self) -> usize {
        match self {
            Mapping::Userfaultfd { .. } => 1,
            Mapping::Protection { granule, .. } => *granule,
        }
    }

    /// Registers a fresh private anonymous mapping in the arena's range that has [`Mapping::prot`].
    pub fn adopt(&self, addr: usize, len: usize) -> Result<(), Errno> {
        // SAFETY: anonymous memory of the arena; the advice changes no contents. Kernels without
        // huge pages answer EINVAL.
        let _ = unsafe { mem::madvise(addr, len, mem::MADV_NOHUGEPAGE) };
        // A core dump walks every page of the range: minutes for terabytes of empty ones.
        // SAFETY: as above.
        let _ = unsafe { mem::madvise(addr, len, mem::MADV_DONTDUMP) };
        match self {
            // SAFETY: as above; `flow::fault` serves missing pages there from now on.
            Mapping::Userfaultfd { uffd, .. } => unsafe {
                uffd.register(addr, len, REGISTER_MODE_MISSING | REGISTER_MODE_WP)
            },
            Mapping::Protection { .. } => Ok(()),
        }
    }
}

/// Opens what `mode` needs.
fn open_for(mode: FaultMode) -> Result<i32, StartError> {
    let nonblock = file::O_CLOEXEC | file::O_NONBLOCK;
    let (flags, wanted) = match mode {
        FaultMode::Signal => (
            nonblock | uffd::UFFD_USER_MODE_ONLY,
            feature::PAGEFAULT_FLAG_WP | feature::SIGBUS,
        ),
        FaultMode::Thread => (nonblock, feature::PAGEFAULT_FLAG_WP | feature::THREAD_ID),
        FaultMode::Segv => return protection::open_memory(),
    };
    let fd = Uffd::open(flags).map_err(|errno| failed(StartStep::UffdOpen, errno))?;
    match fd.api(wanted) {
        Ok(_) => Ok(fd.0),
        Err(errno) => {
            let _ = fd.close();
            Err(failed(StartStep::UffdApi, errno))
        }
    }
}

impl Arena {
    /// Makes pages of the folio of `guard` present, filled from `source`; `None`: with zeroes.
    /// Returns the bytes done.
    ///
    /// # Safety
    /// `source` is initialized memory of the engine's own of `len` bytes. The pages at `addr` are
    /// arena memory that no entry calls resident.
    #[inline]
    pub(crate) unsafe fn install(
        &self,
        guard: &FolioGuard<'_>,
        addr: usize,
        source: Option<*const u8>,
        len: usize,
    ) -> Result<usize, CopyError> {
        match self.mapping {
            Mapping::Userfaultfd { uffd, wakes } => {
                let mode = if wakes { 0 } else { MODE_DONTWAKE };
                // SAFETY: the caller's promise; no run is longer than `zeroes`.
                unsafe { uffd.copy(addr, source.unwrap_or(self.zeroes), len, mode) }
            }
            // SAFETY: the caller's promise.
            Mapping::Protection { memory, .. } => unsafe {
                self.fill_and_open(memory, guard, addr, source, len)
            },
        }
    }

    /// Write-protects the pages of a batch. The reclaim of a folio that cannot be protected is
    /// cancelled: the program could change a page while it is compressed.
    pub(crate) fn protect_batch(&self, pages: &Pages, batch: &Batch) {
        if self.prot_follows() {
            return self.make_read_only(pages, batch);
        }
        // Neighbours share a call, along with pages in between: marking those that are absent, or
        // not in the batch, costs nothing.
        let mut run: Option<(u32, PageRange)> = None;
        for at in 0..=batch.nr_folios {
            let next = batch.index_of(at).zip(batch.pages_of(at));
            match (&mut run, next) {
                (Some((last, run)), Some((index, next))) if *last + 1 == index => {
                    *last = index;
                    run.end = next.end;
                }
                (_, next) => {
                    if let Some((_, done)) = run.take() {
                        self.write_protect(pages, done);
                    }
                    run = next;
                }
            }
        }
    }

    /// Write-protects the resident pages of `range` for good, in userfaultfd's modes. `false`: they
    /// are not, or not all.
    pub(crate) fn protect_range(&self, range: PageRange) -> bool {
        let Mapping::Userfaultfd { uffd, .. } = self.mapping else {
            return false;
        };
        self.for_each_own(range, |range| {
            uffd.write_protect(range.addr(), range.bytes(), true, false)
                .is_ok()
        })
    }

    /// Does something to `range` that the kernel refuses where the program has laid a mapping of
    /// its own over part of it, having done part: then to what is ours, region by region.
    fn for_each_own(&self, range: PageRange, f: impl Fn(PageRange) -> bool) -> bool {
        let mut done = f(range);
        if !done {
            done = true;
            self.regions
                .for_each_in(range.addr(), range.bytes(), |region| {
                    done &= region.flags.contains(Flags::FOREIGN) || f(region.pages());
                });
        }
        done
    }

    fn write_protect(&self, pages: &Pages, range: PageRange) {
        if self.protect_range(range) {
            return;
        }
        // Part of the range was unmapped, or holds a mapping of the program's own.
        for page in range.pages() {
            if pages.get(page) == Entry::Resident && !self.protect_range(PageRange::one(page)) {
                pages.folio_of(page).lock().cancel_reclaim();
            }
        }
    }

    /// Removes write protection from the resident pages of `range`, within the folio of `guard`.
    pub(crate) fn unprotect(&self, pages: &Pages, guard: &FolioGuard<'_>, range: PageRange) {
        match self.mapping {
            Mapping::Userfaultfd { uffd, wakes } => {
                // What was unmapped meanwhile needs nothing.
                self.for_each_own(range, |range| {
                    uffd.write_protect(range.addr(), range.bytes(), false, !wakes)
                        .is_ok()
                });
            }
            Mapping::Protection { .. } => {
                self.open_folio(pages, guard, pages.index_of(Page::from_index(range.start)));
            }
        }
    }

    /// Makes the stored pages of a folio of the batch inaccessible before they are dropped.
    /// `false`: that failed, and they stay.
    pub(crate) fn close_stored(
        &self,
        guard: &FolioGuard<'_>,
        batch: &Batch,
        folio: &BatchFolio,
    ) -> bool {
        match self.mapping {
            // A touch during the drop finds the page, or faults and waits for the folio.
            Mapping::Userfaultfd { .. } => true,
            Mapping::Protection { .. } => self.close_batch(guard, batch, folio),
        }
    }

    /// Makes pages that the program gives up inaccessible before they are dropped. `false`: that
    /// failed.
    pub(crate) fn close(&self, range: PageRange) -> bool {
        match self.mapping {
            Mapping::Userfaultfd { .. } => true,
            Mapping::Protection { .. } => protection::protect(range, mem::PROT_NONE),
        }
    }

    /// Sets the kernel's protection of a range to `prot`, which the region map has or is about to
    /// have.
    pub(crate) fn set_prot_now(
        &self,
        pages: &Pages,
        addr: usize,
        len: usize,
        prot: u32,
    ) -> Result<(), Errno> {
        match self.mapping {
            // SAFETY: arena memory; no reclaimer reads it if it becomes unreadable (`change_prot`
            // waits).
            Mapping::Userfaultfd { .. } => unsafe { mem::mprotect(addr, len, prot.cast_signed()) },
            Mapping::Protection { .. } => self.open_again(pages, PageRange::covering(addr, len)),
        }
    }

    /// Makes a pinned page readable, to be copied and then dropped, whatever its protection. With
    /// userfaultfd the caller has done so.
    pub(crate) fn make_readable(&self, pages: &Pages, page: Page) -> Result<(), Errno> {
        match self.mapping {
            Mapping::Userfaultfd { .. } => Ok(()),
            Mapping::Protection { .. } => self.let_read(pages, page),
        }
    }

    /// Whether page protection encodes residency too. If so, it is derived from the region map,
    /// which changes first.
    pub(crate) const fn prot_follows(&self) -> bool {
        matches!(self.mapping, Mapping::Protection { .. })
    }

    /// In a fork child: reopens the kernel interface for this process under the same descriptor
    /// number, and registers the arena.
    pub(crate) fn renew_mapping(&self) -> Result<(), StartError> {
        let fresh = open_for(self.mode())?;
        file::dup3(fresh, self.mapping.fd(), file::O_CLOEXEC)
            .map_err(|errno| failed(StartStep::UffdOpen, errno))?;
        let _ = file::close(fresh);
        if self.mapping.uffd().is_none() {
            // A fork child inherits protection.
            return Ok(());
        }
        // Skip mappings of the program's own, and holes.
        let end = self.partition().end();
        let mut from = self.partition().start();
        while from < end {
            let other = self.regions.next_other(from, end - from);
            let (to, next) = other.map_or((end, end), |other| (other.start, other.end));
            if to > from {
                self.mapping
                    .adopt(from, to - from)
                    .map_err(|errno| failed(StartStep::UffdRegister, errno))?;
            }
            from = next;
        }
        Ok(())
    }
}
