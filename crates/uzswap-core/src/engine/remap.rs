//! *What*: mremap: shrinking, growing in place, and moving a mapping with its contents.
//!
//! What is stored of a page changes its owner and stays where it is; a resident page is copied and
//! its original dropped, one at a time, so that moving needs no memory of its own.
//!
//! *Invariants*: a page's contents belong to one entry at any time, or to this operation alone. A move
//! that fails puts back what it moved.
//! *Locking*: slot → one folio at a time. *Context*: worker; addresses and lengths are page aligned.

use super::space::MapError;
use super::{Engine, Parts};
use crate::arena::{PAGE_SIZE, Page, PageRange, wide};
use crate::masked::Masked;
use crate::region::Flags;
use crate::slot::SlotGuard;
use crate::table::Entry;
use uzswap_sys::Errno;
use uzswap_sys::mem;

/// Where [`Engine::remap`] may put the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemapTo {
    /// Where it is.
    InPlace,
    /// Anywhere, if it cannot stay.
    MayMove,
    /// Here, in place of what is mapped there.
    Fixed(usize),
}

impl Engine {
    /// mremap: shrinks, grows or moves a range.
    ///
    /// # Errors
    /// [`MapError::NotMapped`] if the old range is not one mapping; as [`Engine::map`].
    pub fn remap(
        &self,
        masked: &Masked,
        old: usize,
        old_len: usize,
        new_len: usize,
        to: RemapTo,
    ) -> Result<usize, MapError> {
        let parts = self.ready()?;
        let mut slot = parts.slot(masked);
        let region = parts.regions.lookup(old).ok_or(MapError::NotMapped)?;
        if region.end < old + old_len || region.flags.contains(Flags::FOREIGN) {
            return Err(MapError::NotMapped);
        }
        if let RemapTo::Fixed(new) = to {
            if new < old + old_len && old < new + new_len {
                return Err(MapError::Invalid);
            }
            parts.replace(&mut slot, new, new_len, region.flags)?;
            return parts.move_to(&mut slot, old, old_len, new, new_len, region.flags);
        }
        if new_len <= old_len {
            parts.unmap(&mut slot, old + new_len, old_len - new_len)?;
            return Ok(old);
        }
        let grows = parts
            .regions
            .insert_free(old + old_len, new_len - old_len, region.flags);
        if grows.is_ok() {
            parts
                .set_prot(old + old_len, new_len - old_len, region.flags.prot())
                .map_err(MapError::Kernel)?;
            return Ok(old);
        }
        if to == RemapTo::InPlace {
            return Err(MapError::NoSpace);
        }
        let new = parts.regions.reserve(new_len, 0, region.flags)?;
        parts.move_to(&mut slot, old, old_len, new, new_len, region.flags)
    }
}

impl Parts {
    /// Moves a mapping, contents and all, to a region that is mapped for it.
    fn move_to(
        &self,
        slot: &mut SlotGuard<'_>,
        old: usize,
        old_len: usize,
        new: usize,
        new_len: usize,
        flags: Flags,
    ) -> Result<usize, MapError> {
        let from = PageRange::covering(old, old_len.min(new_len));
        let to = PageRange::covering(new, old_len.min(new_len));
        let readable = flags.prot() & mem::PROT_READ.unsigned_abs() != 0;
        if !readable {
            // To be copied. The region map goes on saying that it is not readable, so no reclaimer
            // starts on it.
            self.set_prot_now(old, old_len, mem::PROT_READ.unsigned_abs())
                .map_err(MapError::Kernel)?;
        }
        if let Err(error) = self.move_pages(slot, from, to) {
            // Back, as far as can be: what moved left its room behind.
            let _ = self.move_pages(slot, to, from);
            if !readable {
                let _ = self.set_prot_now(old, old_len, flags.prot());
            }
            let _ = self.unmap(slot, new, new_len);
            return Err(error);
        }
        self.set_prot(new, new_len, flags.prot())
            .map_err(MapError::Kernel)?;
        // What cannot be unmapped is lost to the program as address space alone.
        let _ = self.unmap(slot, old, old_len);
        Ok(new)
    }

    /// Moves contents from one range to another of the same length, where there is nothing.
    fn move_pages(
        &self,
        slot: &mut SlotGuard<'_>,
        from: PageRange,
        to: PageRange,
    ) -> Result<(), MapError> {
        let mut moved = Ok(());
        self.for_each_folio(from, |_, part| {
            for page in part.pages() {
                if moved.is_ok() {
                    let target = Page::from_index(to.start + (page.index() - from.start));
                    moved = self.move_page(slot, page, target);
                }
            }
        });
        moved
    }

    /// Moves the contents of one page.
    fn move_page(
        &self,
        slot: &mut SlotGuard<'_>,
        page: Page,
        target: Page,
    ) -> Result<(), MapError> {
        // A reclaimer may turn a resident page into a stored one in between.
        loop {
            let moved = match self.entry_of(page) {
                entry if entry.is_empty() => return Ok(()),
                _ if !self.ready_chunk(slot, target) => return Err(MapError::NoSpace),
                // What was dropped of a block lies where the contents go.
                _ if self.entry_of(target).in_block() => self.bring_back(slot, target)?,
                Entry::Resident => {
                    if !self.reserve_pages(slot, 1) {
                        return Err(MapError::NoSpace);
                    }
                    let mut credit = 1;
                    let moved = self.copy_resident(slot, page, target, &mut credit);
                    self.unreserve_pages(slot, credit);
                    moved?
                }
                entry if entry.in_block() => self.bring_back(slot, page)?,
                Entry::Swapped { .. } => self.bring_back(slot, page)?,
                _ => self.move_stored(page, target),
            };
            if moved {
                return Ok(());
            }
        }
    }

    /// Brings a page in, and the block it is in: from the device, where its label ties it to its address, or because
    /// it is not stored alone. It is then moved as a resident one. `false`: it is still to be moved.
    fn bring_back(&self, slot: &mut SlotGuard<'_>, page: Page) -> Result<bool, MapError> {
        let range = self.block_of(page);
        let mut credit = wide(range.len());
        if !self.reserve_pages(slot, credit) {
            return Err(MapError::NoSpace);
        }
        let index = self.folios.index_of(page);
        let guard = self.folios.at(index).lock();
        let brought = self.bring_in(slot, &guard, range, false, &mut credit);
        if brought.is_ok() {
            self.used(&guard, index, Entry::None);
        }
        drop(guard);
        self.unreserve_pages(slot, credit);
        match brought {
            Ok(_) => Ok(false),
            // If it was the kernel that failed, there is no way on: part of a block may be in.
            Err(error) => {
                self.lost(error);
                Err(MapError::Kernel(Errno::EFAULT))
            }
        }
    }

    /// Gives what is stored of `page` to `target`, a fresh page; `false` if nothing is stored any more.
    fn move_stored(&self, page: Page, target: Page) -> bool {
        let source = self.folios.of(page).lock();
        let mut entry = match self.table.get(page) {
            entry @ (Entry::Stored { .. } | Entry::Filled { .. }) if !entry.in_block() => entry,
            _ => return false,
        };
        self.table.set(page, Entry::None);
        if let Entry::Stored { loc, writing, .. } = &mut entry {
            // SAFETY: the object lives, and the one entry that said so no longer does.
            unsafe { self.pool.set_owner(*loc, target.owner()) };
            // The copy under way is another page's.
            *writing = false;
        }
        drop(source);
        // In between the entry is here alone: only this operation reaches the object.
        let _target = self.folios.of(target).lock();
        self.table.set(target, entry);
        true
    }

    fn entry_of(&self, page: Page) -> Entry {
        let _guard = self.folios.of(page).lock();
        self.table.get(page)
    }

    /// Copies a resident page to `target` and drops the original; `false` if it is not resident any
    /// more. It is pinned while it is copied, so that it stays.
    fn copy_resident(
        &self,
        slot: &mut SlotGuard<'_>,
        page: Page,
        target: Page,
        credit: &mut u64,
    ) -> Result<bool, MapError> {
        let source = self.folios.of(page).lock();
        if self.table.get(page) != Entry::Resident {
            return Ok(false);
        }
        source.pin();
        let isolated = source.cancel_reclaim();
        drop(source);
        if isolated {
            self.folios.of(page).wait_reclaim();
        }
        let readable = self.make_readable(page).map_err(MapError::Kernel);
        let done = readable.and_then(|()| self.copy_page(slot, page, target, credit));
        self.folios.of(page).lock().unpin();
        done?;
        // What cannot be dropped stays behind full of zeroes.
        let _ = self.drop_pages(PageRange::one(page));
        Ok(true)
    }

    /// Copies a page that is resident and pinned into fresh memory, through the load buffer: a system call that is given
    /// memory of the arena would be guarded.
    fn copy_page(
        &self,
        slot: &mut SlotGuard<'_>,
        page: Page,
        target: Page,
        credit: &mut u64,
    ) -> Result<(), MapError> {
        let index = self.folios.index_of(target);
        let guard = self.folios.at(index).lock();
        let source = page.addr() as *const u8;
        let buffer = slot.load.as_mut_ptr();
        loop {
            // SAFETY: the source stays present while it is pinned, and the buffer is longer than a page; the target is
            // fresh arena memory.
            let copied = unsafe {
                core::ptr::copy_nonoverlapping(source, buffer, PAGE_SIZE);
                self.install(&guard, target.addr(), Some(buffer), PAGE_SIZE)
            };
            match copied {
                Ok(_) => break,
                Err(error) if error.errno == Errno::EAGAIN => {}
                Err(error) => return Err(MapError::Kernel(error.errno)),
            }
        }
        self.table.set(target, Entry::Resident);
        guard.add_resident(1);
        self.count_resident(1);
        self.used(&guard, index, Entry::None);
        *credit = credit.saturating_sub(1);
        Ok(())
    }
}
