//! *What*: the few system calls that std lacks.
//!
//! *Locking*: none. *Context*: any.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::{self, NonNull};

/// An empty memory file, close-on-exec.
pub fn memory_file(name: &CStr) -> io::Result<File> {
    // SAFETY: a NUL-terminated name and a valid flag.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: memfd_create returned this descriptor and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Maps the first `len` bytes of a file, shared and readable. Stays mapped until the caller unmaps
/// it.
pub fn map_shared(file: &File, len: usize, writable: bool) -> io::Result<NonNull<libc::c_void>> {
    let prot = match writable {
        true => libc::PROT_READ | libc::PROT_WRITE,
        false => libc::PROT_READ,
    };
    // SAFETY: a new mapping at an address that the kernel picks replaces nothing.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            prot,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    match NonNull::new(at) {
        _ if at == libc::MAP_FAILED => Err(io::Error::last_os_error()),
        Some(at) => Ok(at),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Locks a file with flock(2) for as long as it is open anywhere.
///
/// # Errors
/// `WouldBlock`: another process holds the lock.
pub fn lock(file: &File) -> io::Result<()> {
    flock(file, libc::LOCK_EX | libc::LOCK_NB)
}

/// As [`lock`], but shared with others that do so.
///
/// # Errors
/// `WouldBlock`: another process holds the lock alone.
pub fn lock_shared(file: &File) -> io::Result<()> {
    flock(file, libc::LOCK_SH | libc::LOCK_NB)
}

/// As [`lock`], and waits for whoever holds it.
pub fn lock_waiting(file: &File) -> io::Result<()> {
    flock(file, libc::LOCK_EX)
}

fn flock(file: &File, how: libc::c_int) -> io::Result<()> {
    // SAFETY: no pointers; the descriptor is open.
    match unsafe { libc::flock(file.as_raw_fd(), how) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// This process's soft limit on `resource`; infinity if it cannot be told.
pub fn limit(resource: libc::__rlimit_resource_t) -> u64 {
    let (rlim_cur, rlim_max) = (libc::RLIM_INFINITY, libc::RLIM_INFINITY);
    let mut limit = libc::rlimit { rlim_cur, rlim_max };
    // SAFETY: fills the struct.
    let _ = unsafe { libc::getrlimit(resource, &raw mut limit) };
    limit.rlim_cur
}
