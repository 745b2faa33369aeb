//! *What*: the pool's two requests to the kernel: populate these pages, discard them.
//!
//! *Invariants*: pages are charged before [`populate`] and uncharged after [`discard`].
//! *Locking*: called under a window lock: the kernel's work here is a few microseconds.
//! *Context*: signal, worker, init. No errno is touched.

use uzswap_sys::{Errno, PAGE_SIZE};

/// Makes `len` bytes of fresh pages at `start` resident, or says why the kernel
/// refused. One call for the lot: a fault each costs 1.4 µs.
///
/// # Safety
/// The range lies in the pool's own mapping, page-aligned, and holds no objects.
pub(crate) unsafe fn populate(start: *mut u8, len: usize) -> Result<(), Errno> {
    // SAFETY: the range is the pool's own memory, by this function's contract.
    match unsafe { kernel::populate(start, len) } {
        Ok(()) => Ok(()),
        // Before Linux 5.14 there is no MADV_POPULATE_WRITE.
        Err(Errno::EINVAL) => {
            // SAFETY: as above.
            unsafe { touch(start, len) };
            Ok(())
        }
        Err(errno) => {
            // Some of the pages may be there already, but will not be charged.
            // SAFETY: as above; nothing of value is in the range.
            let _ = unsafe { kernel::discard(start, len) };
            Err(errno)
        }
    }
}

/// Gives `len` bytes of pages at `start` back to the kernel. On an error the
/// pages are still there.
///
/// # Safety
/// As for [`populate`].
pub(crate) unsafe fn discard(start: *mut u8, len: usize) -> Result<(), Errno> {
    // SAFETY: passed on.
    unsafe { kernel::discard(start, len) }
}

/// Tells the kernel, once, what kind of range this is. No huge pages: one touched
/// byte would make 512 pages resident, uncharged. Not in core dumps: the kernel
/// walks such a range page by page, which takes half a minute for 1 TiB.
///
/// # Safety
/// The range is a mapping of the pool's own.
pub(crate) unsafe fn prepare(start: *mut u8, len: usize) -> Result<(), Errno> {
    // SAFETY: passed on.
    match unsafe { kernel::prepare(start, len) } {
        // A kernel built without huge pages.
        Err(Errno::EINVAL) => Ok(()),
        result => result,
    }
}

/// # Safety
/// As for [`populate`].
#[cold]
unsafe fn touch(start: *mut u8, len: usize) {
    for page in 0..len / PAGE_SIZE {
        // SAFETY: inside the range, which holds no objects.
        unsafe { start.add(page * PAGE_SIZE).write_volatile(0) };
    }
}

#[cfg(not(miri))]
mod kernel {
    use uzswap_sys::{Errno, mem};

    pub(crate) unsafe fn populate(start: *mut u8, len: usize) -> Result<(), Errno> {
        // SAFETY: the range is the pool's own memory.
        unsafe { mem::madvise(start.addr(), len, mem::MADV_POPULATE_WRITE) }
    }

    pub(crate) unsafe fn discard(start: *mut u8, len: usize) -> Result<(), Errno> {
        // SAFETY: the range is the pool's own memory, without objects.
        match unsafe { mem::madvise(start.addr(), len, mem::MADV_DONTNEED) } {
            // The program locked all its memory, ours with it.
            Err(Errno::EINVAL) => {
                // SAFETY: as above.
                unsafe { mem::madvise(start.addr(), len, mem::MADV_DONTNEED_LOCKED) }
            }
            result => result,
        }
    }

    pub(crate) unsafe fn prepare(start: *mut u8, len: usize) -> Result<(), Errno> {
        // SAFETY: the range is the pool's own mapping; neither advice changes data.
        unsafe {
            mem::madvise(start.addr(), len, mem::MADV_DONTDUMP)?;
            mem::madvise(start.addr(), len, mem::MADV_NOHUGEPAGE)
        }
    }
}

/// Miri runs no system calls; the test lends ordinary memory. Discarded pages
/// read as zeroes, as the kernel's would.
#[cfg(miri)]
mod kernel {
    use uzswap_sys::Errno;

    pub(crate) unsafe fn populate(_start: *mut u8, _len: usize) -> Result<(), Errno> {
        Ok(())
    }

    pub(crate) unsafe fn discard(start: *mut u8, len: usize) -> Result<(), Errno> {
        // SAFETY: the range is the pool's own memory, without objects.
        unsafe { start.write_bytes(0, len) };
        Ok(())
    }

    pub(crate) unsafe fn prepare(_start: *mut u8, _len: usize) -> Result<(), Errno> {
        Ok(())
    }
}
