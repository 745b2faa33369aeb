//! *What*: the engine's own memory and descriptors, kept away from the program's.
//!
//! *Invariants*: reserved memory is zero-filled, outside the arena, and in no core dump. What
//! [`OwnMemory`] lists is mapped, and the engine's alone.
//! *Locking*: the list's lock is a leaf. *Context*: init; worker.

use crate::page::PAGE_SIZE;
use uzswap_sync::lock::{Lock, LockGuard};
use uzswap_sys::{Errno, file, mem};

/// Lowest descriptor of the engine: above those that programs use.
const MIN_HIGH_FD: i32 = 960;

/// Mappings that an engine has at most: its tables, and a few for each operation and worker.
const MAX_MAPPINGS: usize = 256;

/// The mappings of an engine, so that they can be given back when it stops.
#[derive(Debug)]
pub(crate) struct OwnMemory {
    /// Address and length of each; length 0: a free place.
    mappings: Lock<[(usize, usize); MAX_MAPPINGS]>,
}

impl OwnMemory {
    pub(crate) const fn new() -> Self {
        OwnMemory {
            mappings: Lock::new([(0, 0); MAX_MAPPINGS]),
        }
    }

    /// Reserves `len` bytes of zero-filled memory, rounded up to pages. Touching them charges
    /// nothing: that is up to the caller.
    pub(crate) fn reserve(&self, len: usize) -> Result<*mut u8, Errno> {
        let memory = reserve(len)?;
        if self.adopt(memory.addr(), len) {
            return Ok(memory);
        }
        // SAFETY: the mapping made just now.
        let _ = unsafe { mem::munmap(memory.addr(), len.next_multiple_of(PAGE_SIZE)) };
        Err(Errno::ENOMEM)
    }

    /// Holds the list, for a fork: nobody changes it as long as the result lives.
    pub(crate) fn hold(&self) -> HeldMappings<'_> {
        HeldMappings(self.mappings.lock())
    }

    /// Lists a mapping that was made otherwise. `false`: there is no place for it.
    pub(crate) fn adopt(&self, addr: usize, len: usize) -> bool {
        let mut mappings = self.mappings.lock();
        let free = mappings.iter_mut().find(|(_, len)| *len == 0);
        free.map(|place| *place = (addr, len.next_multiple_of(PAGE_SIZE)))
            .is_some()
    }

    /// Unmaps what [`OwnMemory::reserve`] returned.
    ///
    /// # Errors
    /// As munmap(2); it stays then.
    ///
    /// # Safety
    /// Nobody uses it any more.
    pub(crate) unsafe fn release(&self, addr: usize) -> Result<usize, Errno> {
        let mut mappings = self.mappings.lock();
        let Some(place) = mappings
            .iter_mut()
            .find(|(at, len)| *at == addr && *len > 0)
        else {
            return Err(Errno::EINVAL);
        };
        let (addr, len) = *place;
        // SAFETY: a mapping of ours; the caller's promise.
        unsafe { mem::munmap(addr, len) }?;
        *place = (0, 0);
        Ok(len)
    }

    /// Unmaps everything.
    ///
    /// # Safety
    /// Nobody uses any of it any more.
    pub(crate) unsafe fn release_all(&self) {
        let mut mappings = self.mappings.lock();
        for place in mappings.iter_mut().filter(|(_, len)| *len > 0) {
            let (addr, len) = core::mem::take(place);
            // SAFETY: a mapping of ours; the caller's promise.
            let _ = unsafe { mem::munmap(addr, len) };
        }
    }
}

/// The list, held.
#[must_use]
pub(crate) struct HeldMappings<'a>(
    #[expect(dead_code, reason = "held")] LockGuard<'a, [(usize, usize); MAX_MAPPINGS]>,
);

fn reserve(len: usize) -> Result<*mut u8, Errno> {
    let len = len.next_multiple_of(PAGE_SIZE);
    let prot = mem::PROT_READ | mem::PROT_WRITE;
    let flags = mem::MAP_PRIVATE | mem::MAP_ANONYMOUS | mem::MAP_NORESERVE;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let addr = unsafe { mem::mmap(0, len, prot, flags, -1, 0) }?;
    // With huge pages one byte would touch 2 MiB, of which one page is charged.
    // SAFETY: the mapping above; the advice changes no contents. EINVAL without huge pages.
    let _ = unsafe { mem::madvise(addr, len, mem::MADV_NOHUGEPAGE) };
    // A core dump walks every page of a mapping: minutes for terabytes of empty ones.
    // SAFETY: as above.
    let _ = unsafe { mem::madvise(addr, len, mem::MADV_DONTDUMP) };
    Ok(addr as *mut u8)
}

/// Moves `value` to the start of a fresh page, which is never freed.
pub(crate) fn place_static<T>(page: *mut u8, value: T) -> &'static T {
    const { assert!(size_of::<T>() <= PAGE_SIZE && align_of::<T>() <= PAGE_SIZE) };
    let place = page.cast::<T>();
    // SAFETY: the caller's fresh page, never unmapped, large enough and aligned.
    unsafe {
        place.write(value);
        &*place
    }
}

/// Moves a descriptor to a high number, out of the range that programs use.
pub(crate) fn high_fd(fd: i32) -> i32 {
    match file::dupfd_cloexec(fd, MIN_HIGH_FD).or_else(|_| file::dupfd_cloexec(fd, 200)) {
        Ok(number) => {
            let _ = file::close(fd);
            number
        }
        Err(_) => fd,
    }
}
