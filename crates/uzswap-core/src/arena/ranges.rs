//! *What*: what the region map and the kernel say of a range: mapped, readable, with which protection.
//!
//! *Invariants*: the region map says that a range is readable later than the kernel does, and that it is not
//! before the kernel does: a reclaimer never reads what the kernel lets nobody read.
//! *Locking*: `protecting` while the protection of a range changes. *Context*: signal, worker.

use crate::arena::Arena;
use crate::arena::region::Flags;
use crate::page::{Page, PageRange, Pages};
use uzswap_sys::{Errno, mem};

/// What fresh memory of the arena may be used for.
pub(crate) const PROT_ARENA: i32 = mem::PROT_READ | mem::PROT_WRITE;

impl Arena {
    /// The mapped range around `page` that is ours to fill.
    pub(crate) fn mapped(&self, page: Page) -> Option<PageRange> {
        let region = self.regions.lookup(page.addr())?;
        (!region.flags.contains(Flags::FOREIGN))
            .then(|| PageRange::covering(region.start, region.end - region.start))
    }

    /// Whether all of `range` is one readable region.
    pub(crate) fn readable(&self, range: PageRange) -> bool {
        self.regions.lookup(range.addr()).is_some_and(|region| {
            region.flags.contains(Flags::READ) && region.end >= range.addr() + range.bytes()
        })
    }

    pub(crate) fn is_readable(&self, page: Page) -> bool {
        self.regions
            .lookup(page.addr())
            .is_some_and(|region| region.flags.contains(Flags::READ))
    }

    /// Gives fresh arena memory its protection, unless it is what the arena has anyway.
    pub(crate) fn set_prot(
        &self,
        pages: &Pages,
        addr: usize,
        len: usize,
        prot: u32,
    ) -> Result<(), Errno> {
        if prot == PROT_ARENA.unsigned_abs() {
            return Ok(());
        }
        self.set_prot_now(pages, addr, len, prot)
    }

    /// Changes the protection of a range, nowhere unmapped, so that a reclaimer never reads what the kernel lets
    /// nobody read: the region map says that it is readable later than the kernel, and not so sooner.
    pub(crate) fn change_prot(
        &self,
        pages: &Pages,
        addr: usize,
        len: usize,
        prot: u32,
    ) -> Result<(), Errno> {
        let _turn = self.protecting.lock();
        let in_map = || {
            let done = self.regions.set_prot(addr, len, prot);
            done.map_err(|_| Errno::ENOMEM)
        };
        let readable = prot & mem::PROT_READ.unsigned_abs() != 0;
        if readable && !self.prot_follows() {
            self.set_prot_now(pages, addr, len, prot)?;
            return in_map();
        }
        in_map()?;
        if !readable {
            // From here on no reclaimer starts to read it; one that does is waited for.
            pages.wait_reclaim(PageRange::covering(addr, len));
        }
        self.set_prot_now(pages, addr, len, prot)
    }

    /// Puts the arena's own mapping back where the program had one of its own.
    pub(crate) fn reclaim_foreign(&self, addr: usize, len: usize) -> Result<(), Errno> {
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
}
