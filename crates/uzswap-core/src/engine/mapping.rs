//! *What*: the arena as the kernel has it: how a page becomes present, absent and write-protected.
//!
//! *Invariants*: what the rest of the engine says of a page (its entry), it says after the kernel was told when
//! the page comes, and before when it goes; in between, the folio is held.
//! *Locking*: the folio of the pages is held by the caller, except where write protection is put on: there `RECLAIM` keeps
//! them in. *Context*: signal, worker; opening and adopting also init and the fork child.

use super::start::{StartError, StartStep, failed, high};
use super::{FaultMode, Parts};
use crate::arena::{ARENA_BASE, ARENA_LEN, PageRange};
use crate::region::Flags;
use crate::table::Entry;
use uzswap_sys::uffd::{
    self, CopyError, MODE_DONTWAKE, REGISTER_MODE_MISSING, REGISTER_MODE_WP, Uffd, feature,
};
use uzswap_sys::{Errno, file, mem};

/// What the engine tells the kernel through.
pub(crate) struct Mapping {
    uffd: Uffd,
    /// Whether threads sleep in the kernel until their page is there.
    wakes: bool,
}

impl Mapping {
    /// What `mode` needs, for this process, at a number where programs do not meet it.
    pub fn open(mode: FaultMode) -> Result<Mapping, StartError> {
        Ok(Mapping {
            uffd: Uffd(high(open_uffd(mode)?.0)),
            wakes: mode == FaultMode::Thread,
        })
    }

    /// The descriptor that the program must not close.
    pub const fn fd(&self) -> i32 {
        self.uffd.0
    }

    /// Where a handler thread reads faults.
    pub const fn uffd(&self) -> Uffd {
        self.uffd
    }

    /// Makes a fresh private anonymous mapping in the arena's range ours.
    pub fn adopt(&self, addr: usize, len: usize) -> Result<(), Errno> {
        // SAFETY: anonymous memory of the arena; the advice changes no contents. Kernels without
        // huge pages answer EINVAL.
        let _ = unsafe { mem::madvise(addr, len, mem::MADV_NOHUGEPAGE) };
        // A core dump looks at every page of the range: minutes for terabytes, most of them empty.
        // SAFETY: as above.
        let _ = unsafe { mem::madvise(addr, len, mem::MADV_DONTDUMP) };
        // SAFETY: as above; missing pages there are served by `fault` from now on.
        unsafe {
            self.uffd
                .register(addr, len, REGISTER_MODE_MISSING | REGISTER_MODE_WP)
        }
    }

    /// Makes pages present, filled from `source`, each at once. Returns the bytes done.
    ///
    /// # Safety
    /// `source` is readable for `len` bytes, and the pages at `addr` are arena memory that no entry calls resident.
    #[inline]
    pub unsafe fn install(
        &self,
        addr: usize,
        source: *const u8,
        len: usize,
    ) -> Result<usize, CopyError> {
        let mode = if self.wakes { 0 } else { MODE_DONTWAKE };
        // SAFETY: the caller's promise.
        unsafe { self.uffd.copy(addr, source, len, mode) }
    }

    fn write_protect(&self, range: PageRange) -> Result<(), Errno> {
        self.uffd
            .write_protect(range.addr(), range.bytes(), true, false)
    }

    /// Makes pages writable again. A range that is no mapping of ours any more needs it no more.
    fn unprotect(&self, addr: usize, len: usize) {
        let _ = self.uffd.write_protect(addr, len, false, !self.wakes);
    }
}

/// Opens a userfaultfd for `mode`, with the features it needs.
fn open_uffd(mode: FaultMode) -> Result<Uffd, StartError> {
    let nonblock = file::O_CLOEXEC | file::O_NONBLOCK;
    let (flags, wanted) = match mode {
        FaultMode::Signal => (
            nonblock | uffd::UFFD_USER_MODE_ONLY,
            feature::PAGEFAULT_FLAG_WP | feature::SIGBUS,
        ),
        FaultMode::Thread => (nonblock, feature::PAGEFAULT_FLAG_WP),
    };
    let fd = Uffd::open(flags).map_err(|errno| failed(StartStep::UffdOpen, errno))?;
    match fd.api(wanted) {
        Ok(_) => Ok(fd),
        Err(errno) => {
            let _ = fd.close();
            Err(failed(StartStep::UffdApi, errno))
        }
    }
}

impl Parts {
    /// Write-protects the pages of a reclaimer's batch that lie in `range`.
    pub(super) fn protect(&self, range: PageRange) {
        if self.mapping.write_protect(range).is_ok() {
            return;
        }
        // Part of it is no mapping of ours any more, or a mapping of the program's own lies within: page by page
        // then, and nobody may be told that a page is protected which is not.
        for page in range.pages() {
            let protected = self.table.get(page) != Entry::Resident
                || self.mapping.write_protect(PageRange::one(page)).is_ok();
            if !protected {
                self.folios.of(page).lock().cancel_reclaim();
            }
        }
    }

    /// Makes pages writable again.
    pub(super) fn unprotect(&self, addr: usize, len: usize) {
        self.mapping.unprotect(addr, len);
    }

    /// In a fork child: opens what the mapping is managed through for this process, under the old one's number,
    /// and makes the arena this process's.
    pub(super) fn renew_mapping(&self) -> Result<(), StartError> {
        let fresh = open_uffd(self.mode)?;
        file::dup3(fresh.0, self.mapping.fd(), file::O_CLOEXEC)
            .map_err(|errno| failed(StartStep::UffdOpen, errno))?;
        let _ = file::close(fresh.0);
        // Parts with mappings of the program's own are registered around.
        let end = ARENA_BASE + ARENA_LEN;
        let mut from = ARENA_BASE;
        while from < end {
            let mut to = end;
            let mut next = end;
            self.regions.for_each_in(from, end - from, |region| {
                if to == end && region.flags.contains(Flags::FOREIGN) {
                    to = region.start;
                    next = region.end;
                }
            });
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
