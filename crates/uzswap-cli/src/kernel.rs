//! *What*: checks the kernel, the container and their limits before the command starts. Each
//! refusal is one line with what is missing and what to do; the managed process would fail on the
//! same, but could say less about it.
//!
//! *Locking*: none. *Context*: `uzswap run`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr;

use anyhow::Result;
use uzswap_core::{ARENA_BASE, ARENA_LEN};
use uzswap_sys::seccomp::RET_TRAP;
use uzswap_sys::uffd::{self, Uffd};

use crate::args::FaultMode;
use crate::status::{FAILED, refused};

const SECCOMP_GET_ACTION_AVAIL: libc::c_uint = 2;

/// Fails if the engine cannot start in `mode` here. Returns a message if `auto` has to take a
/// slower mode.
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

/// Without userfaultfd, pages are filled through /proc/self/mem while they are inaccessible.
fn check_memory() -> Result<()> {
    let filled = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/proc/self/mem")
        .and_then(|memory| fill_inaccessible_page(&memory));
    filled.map_err(|error| refused(FAILED, no_memory(&error)))
}

fn fill_inaccessible_page(memory: &File) -> io::Result<()> {
    const LEN: usize = 4096;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address that the kernel picks.
    let at = unsafe { libc::mmap(ptr::null_mut(), LEN, libc::PROT_NONE, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let filled = memory.write_all_at(&[1], at.addr() as u64);
    // SAFETY: mapped just above; nothing points into it.
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

/// Opens a userfaultfd as the managed process will.
fn check_userfaultfd(mode: FaultMode) -> Result<()> {
    let flags = match mode {
        FaultMode::Thread => 0,
        _ => uffd::UFFD_USER_MODE_ONLY,
    };
    let opened = Uffd::open(flags | libc::O_CLOEXEC | libc::O_NONBLOCK);
    let uffd = opened.map_err(|error| refused(FAILED, no_userfaultfd(mode, error.0)))?;
    let wanted = uffd::feature::PAGEFAULT_FLAG_WP | uffd::feature::SIGBUS;
    let features = uffd.api(0).unwrap_or(0);
    let _ = uffd.close();
    if features & wanted != wanted {
        return Err(refused(
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
    let action = RET_TRAP;
    // SAFETY: asks whether the action is available; changes nothing.
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
        "this kernel has no seccomp filters, which the system call guard needs: use a kernel with \
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
            format!("the address range {range}, which uzswap needs, is taken: see /proc/self/maps")
        }
        Some(libc::ENOMEM) if address_space_is_limited() => {
            "the limit on address space is too low for the 4 TiB that uzswap reserves, which take no \
             memory: run 'ulimit -v unlimited'"
                .to_owned()
        }
        Some(libc::ENOMEM) => format!(
            "cannot reserve the address range {range} under strict overcommit: run \
             'sysctl vm.overcommit_memory=0'"
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
                let line = no_userfaultfd(mode, errno);
                assert!(line.contains(": "), "{line}");
                assert!(!line.contains('\n'), "{line}");
            }
        }
        assert!(no_arena(&io::Error::from_raw_os_error(libc::EEXIST)).contains("taken"));
        assert!(no_memory(&io::Error::from_raw_os_error(libc::ENOENT)).contains("mount /proc"));
        assert!(no_memory(&io::Error::from_raw_os_error(libc::EIO)).contains("proc_mem"));
    }
}
