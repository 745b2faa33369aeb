//! The swap device as the processes of a group share it.
//!
//! *What*: holds the device and the memory of its slot allocator open, and says in the group's
//! configuration under which numbers, so that every process opens them anew by `/proc`.
//! *Invariants*: both stay open as long as the group lives. The memory is a memfd: nothing of it is
//! left behind, whatever kills us.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use uzswap_core::group::SwapConfig;
use uzswap_core::swap::Slots;

use crate::swap::SwapArea;

const NAME: &CStr = c"uzswap-slots";

/// The device and its table of slots, open.
#[derive(Debug)]
pub struct SwapGroup {
    _area: SwapArea,
    _table: File,
}

impl SwapGroup {
    /// Shares `area` through `config`.
    pub fn new(area: SwapArea, encrypt: bool, config: &SwapConfig) -> Result<Self> {
        let nr_slots = u32::try_from(area.nr_slots).unwrap_or(u32::MAX);
        let table =
            table(nr_slots, area.rotational).context("cannot make the table of swap slots")?;
        let set = |cell: &AtomicU32, value| cell.store(value, Ordering::Relaxed);
        set(&config.device_fd, area.file.as_raw_fd().unsigned_abs());
        set(&config.table_fd, table.as_raw_fd().unsigned_abs());
        set(&config.direct, area.direct.into());
        set(&config.encrypt, encrypt.into());
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino());
        config.pid_namespace.store(namespace, Ordering::Relaxed);
        config.name.set(&area.path.to_string_lossy());
        config.nr_slots.store(nr_slots.into(), Ordering::Relaxed);
        Ok(SwapGroup {
            _area: area,
            _table: table,
        })
    }
}

/// Memory for `nr_slots` slots, none of them in use.
fn table(nr_slots: u32, rotational: bool) -> io::Result<File> {
    let len = Slots::memory_len(nr_slots);
    // SAFETY: a C string; the flag is a valid one.
    let fd = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: memfd_create gave this descriptor, and nothing else owns it.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(len as u64)?;
    // SAFETY: a fresh shared mapping at an address that the kernel picks; it is unmapped below, when the
    // device that was attached to it is gone.
    unsafe {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, fd, 0);
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Slots::attach(at.cast(), nr_slots, &|_| true).set_kind(rotational, true);
        libc::munmap(at, len);
    }
    Ok(file)
}
