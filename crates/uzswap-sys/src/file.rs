//! *What*: descriptors: open, read, write, stat, poll.
//! *Invariants*: none closes or duplicates a descriptor that it was not asked to.
//! *Locking*: none. *Context*: any; calls that wait say so.

use crate::syscall::{Result, addr, addr_mut, call1, call2, call3, call4, int, to_int};
use crate::{Errno, nr, thread::Timespec};
use core::ffi::CStr;

#[allow(missing_docs, reason = "see open(2) and fcntl(2)")]
mod consts {
    pub use crate::arch::abi::{O_DIRECT, O_DIRECTORY, O_NOFOLLOW};

    pub const AT_FDCWD: i32 = -100;
    pub const O_RDONLY: i32 = 0;
    pub const O_RDWR: i32 = 2;
    pub const O_ACCMODE: i32 = 3;
    pub const O_EXCL: i32 = 0o200;
    pub const O_NONBLOCK: i32 = 0o4000;
    pub const O_CLOEXEC: i32 = 0o2_000_000;
    pub const O_PATH: i32 = 0o10_000_000;
    pub const F_GETFD: i32 = 1;
    pub const F_GETFL: i32 = 3;
    pub const F_DUPFD_CLOEXEC: i32 = 1030;
    pub const MFD_CLOEXEC: u32 = 1;
    pub const POLLIN: i16 = 1;
    pub const X_OK: i32 = 1;
    pub const S_IFMT: u32 = 0o170_000;
    pub const S_IFREG: u32 = 0o100_000;
    pub const S_IFDIR: u32 = 0o040_000;
    pub const S_IFBLK: u32 = 0o060_000;
    pub const S_IFIFO: u32 = 0o010_000;
    pub const S_IFSOCK: u32 = 0o140_000;
    pub const S_ISUID: u32 = 0o4000;
    pub const S_ISGID: u32 = 0o2000;
}
pub use crate::arch::abi::Stat;
pub use consts::*;

/// The kernel's `struct pollfd`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "see poll(2)")]
pub struct PollFd {
    pub fd: i32,
    pub events: i16,
    pub revents: i16,
}

/// `openat(2)`.
///
/// # Errors
/// As openat(2).
pub fn openat(dir: i32, path: &CStr, flags: i32, mode: u32) -> Result<i32> {
    // SAFETY: the kernel reads the path.
    unsafe {
        call4(
            nr::OPENAT,
            int(dir),
            path.as_ptr() as usize,
            int(flags),
            mode as usize,
        )
    }
    .map(to_int)
}

/// `close(2)`. The descriptor is gone also when this fails.
///
/// # Errors
/// As close(2).
pub fn close(fd: i32) -> Result<()> {
    // SAFETY: touches no memory.
    unsafe { call1(nr::CLOSE, int(fd)) }.map(drop)
}

/// `read(2)`. May wait.
///
/// # Errors
/// As read(2).
pub fn read(fd: i32, buf: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes within the slice.
    unsafe { call3(nr::READ, int(fd), buf.as_mut_ptr() as usize, buf.len()) }
}

/// `write(2)`. May wait.
///
/// # Errors
/// As write(2).
pub fn write(fd: i32, buf: &[u8]) -> Result<usize> {
    // SAFETY: the kernel reads within the slice.
    unsafe { call3(nr::WRITE, int(fd), buf.as_ptr() as usize, buf.len()) }
}

/// Writes the whole slice, through interruptions and short writes. May wait.
///
/// # Errors
/// As write(2); what came before the error is written.
pub fn write_all(fd: i32, mut buf: &[u8]) -> Result<()> {
    while !buf.is_empty() {
        match write(fd, buf) {
            Ok(0) => return Err(Errno::EIO),
            Ok(n) => buf = buf.get(n..).unwrap_or(&[]),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// `pread(2)`. May wait.
///
/// # Errors
/// As pread(2).
pub fn pread(fd: i32, buf: &mut [u8], offset: u64) -> Result<usize> {
    let (at, len, offset) = (buf.as_mut_ptr() as usize, buf.len(), word(offset));
    // SAFETY: the kernel writes within the slice.
    unsafe { call4(nr::PREAD64, int(fd), at, len, offset) }
}

/// `pwrite(2)`. May wait.
///
/// # Errors
/// As pwrite(2).
pub fn pwrite(fd: i32, buf: &[u8], offset: u64) -> Result<usize> {
    let (at, len, offset) = (buf.as_ptr() as usize, buf.len(), word(offset));
    // SAFETY: the kernel reads within the slice.
    unsafe { call4(nr::PWRITE64, int(fd), at, len, offset) }
}

/// `fstat(2)`.
///
/// # Errors
/// As fstat(2).
pub fn fstat(fd: i32) -> Result<Stat> {
    let mut stat = Stat::default();
    // SAFETY: `Stat` is the kernel's layout.
    unsafe { call2(nr::FSTAT, int(fd), addr_mut(&mut stat)) }?;
    Ok(stat)
}

/// `newfstatat(2)`; `flags`: `AT_SYMLINK_NOFOLLOW`.
///
/// # Errors
/// As fstatat(2).
pub fn fstatat(dir: i32, path: &CStr, flags: i32) -> Result<Stat> {
    let mut stat = Stat::default();
    let out = addr_mut(&mut stat);
    // SAFETY: `Stat` is the kernel's layout; the path is read.
    unsafe {
        call4(
            nr::NEWFSTATAT,
            int(dir),
            path.as_ptr() as usize,
            out,
            int(flags),
        )
    }?;
    Ok(stat)
}

/// Whether the file at `path` may be accessed so, by `faccessat(2)`.
#[must_use]
pub fn accessible(dir: i32, path: &CStr, mode: i32) -> bool {
    let at = path.as_ptr() as usize;
    // SAFETY: the path is read.
    unsafe { call3(nr::FACCESSAT, int(dir), at, int(mode)) }.is_ok()
}

/// `readlink(2)`: the length of what the link says, as far as it fits `out`.
///
/// # Errors
/// As readlink(2).
pub fn readlink(path: &CStr, out: &mut [u8]) -> Result<usize> {
    let at = path.as_ptr() as usize;
    let to = out.as_mut_ptr() as usize;
    // SAFETY: the path is read, and no more than the buffer written.
    unsafe { call4(nr::READLINKAT, int(AT_FDCWD), at, to, out.len()) }
}

/// `fallocate(2)` that gives a range of a file's blocks back to the file system; the file keeps its
/// size and reads as zero there. May wait.
///
/// # Errors
/// `EOPNOTSUPP`: this file system cannot; else as fallocate(2).
pub fn punch_hole(fd: i32, offset: u64, len: u64) -> Result<()> {
    const FALLOC_FL_KEEP_SIZE: usize = 1;
    const FALLOC_FL_PUNCH_HOLE: usize = 2;
    let mode = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE;
    // SAFETY: changes a file; mappings of the range are their owner's concern.
    unsafe { call4(nr::FALLOCATE, int(fd), mode, word(offset), word(len)) }.map(drop)
}

/// `ioctl(BLKDISCARD)`: tells a block device that a range is not needed any more. What it reads as
/// then is the device's choice. Offset and length in multiples of its logical block. May wait.
///
/// # Errors
/// `EOPNOTSUPP`: this device cannot; `ENOTTY`: not a block device; else as the device has it.
pub fn block_discard(fd: i32, offset: u64, len: u64) -> Result<()> {
    const BLKDISCARD: usize = 0x1277;
    let range = [offset, len];
    // SAFETY: the kernel reads the two words.
    unsafe { call3(nr::IOCTL, int(fd), BLKDISCARD, addr(&range)) }.map(drop)
}

/// `memfd_create(2)` with `MFD_*` flags.
///
/// # Errors
/// As `memfd_create(2)`.
pub fn memfd_create(name: &CStr, flags: u32) -> Result<i32> {
    // SAFETY: the kernel reads the name.
    unsafe { call2(nr::MEMFD_CREATE, name.as_ptr() as usize, flags as usize) }.map(to_int)
}

/// `pipe2(2)`: the read end and the write end of a new pipe.
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn pipe2(flags: i32) -> Result<[i32; 2]> {
    let mut ends = [-1; 2];
    // SAFETY: the kernel writes two ints.
    unsafe { call2(nr::PIPE2, addr_mut(&mut ends), int(flags)) }?;
    Ok(ends)
}

/// Duplicates `fd` to the lowest free number not below `least`, close-on-exec.
///
/// # Errors
/// `EMFILE`, `EBADF`, or `EINVAL` where `least` is over the limit.
pub fn dupfd_cloexec(fd: i32, least: i32) -> Result<i32> {
    fcntl(fd, F_DUPFD_CLOEXEC, int(least)).map(to_int)
}

/// `dup3(2)`: makes `new` another number for what `old` is, closing what `new` was.
///
/// # Errors
/// `EBADF`, or `EINVAL` where both are the same.
pub fn dup3(old: i32, new: i32, flags: i32) -> Result<()> {
    // SAFETY: no memory is involved.
    unsafe { call3(nr::DUP3, int(old), int(new), int(flags)) }.map(drop)
}

/// `fcntl(2)` with an integer argument.
///
/// # Errors
/// As fcntl(2).
pub fn fcntl(fd: i32, command: i32, arg: usize) -> Result<usize> {
    // SAFETY: callers pass commands with integer arguments; a wrong address gives EFAULT for
    // reading ones. Commands that write through `arg` are not among the constants here.
    unsafe { call3(nr::FCNTL, int(fd), int(command), arg) }
}

/// `poll(2)`, through ppoll; `timeout` is relative, `None` waits for ever. Returns how many are
/// ready.
///
/// # Errors
/// `EINTR`: a signal.
pub fn poll(fds: &mut [PollFd], timeout: Option<&Timespec>) -> Result<usize> {
    // ppoll writes the time left back, so it gets a copy.
    let mut left = timeout.copied();
    let (at, left) = (fds.as_mut_ptr() as usize, left.as_mut().map_or(0, addr_mut));
    // SAFETY: the kernel reads and writes the slice and the copy.
    unsafe { call4(nr::PPOLL, at, fds.len(), left, 0) }
}

/// `getrandom(2)`: fills the slice. Waits only before the system's pool is first seeded.
///
/// # Errors
/// As getrandom(2).
pub fn getrandom(buf: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
        // SAFETY: the kernel writes within the slice.
        match unsafe { call3(nr::GETRANDOM, rest.as_mut_ptr() as usize, rest.len(), 0) } {
            Ok(n) => done += n,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// An offset or length in a file for the kernel.
#[expect(clippy::cast_possible_truncation, reason = "u64 is usize here")]
const fn word(value: u64) -> usize {
    value as usize
}
