//! *What*: the C functions that programs call.
//!
//! *Invariants*: as libc's: -1 or `MAP_FAILED` and `errno` on failure, `errno` untouched on
//! success.
//! *Locking*: the engine's. *Context*: the program's.

use core::ffi::{c_int, c_uchar, c_void};

use uzswap_core::page::narrow;
use uzswap_core::{Masked, PAGE_SIZE, arena_part};
use uzswap_sys::mem::{self, MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT};
use uzswap_sys::syscall::{call3, call4, call5, int};
use uzswap_sys::{Errno, nr};

use super::map::{self, MmapArgs};
use super::remap::{self, MremapArgs};
use super::span::Span;
use super::{advise, give_back, protect, set_errno, unmanaged};
use crate::guard::{is_writable, user};
use crate::init;
use crate::next::Next;

const MAP_FAILED: *mut c_void = usize::MAX as *mut c_void;

fn status(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

fn address(result: Result<usize, Errno>) -> *mut c_void {
    match result {
        Ok(addr) => addr as *mut c_void,
        Err(errno) => {
            set_errno(errno);
            MAP_FAILED
        }
    }
}

/// A call that concerns the arena goes to the engine, with signals blocked. Any other, and every
/// call of a process that is not managed, goes to the kernel.
fn run<R>(concerned: bool, kernel: impl FnOnce() -> R, ours: impl FnOnce(&Masked) -> R) -> R {
    if concerned && init::managed() {
        Masked::block(ours)
    } else {
        kernel()
    }
}

/// [`run`] for a range, with the result as C functions return it.
fn call(
    addr: usize,
    len: usize,
    kernel: impl FnOnce() -> Result<(), Errno>,
    ours: impl FnOnce(&Masked) -> Result<(), Errno>,
) -> c_int {
    status(run(in_arena(addr, len), kernel, ours))
}

fn in_arena(addr: usize, len: usize) -> bool {
    arena_part(addr, len.max(1)).is_some()
}

/// `mmap(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // libc passes negative offsets on; the kernel takes them for huge ones.
    let offset = narrow(offset.cast_unsigned());
    let request = MmapArgs {
        prot,
        flags,
        fd,
        offset,
    };
    let ours = flags & mem::MAP_ANONYMOUS != 0 || in_arena(addr as usize, len);
    let addr = addr as usize;
    let kernel = || map::kernel(addr, len, request);
    address(run(ours, kernel, |m| map::mmap(m, addr, len, request)))
}

/// `mmap64(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe { mmap(addr, len, prot, flags, fd, offset) }
}

/// `munmap(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(addr: *mut c_void, len: usize) -> c_int {
    let addr = addr as usize;
    let kernel = || {
        // SAFETY: the program's call.
        unsafe { mem::munmap(addr, len) }?;
        if let Some(span) = Span::new(addr, len) {
            unmanaged::uncount(span);
        }
        Ok(())
    };
    call(addr, len, kernel, |m| map::munmap(m, addr, len))
}

/// `mremap(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let call = MremapArgs {
        old: old as usize,
        old_len,
        new_len,
        flags,
        new: new as usize,
    };
    let fixed = flags & (mem::MREMAP_FIXED | mem::MREMAP_DONTUNMAP) != 0;
    let ours = in_arena(call.old, old_len) || (fixed && in_arena(call.new, new_len));
    let kernel = || call.kernel().map(Ok);
    let done = run(ours, kernel, |m| remap::mremap(m, call));
    let move_out = |call| remap::move_out(call, remap::copy_faulting);
    address(done.and_then(|done| done.or_else(move_out)))
}

/// `msync(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msync(addr: *mut c_void, len: usize, flags: c_int) -> c_int {
    let addr = addr as usize;
    // SAFETY: the program's call.
    let kernel = || unsafe { mem::msync(addr, len, flags) };
    call(addr, len, kernel, |_| advise::msync(addr, len, flags))
}

fn advised(addr: usize, len: usize, advice: i32) -> Result<(), Errno> {
    // SAFETY: the program's call.
    let kernel = || unsafe { mem::madvise(addr, len, advice) };
    run(in_arena(addr, len), kernel, |m| {
        advise::madvise(m, addr, len, advice)
    })
}

/// `madvise(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
    let addr = addr as usize;
    status(advised(addr, len, advice))
}

/// `posix_madvise(3)`: returns the error; `POSIX_MADV_DONTNEED` must not drop data, so does
/// nothing.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
    if advice == mem::MADV_DONTNEED {
        return 0;
    }
    match advised(addr as usize, len, advice) {
        Ok(()) => 0,
        Err(errno) => errno.0,
    }
}

/// `mprotect(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(addr: *mut c_void, len: usize, prot: c_int) -> c_int {
    let addr = addr as usize;
    // SAFETY: the program's call.
    let kernel = || unsafe { mem::mprotect(addr, len, prot) };
    call(addr, len, kernel, |m| protect::mprotect(m, addr, len, prot))
}

/// `pkey_mprotect(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pkey_mprotect(
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    key: c_int,
) -> c_int {
    let addr = addr as usize;
    if key != -1
        && in_arena(addr, len)
        && init::managed()
        && let Err(errno) = give_back::give_back(addr, len)
    {
        return status(Err(errno));
    }
    let kernel = || {
        // SAFETY: the program's call; what of it was managed has been given away.
        let done = unsafe { call4(nr::PKEY_MPROTECT, addr, len, int(prot), int(key)) };
        done.map(|_| ())
    };
    status(run(key == -1 && in_arena(addr, len), kernel, |m| {
        protect::mprotect(m, addr, len, prot)
    }))
}

/// `mlock(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(addr: *const c_void, len: usize) -> c_int {
    let addr = addr as usize;
    let kernel = || mem::mlock(addr, len);
    call(addr, len, kernel, |m| protect::mlock(m, addr, len))
}

/// `mlock2(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(addr: *const c_void, len: usize, flags: u32) -> c_int {
    let (addr, flags) = (addr as usize, flags as usize);
    let kernel = || {
        // SAFETY: changes residency only.
        unsafe { call3(nr::MLOCK2, addr, len, flags) }.map(|_| ())
    };
    call(addr, len, kernel, |m| protect::mlock2(m, addr, len, flags))
}

/// `munlock(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munlock(addr: *const c_void, len: usize) -> c_int {
    let addr = addr as usize;
    let kernel = || mem::munlock(addr, len);
    call(addr, len, kernel, |m| protect::munlock(m, addr, len))
}

/// `mlockall(2)`: in a managed process it succeeds and does nothing, because the kernel would try
/// to fill the whole arena.
#[unsafe(no_mangle)]
pub extern "C" fn mlockall(flags: c_int) -> c_int {
    if flags == 0 || flags == MCL_ONFAULT || flags & !(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0
    {
        return status(Err(Errno::EINVAL));
    }
    if init::managed() {
        return 0;
    }
    // SAFETY: changes residency only.
    status(unsafe { uzswap_sys::syscall::call1(nr::MLOCKALL, int(flags)) }.map(|_| ()))
}

/// `munlockall(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn munlockall() -> c_int {
    // SAFETY: changes residency only.
    status(unsafe { uzswap_sys::syscall::call0(nr::MUNLOCKALL) }.map(|_| ()))
}

/// Residency of `out.len()` pages from `addr`.
fn resident(addr: usize, out: &mut [u8]) -> Result<(), Errno> {
    if in_arena(addr, out.len() * PAGE_SIZE) && init::managed() {
        Masked::block(|m| protect::residency(m, addr, out))
    } else {
        mem::mincore(addr, out.len() * PAGE_SIZE, out)
    }
}

/// `mincore(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mincore(addr: *mut c_void, len: usize, vec: *mut c_uchar) -> c_int {
    let put = |from: usize, residency: &[u8]| {
        let (to, len) = (vec as usize + from, residency.len());
        // Elsewhere the kernel finds out whether it can be written.
        if arena_part(to, len).is_none() || !is_writable(to, len) {
            return user::write_bytes(to, residency);
        }
        // SAFETY: the caller's vector, in managed memory. It is brought in by a fault, as signals
        // are not blocked.
        unsafe {
            vec.add(from)
                .copy_from_nonoverlapping(residency.as_ptr(), len)
        };
        Ok(())
    };
    status(protect::mincore(addr as usize, len, resident, put))
}

static IOCTL: Next = Next::new(c"ioctl");

/// `ioctl(2)`: memory that the program registers with a userfaultfd of its own becomes the kernel's
/// first, since a range can have only one.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: usize, arg: *mut c_void) -> c_int {
    const UFFDIO_REGISTER: usize = 0xc020_aa00;
    if request == UFFDIO_REGISTER && init::managed() {
        // SAFETY: the request's argument starts with a range: address and length.
        let [addr, len] = unsafe { arg.cast::<[usize; 2]>().read_unaligned() };
        if let Err(errno) = give_back::give_back(addr, len) {
            return status(Err(errno));
        }
    }
    type Ioctl = unsafe extern "C" fn(c_int, usize, *mut c_void) -> c_int;
    // SAFETY: the symbol's type, its further argument passed as C passes variable ones.
    let real: Ioctl = unsafe { core::mem::transmute(IOCTL.get()) };
    // SAFETY: the caller's call.
    unsafe { real(fd, request, arg) }
}

/// Called by mimalloc in place of `prctl(2)` (the linker renames it). It only names its memory,
/// which would split the arena's one mapping.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_prctl(
    option: c_int,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
) -> c_int {
    const PR_SET_VMA: c_int = 0x5356_4d41;
    if option == PR_SET_VMA {
        return 0;
    }
    // SAFETY: the caller's call.
    match unsafe { call5(nr::PRCTL, int(option), a, b, c, d) } {
        Ok(value) => c_int::try_from(value).unwrap_or(c_int::MAX),
        Err(errno) => status(Err(errno)),
    }
}
