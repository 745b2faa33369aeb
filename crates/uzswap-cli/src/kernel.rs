//! Checks on the kernel and its limits before the command starts, each with one line that says what
//! is missing and what to do. The managed process would find the same, but can say less about it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr;

use anyhow::Result;
use uzswap_core::{ARENA_BASE, ARENA_LEN};

use crate::args::FaultMode;
use crate::status::{FAILED, refused};

const UFFD_USER_MODE_ONLY: libc::c_int = 1;
const UFFD_API: u64 = 0xaa;
/// `_IOWR(0xaa, 0x3f, struct uffdio_api)`.
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
/// `_IO(0xaa, 0)` on /dev/userfaultfd.
const USERFAULTFD_IOC_NEW: libc::c_ulong = 0xaa00;
const UFFD_FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
const UFFD_FEATURE_SIGBUS: u64 = 1 << 7;
const SECCOMP_GET_ACTION_AVAIL: libc::c_uint = 2;
const SECCOMP_RET_TRAP: u32 = 0x0003_0000;

/// `struct uffdio_api`.
#[repr(C)]
struct UffdioApi {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// Refuses a kernel, container or limit under which the engine cannot start in `mode`. Tells why, if the mode that it
/// is to choose cannot be the fastest.
pub fn check(mode: FaultMode) -> Result<Option<String>> {
    let refused = match mode {
        FaultMode::Segv => None,
        FaultMode::Auto => check_userfaultfd(mode).err(),
        FaultMode::Signal | FaultMode::Thread => {
            check_userfaultfd(mode)?;
            None
        }
    };
    let without = mode == FaultMode::Segv || refused.is_some();
    if without {
        check_memory()?;
    }
    if mode != FaultMode::Thread {
        check_seccomp()?;
    }
    check_arena(if without {
        libc::PROT_NONE
    } else {
        libc::PROT_READ | libc::PROT_WRITE
    })?;
    Ok(refused.map(|why| format!("segv mode, which is slower: {why}")))
}

/// Without userfaultfd pages are filled through /proc/self/mem while nobody may access them.
fn check_memory() -> Result<()> {
    let filled = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/proc/self/mem")
        .and_then(|memory| fill_closed_page(&memory));
    filled.map_err(|error| refused(FAILED, no_memory(&error)))
}

fn fill_closed_page(memory: &File) -> io::Result<()> {
    const LEN: usize = 4096;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping where the kernel likes.
    let at = unsafe { libc::mmap(ptr::null_mut(), LEN, libc::PROT_NONE, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let filled = memory.write_all_at(&[1], at.addr() as u64);
    // SAFETY: the mapping made just now; nothing points into it.
    unsafe { libc::munmap(at, LEN) };
    filled
}

fn no_memory(error: &io::Error) -> String {
    let next = match error.raw_os_error() {
        Some(libc::ENOENT) => "mount /proc, or allow userfaultfd",
        _ => {
            "allow userfaultfd, or a kernel without proc_mem.force_override=never (gVisor has neither)"
        }
    };
    format!(
        "without userfaultfd uzswap fills memory through /proc/self/mem, which fails ({error}): {next}"
    )
}

fn check_userfaultfd(mode: FaultMode) -> Result<()> {
    let fd = if mode == FaultMode::Thread {
        open_with_kernel_faults()
    } else {
        open_userfaultfd(UFFD_USER_MODE_ONLY).or_else(|error| match error.raw_os_error() {
            // Linux before 5.11 does not know the flag.
            Some(libc::EINVAL) => open_userfaultfd(0),
            _ => Err(error),
        })
    }
    .map_err(|error| refused(FAILED, no_userfaultfd(mode, &error)))?;

    let wanted = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_SIGBUS;
    let mut api = UffdioApi {
        api: UFFD_API,
        features: 0,
        ioctls: 0,
    };
    // SAFETY: the descriptor is a userfaultfd and api is the struct that this ioctl fills.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API, &raw mut api) };
    if done != 0 || api.features & wanted != wanted {
        return Err(refused(
            FAILED,
            "this kernel's userfaultfd cannot write-protect or signal: uzswap needs Linux 5.7 or later \
             on x86-64",
        ));
    }
    Ok(())
}

fn open_userfaultfd(flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: userfaultfd takes flags only.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_userfaultfd,
            flags | libc::O_CLOEXEC | libc::O_NONBLOCK,
        )
    };
    owned(fd)
}

/// A userfaultfd that serves faults inside system calls too.
fn open_with_kernel_faults() -> io::Result<OwnedFd> {
    open_userfaultfd(0).or_else(|error| {
        let device = File::open("/dev/userfaultfd").map_err(|_| error)?;
        // SAFETY: this ioctl takes open flags and gives a new descriptor.
        let fd = unsafe {
            libc::ioctl(
                device.as_raw_fd(),
                USERFAULTFD_IOC_NEW,
                libc::O_CLOEXEC | libc::O_NONBLOCK,
            )
        };
        owned(fd.into())
    })
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(fd) {
        // SAFETY: the kernel just gave this descriptor and nothing else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn no_userfaultfd(mode: FaultMode, error: &io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(libc::ENOSYS) => {
            "no userfaultfd here: the kernel is built without CONFIG_USERFAULTFD, or a seccomp profile \
             hides it: use another kernel, or allow userfaultfd in the profile"
        }
        Some(libc::EPERM) if mode == FaultMode::Thread => {
            "--fault-mode thread needs root, or 'sysctl vm.unprivileged_userfaultfd=1', or read access \
             to /dev/userfaultfd: grant one, or use --fault-mode signal"
        }
        Some(libc::EPERM) => {
            "userfaultfd is not permitted here: the container's seccomp profile forbids it: allow \
             userfaultfd in the profile (docker: --security-opt seccomp=PROFILE), or, on Linux before \
             5.11, 'sysctl vm.unprivileged_userfaultfd=1'"
        }
        Some(libc::EMFILE | libc::ENFILE) => {
            "too many open files: no userfaultfd can be opened: raise 'ulimit -n'"
        }
        _ => return format!("no userfaultfd: {error}"),
    };
    why.to_owned()
}

fn check_seccomp() -> Result<()> {
    let action = SECCOMP_RET_TRAP;
    // SAFETY: asks whether one action, which action holds, is available; changes nothing.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            SECCOMP_GET_ACTION_AVAIL,
            0,
            &raw const action,
        )
    };
    if answer == 0 {
        return Ok(());
    }
    Err(refused(
        FAILED,
        "no seccomp filters here, which the system call guard needs: use a kernel with \
         CONFIG_SECCOMP_FILTER, or --fault-mode thread as root",
    ))
}

/// Maps the arena's address range for a moment, as the managed process will.
fn check_arena(prot: libc::c_int) -> Result<()> {
    let wanted = ptr::without_provenance_mut::<libc::c_void>(ARENA_BASE);
    // SAFETY: NOREPLACE: the mapping replaces nothing.
    let at = unsafe {
        libc::mmap(
            wanted,
            ARENA_LEN,
            prot,
            libc::MAP_PRIVATE
                | libc::MAP_ANONYMOUS
                | libc::MAP_NORESERVE
                | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        let error = io::Error::last_os_error();
        return Err(refused(FAILED, no_arena(&error)));
    }
    // SAFETY: this range was mapped just above and nothing points into it.
    unsafe { libc::munmap(at, ARENA_LEN) };
    if at == wanted {
        Ok(())
    } else {
        Err(refused(
            FAILED,
            no_arena(&io::Error::from_raw_os_error(libc::EEXIST)),
        ))
    }
}

fn no_arena(error: &io::Error) -> String {
    let range = format!("{ARENA_BASE:#x}-{:#x}", ARENA_BASE + ARENA_LEN);
    match error.raw_os_error() {
        Some(libc::EEXIST) => {
            format!("the address range {range} that uzswap manages is taken: see /proc/self/maps")
        }
        Some(libc::ENOMEM) if address_space_is_limited() => {
            "the limit on address space is too low for the 4 TiB that uzswap reserves (it uses no \
             memory for them): 'ulimit -v unlimited'"
                .to_owned()
        }
        Some(libc::ENOMEM) => format!(
            "cannot reserve address space ({range}): with strict overcommit this needs \
             'sysctl vm.overcommit_memory=0' or 1"
        ),
        _ => format!("cannot reserve the address range {range}: {error}"),
    }
}

fn address_space_is_limited() -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: limit is writable for the call.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) } == 0;
    known && limit.rlim_cur != libc::RLIM_INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_says_what_to_do() {
        for errno in [libc::ENOSYS, libc::EPERM, libc::EMFILE] {
            for mode in [FaultMode::Auto, FaultMode::Thread] {
                let line = no_userfaultfd(mode, &io::Error::from_raw_os_error(errno));
                assert!(line.contains(": "), "{line}");
                assert!(!line.contains('\n'), "{line}");
            }
        }
        assert!(no_arena(&io::Error::from_raw_os_error(libc::EEXIST)).contains("taken"));
        assert!(no_memory(&io::Error::from_raw_os_error(libc::ENOENT)).contains("mount /proc"));
        assert!(no_memory(&io::Error::from_raw_os_error(libc::EIO)).contains("proc_mem"));
    }
}
