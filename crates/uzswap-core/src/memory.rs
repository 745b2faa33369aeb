//! *What*: the engine's own memory and descriptors, outside the arena and out of the program's way.
//!
//! *Invariants*: what is reserved here is zero-filled, never in the arena, and in no core dump.
//! *Locking*: none. *Context*: init; worker.

use crate::page::PAGE_SIZE;
use uzswap_sys::{Errno, file, mem};

/// Where the engine's descriptors are put: above what programs use.
const HIGH_FD: i32 = 960;

/// Reserves memory: zero-filled, touched later.
pub(crate) fn reserve(len: usize) -> Result<*mut u8, Errno> {
    let len = len.next_multiple_of(PAGE_SIZE);
    let prot = mem::PROT_READ | mem::PROT_WRITE;
    let flags = mem::MAP_PRIVATE | mem::MAP_ANONYMOUS | mem::MAP_NORESERVE;
    // SAFETY: a fresh mapping where the kernel likes.
    let addr = unsafe { mem::mmap(0, len, prot, flags, -1, 0) }?;
    // Whole huge pages would be touched, uncharged, for one byte.
    // SAFETY: the mapping above; the advice changes no contents. EINVAL without huge pages.
    let _ = unsafe { mem::madvise(addr, len, mem::MADV_NOHUGEPAGE) };
    // A core dump looks at every page of a mapping: minutes for terabytes, most of them empty.
    // SAFETY: as above.
    let _ = unsafe { mem::madvise(addr, len, mem::MADV_DONTDUMP) };
    Ok(addr as *mut u8)
}

/// Puts `value` at the beginning of a fresh page, where it stays.
pub(crate) fn place_static<T>(page: *mut u8, value: T) -> &'static T {
    const { assert!(size_of::<T>() <= PAGE_SIZE && align_of::<T>() <= PAGE_SIZE) };
    let place = page.cast::<T>();
    // SAFETY: a page that nobody else uses and that is never unmapped; it is large enough and aligned.
    unsafe {
        place.write(value);
        &*place
    }
}

/// Moves a descriptor to a number where programs do not meet it.
pub(crate) fn high_fd(fd: i32) -> i32 {
    match file::dupfd_cloexec(fd, HIGH_FD).or_else(|_| file::dupfd_cloexec(fd, 200)) {
        Ok(number) => {
            let _ = file::close(fd);
            number
        }
        Err(_) => fd,
    }
}
