//! *What*: checks the kernel, the container and their limits before the command starts. Each
//! refusal is one line with what is missing and what to do; the managed process would fail on the
//! same, but could say less about it.
//!
//! *Locking*: none. *Context*: `uzswap run`, `uzswap doctor`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use anyhow::Result;
use uzswap_core::{ARENA_BASE, ARENA_LEN};
use uzswap_sys::mem::{
    self, MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE, PROT_NONE, PROT_READ,
    PROT_WRITE,
};
use uzswap_sys::seccomp::RET_TRAP;
use uzswap_sys::uffd::{self, Uffd};
use uzswap_sys::{Errno, PAGE_SIZE};

use crate::args::FaultMode;
use crate::os;
use crate::status::{FAILED, refused};

const SECCOMP_GET_ACTION_AVAIL: libc::c_uint = 2;

/// How page faults will be served.
#[derive(Debug)]
pub struct Served {
    /// Never `Auto`.
    pub mode: FaultMode,
    /// Why `auto` has to take a slower mode, if it has to.
    pub slower: Option<String>,
}

/// How the engine serves faults here if `mode` is asked for. Fails if it cannot start.
pub fn check(mode: FaultMode) -> Result<Served> {
    let refused = match mode {
        FaultMode::Segv => None,
        FaultMode::Auto => check_userfaultfd(mode).err(),
        FaultMode::Signal | FaultMode::Thread => {
            check_userfaultfd(mode)?;
            None
        }
    };
    let mut prot = PROT_READ | PROT_WRITE;
    if mode == FaultMode::Segv || refused.is_some() {
        check_memory()?;
        prot = PROT_NONE;
    }
    if mode != FaultMode::Thread {
        check_seccomp()?;
    }
    check_arena(prot).map_err(|errno| refused!(FAILED, "{}", no_arena(errno)))?;
    Ok(Served {
        mode: match mode {
            FaultMode::Auto if refused.is_some() => FaultMode::Segv,
            FaultMode::Auto => FaultMode::Signal,
            given => given,
        },
        slower: refused.map(|why| format!("segv mode, which is slower: {why}")),
    })
}

/// Without userfaultfd, pages are filled through /proc/self/mem while they are inaccessible.
fn check_memory() -> Result<()> {
    let filled = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/proc/self/mem")
        .and_then(|memory| fill_inaccessible_page(&memory));
    filled.map_err(|error| refused!(FAILED, "{}", no_memory(&error)))
}

fn fill_inaccessible_page(memory: &File) -> io::Result<()> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address that the kernel picks.
    let at = unsafe { mem::mmap(0, PAGE_SIZE, PROT_NONE, flags, -1, 0) };
    let at = at.map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
    let filled = memory.write_all_at(&[1], at as u64);
    // SAFETY: mapped just above; nothing points into it.
    let _ = unsafe { mem::munmap(at, PAGE_SIZE) };
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

/// Opens a userfaultfd as the managed process will.
fn check_userfaultfd(mode: FaultMode) -> Result<()> {
    let flags = match mode {
        FaultMode::Thread => 0,
        _ => uffd::UFFD_USER_MODE_ONLY,
    };
    let opened = Uffd::open(flags | libc::O_CLOEXEC | libc::O_NONBLOCK);
    let uffd = opened.map_err(|error| refused!(FAILED, "{}", no_userfaultfd(mode, error.0)))?;
    let wanted = uffd::feature::PAGEFAULT_FLAG_WP | uffd::feature::SIGBUS;
    let features = uffd.api(0).unwrap_or(0);
    let _ = uffd.close();
    if features & wanted != wanted {
        return Err(refused!(
            FAILED,
            "this kernel's userfaultfd cannot write-protect or signal: use Linux 5.7 or later on x86-64",
        ));
    }
    Ok(())
}

fn no_userfaultfd(mode: FaultMode, errno: i32) -> String {
    let why = match errno {
        libc::ENOSYS => {
            "no userfaultfd: the kernel is built without CONFIG_USERFAULTFD, or a seccomp profile hides \
             it: use another kernel, or allow userfaultfd in the profile"
        }
        libc::EPERM if mode == FaultMode::Thread => {
            "--fault-mode thread needs root, or 'sysctl vm.unprivileged_userfaultfd=1', or read access \
             to /dev/userfaultfd: grant one, or use --fault-mode signal"
        }
        libc::EPERM => {
            "userfaultfd is not permitted by the container's seccomp profile: allow userfaultfd in the \
             profile (docker: --security-opt seccomp=PROFILE), or, on Linux before 5.11, run 'sysctl \
             vm.unprivileged_userfaultfd=1'"
        }
        libc::EMFILE | libc::ENFILE => {
            "cannot open a userfaultfd, too many files are open: raise 'ulimit -n'"
        }
        _ => return format!("no userfaultfd: {}", io::Error::from_raw_os_error(errno)),
    };
    why.to_owned()
}

fn check_seccomp() -> Result<()> {
    let (get, action) = (SECCOMP_GET_ACTION_AVAIL, std::ptr::from_ref(&RET_TRAP));
    // SAFETY: asks whether the action is available; changes nothing.
    if unsafe { libc::syscall(libc::SYS_seccomp, get, 0, action) } == 0 {
        return Ok(());
    }
    Err(refused!(
        FAILED,
        "this kernel has no seccomp filters, which the system call guard needs: use a kernel with \
         CONFIG_SECCOMP_FILTER, or --fault-mode thread as root",
    ))
}

/// Maps the arena's address range for a moment, as the managed process will.
fn check_arena(prot: i32) -> Result<(), Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE: the mapping replaces nothing. Mapped here, nothing points into it.
    let at = unsafe {
        let at = mem::mmap(ARENA_BASE, ARENA_LEN, prot, flags, -1, 0)?;
        mem::munmap(at, ARENA_LEN)?;
        at
    };
    // Kernels before 4.17 take the address for a hint.
    if at == ARENA_BASE {
        Ok(())
    } else {
        Err(Errno::EEXIST)
    }
}

fn no_arena(errno: Errno) -> String {
    let range = format!("{ARENA_BASE:#x}-{:#x}", ARENA_BASE + ARENA_LEN);
    match errno {
        Errno::EEXIST => {
            format!("the address range {range}, which uzswap needs, is taken: see /proc/self/maps")
        }
        Errno::ENOMEM if address_space_is_limited() => {
            "the limit on address space is too low for the 4 TiB that uzswap reserves, which take no \
             memory: run 'ulimit -v unlimited'"
                .to_owned()
        }
        Errno::ENOMEM => format!(
            "cannot reserve the address range {range} under strict overcommit: run \
             'sysctl vm.overcommit_memory=0'"
        ),
        _ => {
            let error = io::Error::from_raw_os_error(errno.0);
            format!("cannot reserve the address range {range}: {error}")
        }
    }
}

fn address_space_is_limited() -> bool {
    os::limit(libc::RLIMIT_AS) != libc::RLIM_INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_says_what_to_do() {
        for errno in [libc::ENOSYS, libc::EPERM, libc::EMFILE] {
            for mode in [FaultMode::Auto, FaultMode::Thread] {
                let line = no_userfaultfd(mode, errno);
                assert!(line.contains(": "), "{line}");
                assert!(!line.contains('\n'), "{line}");
            }
        }
        assert!(no_arena(Errno::EEXIST).contains("taken"));
        assert!(no_memory(&io::Error::from_raw_os_error(libc::ENOENT)).contains("mount /proc"));
        assert!(no_memory(&io::Error::from_raw_os_error(libc::EIO)).contains("proc_mem"));
    }
}
