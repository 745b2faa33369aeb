//! *What*: queries over region map and kernel (is a range mapped, readable), and changes of
//! protection.
//!
//! *Invariants*: the region map calls a range readable only while the kernel lets it be read: it
//! learns of new read permission after the kernel, and of its loss before. So a reclaimer never
//! reads a page that the kernel protects.
//! *Locking*: `protecting` while the protection of a range changes, or a hole comes or goes.
//! *Context*: signal, worker.

use crate::arena::Arena;
use crate::arena::region::{Flags, RegionError};
use crate::page::{PAGE_SIZE, Page, PageRange, Pages};
use uzswap_sys::{Errno, mem};

/// Protection of the arena where the program has not set its own.
pub(crate) const PROT_ARENA: i32 = mem::PROT_READ | mem::PROT_WRITE;

impl Arena {
    /// The mapped range around `page`, unless it is a mapping of the program's own.
    pub(crate) fn mapped(&self, page: Page) -> Option<PageRange> {
        let region = self.regions.lookup(page.addr())?;
        (!region.flags.contains(Flags::FOREIGN)).then(|| region.pages())
    }

    /// Whether all of `range` is one readable region.
    pub(crate) fn readable(&self, range: PageRange) -> bool {
        self.regions.lookup(range.addr()).is_some_and(|region| {
            region.flags.contains(Flags::READ) && region.pages().end >= range.end
        })
    }

    /// Whether the program may read `page`.
    pub(crate) fn is_readable(&self, page: Page) -> bool {
        self.regions
            .lookup(page.addr())
            .is_some_and(|region| region.flags.contains(Flags::READ))
    }

    /// Sets the protection of fresh arena memory, unless it is the arena's own.
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

    /// Changes the protection of a range without holes, in the order that the module's invariant
    /// asks for.
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
            // The region map keeps new reclaimers from reading it; wait for those that already do.
            pages.wait_reclaim(PageRange::covering(addr, len));
        }
        self.set_prot_now(pages, addr, len, prot)
    }

    /// Lets a touch of a page that is not mapped end in SIGSEGV: takes the kernel's mapping away.
    /// Nothing, if the page is mapped by now, or a hole already.
    pub(crate) fn make_hole(&self, addr: usize) -> Result<(), Errno> {
        let _turn = self.protecting.lock();
        match self.regions.insert_free(addr, PAGE_SIZE, Flags::HOLE) {
            // SAFETY: nothing that the program may use is there, and whoever maps it now waits for
            // its turn.
            Ok(()) => unsafe { mem::munmap(addr, PAGE_SIZE) },
            Err(RegionError::Taken) => Ok(()),
            Err(RegionError::NoSpace | RegionError::TableFull) => Err(Errno::ENOMEM),
        }
    }

    /// Restores the arena's own mapping where there is a hole.
    pub(crate) fn mend_hole(&self, addr: usize, len: usize) -> Result<(), Errno> {
        // The region map knows of a hole before the kernel does.
        let _turn = self.protecting.lock();
        self.reclaim_foreign(addr, len)
    }

    /// Restores the arena's own mapping where the program had one of its own.
    pub(crate) fn reclaim_foreign(&self, addr: usize, len: usize) -> Result<(), Errno> {
        // SAFETY: the region map says that the program's own mapping, or a hole, lies exactly there,
        // and the program is unmapping it.
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
