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
use uzswap_core::Slots;
use uzswap_core::group::{NR_PROCESSES, SwapConfig};

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
        let len = Slots::len_for(area.nr_slots, NR_PROCESSES as u64);
        let table = table(len).context("cannot make the table of swap slots")?;
        let set = |cell: &AtomicU32, value| cell.store(value, Ordering::Relaxed);
        set(&config.device_fd, area.file.as_raw_fd().unsigned_abs());
        set(&config.table_fd, table.as_raw_fd().unsigned_abs());
        set(&config.direct, area.direct.into());
        set(&config.encrypt, encrypt.into());
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino());
        config.pid_namespace.store(namespace, Ordering::Relaxed);
        config.name.set(&area.path.to_string_lossy());
        config.nr_slots.store(area.nr_slots, Ordering::Relaxed);
        Ok(SwapGroup {
            _area: area,
            _table: table,
        })
    }
}

fn table(len: u64) -> io::Result<File> {
    // SAFETY: a C string; the flag is a valid one.
    let fd = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: memfd_create gave this descriptor, and nothing else owns it.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(len)?;
    Ok(file)
}
