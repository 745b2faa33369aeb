//! *What*: address space calls: map, protect, advise.
//! *Invariants*: none; nearly all calls are unsafe, because the caller answers for what lies there.
//! *Locking*: the kernel's. `mmap`, `munmap`, `mprotect` and `mremap` take the mm lock for writing
//! and stop every other thread's faults meanwhile; `madvise(DONTNEED)` takes it for reading.
//! *Context*: any.

use crate::syscall::{Result, call2, call3, call5, call6, int};
use crate::{Errno, nr};

#[allow(missing_docs, reason = "see mmap(2)")]
mod consts {
    pub use crate::arch::abi::MAP_32BIT;

    pub const PROT_NONE: i32 = 0;
    pub const PROT_READ: i32 = 1;
    pub const PROT_WRITE: i32 = 2;
    pub const PROT_EXEC: i32 = 4;
    pub const PROT_GROWSDOWN: i32 = 0x0100_0000;
    pub const PROT_GROWSUP: i32 = 0x0200_0000;

    pub const MAP_SHARED: i32 = 0x01;
    pub const MAP_PRIVATE: i32 = 0x02;
    pub const MAP_TYPE: i32 = 0x0f;
    pub const MAP_FIXED: i32 = 0x10;
    pub const MAP_ANONYMOUS: i32 = 0x20;
    pub const MAP_GROWSDOWN: i32 = 0x0100;
    pub const MAP_LOCKED: i32 = 0x2000;
    pub const MAP_NORESERVE: i32 = 0x4000;
    pub const MAP_POPULATE: i32 = 0x8000;
    pub const MAP_STACK: i32 = 0x2_0000;
    pub const MAP_HUGETLB: i32 = 0x4_0000;
    pub const MAP_FIXED_NOREPLACE: i32 = 0x10_0000;

    pub const MREMAP_MAYMOVE: i32 = 1;
    pub const MREMAP_FIXED: i32 = 2;
    pub const MREMAP_DONTUNMAP: i32 = 4;

    pub const MADV_NORMAL: i32 = 0;
    pub const MADV_RANDOM: i32 = 1;
    pub const MADV_SEQUENTIAL: i32 = 2;
    pub const MADV_WILLNEED: i32 = 3;
    pub const MADV_DONTNEED: i32 = 4;
    pub const MADV_FREE: i32 = 8;
    pub const MADV_DONTFORK: i32 = 10;
    pub const MADV_DOFORK: i32 = 11;
    pub const MADV_MERGEABLE: i32 = 12;
    pub const MADV_UNMERGEABLE: i32 = 13;
    pub const MADV_HUGEPAGE: i32 = 14;
    pub const MADV_NOHUGEPAGE: i32 = 15;
    pub const MADV_DONTDUMP: i32 = 16;
    pub const MADV_DODUMP: i32 = 17;
    pub const MADV_WIPEONFORK: i32 = 18;
    pub const MADV_KEEPONFORK: i32 = 19;
    pub const MADV_COLD: i32 = 20;
    pub const MADV_PAGEOUT: i32 = 21;
    pub const MADV_POPULATE_READ: i32 = 22;
    pub const MADV_POPULATE_WRITE: i32 = 23;
    pub const MADV_DONTNEED_LOCKED: i32 = 24;
    pub const MADV_COLLAPSE: i32 = 25;

    pub const MS_ASYNC: i32 = 1;

    pub const MCL_CURRENT: i32 = 1;
    pub const MCL_FUTURE: i32 = 2;
    pub const MCL_ONFAULT: i32 = 4;
}
pub use consts::*;

/// One range of bytes, laid out as the kernel's `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoVec {
    /// First byte.
    pub base: usize,
    /// Bytes.
    pub len: usize,
}

/// Most ranges that the kernel takes in one vectored call.
pub const UIO_MAXIOV: usize = 1024;

/// Stands for "the calling thread's process" where a pidfd is asked for (Linux 6.14). Unlike a
/// real pidfd it also means the child in a forked child.
const PIDFD_SELF: i32 = -10000;

/// `mmap(2)`. Returns the address.
///
/// # Errors
/// As mmap(2); with `MAP_FIXED_NOREPLACE` (Linux 4.17) `EEXIST` where something is mapped.
///
/// # Safety
/// With `MAP_FIXED`, whatever was mapped in the range is gone.
#[inline]
pub unsafe fn mmap(
    addr: usize,
    len: usize,
    prot: i32,
    flags: i32,
    fd: i32,
    offset: usize,
) -> Result<usize> {
    // SAFETY: the caller's promise.
    unsafe { call6(nr::MMAP, addr, len, int(prot), int(flags), int(fd), offset) }
}

/// `munmap(2)`.
///
/// # Errors
/// As munmap(2).
///
/// # Safety
/// Nothing may use the range afterwards.
#[inline]
pub unsafe fn munmap(addr: usize, len: usize) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { call2(nr::MUNMAP, addr, len) }.map(drop)
}

/// `mprotect(2)`.
///
/// # Errors
/// As mprotect(2); `ENOMEM` also where splitting the mapping would exceed `vm.max_map_count`.
///
/// # Safety
/// Accesses that the new protection forbids raise SIGSEGV.
#[inline]
pub unsafe fn mprotect(addr: usize, len: usize, prot: i32) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { call3(nr::MPROTECT, addr, len, int(prot)) }.map(drop)
}

/// `msync(2)`.
///
/// # Errors
/// As msync(2).
///
/// # Safety
/// None of its own: it writes to the file what the range holds.
pub unsafe fn msync(addr: usize, len: usize, flags: i32) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { call3(nr::MSYNC, addr, len, int(flags)) }.map(drop)
}

/// `madvise(2)`.
///
/// # Errors
/// As madvise(2). `ENOMEM`: part of the range is not mapped; the rest was advised.
///
/// # Safety
/// Destructive advice (`DONTNEED`, `FREE`, `REMOVE`) drops what the range holds.
#[inline]
pub unsafe fn madvise(addr: usize, len: usize, advice: i32) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { call3(nr::MADVISE, addr, len, int(advice)) }.map(drop)
}

/// `mremap(2)`. Returns the new address. `new_addr` matters only with `MREMAP_FIXED` or
/// `MREMAP_DONTUNMAP`.
///
/// # Errors
/// As mremap(2).
///
/// # Safety
/// Nothing may use the old range afterwards if it moved, nor what `MREMAP_FIXED` replaced.
#[inline]
pub unsafe fn mremap(
    addr: usize,
    old_len: usize,
    new_len: usize,
    flags: i32,
    new_addr: usize,
) -> Result<usize> {
    // SAFETY: the caller's promise.
    unsafe { call5(nr::MREMAP, addr, old_len, new_len, int(flags), new_addr) }
}

/// `mincore(2)`: one byte a page into `residency`, bit 0 set where the page is resident. `len` is
/// in bytes and is cut to what `residency` holds.
///
/// # Errors
/// `ENOMEM`: part of the range is not mapped. `EINVAL`: `addr` is not page aligned.
pub fn mincore(addr: usize, len: usize, residency: &mut [u8]) -> Result<()> {
    let len = len.min(residency.len() * crate::PAGE_SIZE);
    // SAFETY: the kernel writes len/4096 bytes rounded up, which `residency` holds.
    unsafe { call3(nr::MINCORE, addr, len, residency.as_mut_ptr() as usize) }.map(drop)
}

/// `mlock(2)`.
///
/// # Errors
/// As mlock(2); `ENOMEM`/`EPERM` over `RLIMIT_MEMLOCK`.
pub fn mlock(addr: usize, len: usize) -> Result<()> {
    // SAFETY: locking changes residency only.
    unsafe { call2(nr::MLOCK, addr, len) }.map(drop)
}

/// `munlock(2)`.
///
/// # Errors
/// As munlock(2).
pub fn munlock(addr: usize, len: usize) -> Result<()> {
    // SAFETY: unlocking changes residency only.
    unsafe { call2(nr::MUNLOCK, addr, len) }.map(drop)
}

/// `process_madvise(2)` on this process (Linux 6.14). Returns the bytes advised, which may be fewer
/// than asked: the call stops at the first range that fails once one succeeded, and at 2 GiB.
///
/// # Errors
/// `ENOSYS`: before 5.10. `EBADF`: before 6.14. `EINVAL`: advice refused.
///
/// # Safety
/// As [`madvise`], for each range.
#[inline]
pub unsafe fn process_madvise(ranges: &[IoVec], advice: i32) -> Result<usize> {
    let (at, nr_ranges) = (ranges.as_ptr() as usize, ranges.len().min(UIO_MAXIOV));
    // SAFETY: the kernel reads `nr_ranges` entries of the slice; the effect is the caller's
    // promise.
    unsafe {
        call5(
            nr::PROCESS_MADVISE,
            int(PIDFD_SELF),
            at,
            nr_ranges,
            int(advice),
            0,
        )
    }
}

/// How this process may advise many ranges of its own memory. Found once by a probe, kept by the
/// caller (this crate holds no state).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelfMadvise {
    /// One `process_madvise` for all.
    Vectored,
    /// One `madvise` for each.
    OneByOne,
}

/// Probes whether `MADV_DONTNEED` works through `process_madvise` on this process (Linux 6.14).
/// Maps and unmaps one page.
#[must_use]
pub fn probe_vectored_dontneed() -> SelfMadvise {
    let prot = PROT_READ | PROT_WRITE;
    let flags = MAP_PRIVATE | MAP_ANONYMOUS;
    // SAFETY: a fresh page where the kernel likes.
    let Ok(page) = (unsafe { mmap(0, crate::PAGE_SIZE, prot, flags, -1, 0) }) else {
        return SelfMadvise::OneByOne;
    };
    let word = core::ptr::with_exposed_provenance_mut::<u64>(page);
    let range = [IoVec {
        base: page,
        len: crate::PAGE_SIZE,
    }];
    // SAFETY: the page is ours alone, mapped read-write until the end of this function.
    let works = unsafe {
        word.write_volatile(1);
        process_madvise(&range, MADV_DONTNEED) == Ok(crate::PAGE_SIZE)
            // Sandboxes stub calls out: check the effect, not the return value.
            && word.read_volatile() == 0
    };
    // SAFETY: ours, and no longer used.
    let _ = unsafe { munmap(page, crate::PAGE_SIZE) };
    if works {
        SelfMadvise::Vectored
    } else {
        SelfMadvise::OneByOne
    }
}

/// Gives `advice` on every range, in one call where `how` allows it (one TLB flush for all on
/// Linux 6.16), else one by one. What the vectored call leaves undone is done one by one, so the
/// result does not depend on `how`.
///
/// # Errors
/// The first error of a single `madvise`; ranges after it were not advised.
///
/// # Safety
/// As [`madvise`], for each range.
pub unsafe fn madvise_vectored_self(how: SelfMadvise, ranges: &[IoVec], advice: i32) -> Result<()> {
    let mut rest = ranges;
    if how == SelfMadvise::Vectored {
        // A last single range is cheaper by plain madvise.
        while rest.len() > 1 {
            // SAFETY: the caller's promise.
            let Ok(mut done) = (unsafe { process_madvise(rest, advice) }) else {
                break;
            };
            // Skip what is complete. A range done in part is advised again whole: the advice that
            // comes here is idempotent as long as nobody may use the ranges meanwhile.
            let before = rest.len();
            while let [first, tail @ ..] = rest {
                if first.len > done {
                    break;
                }
                done -= first.len;
                rest = tail;
            }
            if rest.len() == before {
                break;
            }
        }
    }
    for range in rest {
        // SAFETY: the caller's promise.
        match unsafe { madvise(range.base, range.len, advice) } {
            Ok(()) => {}
            Err(Errno::EAGAIN) => {
                // SAFETY: the caller's promise. EAGAIN is "a kernel resource was short": once more.
                unsafe { madvise(range.base, range.len, advice) }?;
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
