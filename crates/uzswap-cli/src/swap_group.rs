//! The swap device as the processes of a group share it.
//!
//! *What*: holds the device and the memory of its slot allocator open, and says in the group's
//! configuration under which numbers, so that every process opens them anew by `/proc`.
//! *Invariants*: both stay open as long as the group lives. The memory is a memfd: nothing of it is
//! left behind, whatever kills us. A file that the user named stays, but takes no space once the run is over.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use uzswap_core::group::{FREE, Group, LIVE, Process, SLOTS_KEPT, SwapConfig, is_alive};
use uzswap_core::swap::Slots;
use uzswap_io::Device;
use uzswap_io::device::Fd;

use crate::swap::SwapArea;

const NAME: &CStr = c"uzswap-slots";

/// The device and its table of slots, open.
#[derive(Debug)]
pub struct SwapGroup {
    area: SwapArea,
    _table: File,
}

impl SwapGroup {
    /// Shares `area` through `config`.
    pub fn new(area: SwapArea, encrypt: bool, by_page: bool, config: &SwapConfig) -> Result<Self> {
        let nr_slots = u32::try_from(area.nr_slots).unwrap_or(u32::MAX);
        let table =
            table(nr_slots, area.rotational).context("cannot make the table of swap slots")?;
        let set = |cell: &AtomicU32, value| cell.store(value, Ordering::Relaxed);
        set(&config.device_fd, area.file.as_raw_fd().unsigned_abs());
        set(&config.table_fd, table.as_raw_fd().unsigned_abs());
        set(&config.direct, area.direct.into());
        set(&config.encrypt, encrypt.into());
        set(&config.by_page, by_page.into());
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino());
        config.pid_namespace.store(namespace, Ordering::Relaxed);
        config.name.set(&area.path.to_string_lossy());
        config.nr_slots.store(nr_slots.into(), Ordering::Relaxed);
        Ok(SwapGroup {
            area,
            _table: table,
        })
    }

    /// The run is over. What is in a file that has a name is given back to the disk, unless a process of the group
    /// goes on that may need it.
    pub fn end(self, group: &Group) {
        let file = &self.area.file;
        let has_name = file
            .metadata()
            .is_ok_and(|meta| meta.is_file() && meta.nlink() > 0);
        if !has_name || !group.used().iter().all(has_ended) {
            return;
        }
        if let Ok(device) = Device::<Fd>::new(file.as_raw_fd(), self.area.nr_slots) {
            // A file system that cannot keeps the space, as it would for any file.
            let _ = device.discard(0, self.area.nr_slots);
        }
    }
}

/// Whether a slot's process has surely ended: not if its number may be another pid namespace's, or is not known.
fn has_ended(process: &Process) -> bool {
    match process.state.load(Ordering::Acquire) {
        FREE => true,
        LIVE => {
            process.swap_user.load(Ordering::Relaxed) != SLOTS_KEPT
                && !is_alive(process.pid.load(Ordering::Relaxed))
        }
        _ => false,
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
