//! *What*: the few system calls that std lacks.
//!
//! *Locking*: none. *Context*: any command.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::{self, NonNull};

/// Effective user id.
pub fn euid() -> u32 {
    // SAFETY: geteuid has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

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
    // SAFETY: no pointers; the descriptor is open.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
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

/// Whether two processes share their memory, as after vfork; none if the kernel does not tell.
pub fn share_memory(a: u32, b: u32) -> Option<bool> {
    // From linux/kcmp.h.
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: no pointers; unused arguments are zero.
    match unsafe { libc::syscall(libc::SYS_kcmp, a, b, KCMP_VM, 0, 0) } {
        0 => Some(true),
        1..=3 => Some(false),
        _ => None,
    }
}
