//! *What*: the engine's own memory and descriptors, kept away from the program's.
//!
//! *Invariants*: reserved memory is zero-filled, outside the arena, and in no core dump.
//! *Locking*: none. *Context*: init; worker.

use crate::page::PAGE_SIZE;
use uzswap_sys::{Errno, file, mem};

/// Lowest descriptor of the engine: above those that programs use.
const MIN_HIGH_FD: i32 = 960;

/// Reserves `len` bytes of zero-filled memory, rounded up to pages. Touching them charges nothing:
/// that is up to the caller.
pub(crate) fn reserve(len: usize) -> Result<*mut u8, Errno> {
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
