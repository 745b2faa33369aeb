//! The swap devices as the processes of a group share them.
//!
//! *What*: holds each device and the memory of its slot allocator open, and says in the group's
//! configuration under which numbers, so that every process opens them anew by `/proc`.
//! *Invariants*: all stay open as long as the group lives. The memory is a memfd: nothing of it is
//! left behind, whatever kills us. A file that the user named stays, but takes no space once the run is over.

use std::cmp::Reverse;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use uzswap_group::group::{
    DeviceConfig, FREE, Group, LIVE, Process, SLOTS_KEPT, SwapConfig, is_alive,
};
use uzswap_io::device::Fd;
use uzswap_io::{Device, MAX_DEVICE_SLOTS};
use uzswap_slots::{CLUSTER_SLOTS, Slots};

use crate::swap::SwapArea;

const NAME: &CStr = c"uzswap-slots";
/// Numbers between the slots of two devices, so that nothing is ever taken for going on from one to the other. Also the
/// slots of the smallest device.
const GAP: u64 = CLUSTER_SLOTS as u64;

/// The devices and their tables of slots, open.
#[derive(Debug)]
pub struct SwapGroup(Vec<(SwapArea, File)>);

impl SwapGroup {
    /// Shares `areas` through `config`, those of the highest priority first.
    pub fn new(mut areas: Vec<SwapArea>, encrypt: bool, config: &SwapConfig) -> Result<Self> {
        // Stable: what has the same priority keeps the order in which it was named.
        areas.sort_by_key(|area| Reverse(area.priority));
        config.encrypt.store(encrypt.into(), Ordering::Relaxed);
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino());
        config.pid_namespace.store(namespace, Ordering::Relaxed);
        let mut first = 0;
        let mut shared = Vec::new();
        for (mut area, device) in areas.into_iter().zip(&config.devices) {
            area.nr_slots = area.nr_slots.min(MAX_DEVICE_SLOTS.saturating_sub(first));
            if area.nr_slots < GAP {
                bail!("--swap takes 1 TiB in all, and more is asked for: see --swap-max");
            }
            let table = share(&area, first, device)?;
            first += area.nr_slots + GAP;
            shared.push((area, table));
        }
        Ok(SwapGroup(shared))
    }

    /// The run is over. What is in files that have names is given back to the disk, unless a process of the group
    /// goes on that may need it.
    pub fn end(self, group: &Group) {
        if !group.used().iter().all(has_ended) {
            return;
        }
        for (SwapArea { file, nr_slots, .. }, _) in self.0 {
            let has_name = file
                .metadata()
                .is_ok_and(|meta| meta.is_file() && meta.nlink() > 0);
            if has_name && let Ok(device) = Device::<Fd>::new(file.as_raw_fd(), nr_slots) {
                // A file system that cannot keeps the space, as it would for any file.
                let _ = device.discard(0, nr_slots);
            }
        }
    }
}

/// Says in `config` all that there is to be known of `area`, whose first slot has the number `first`. Returns its table.
fn share(area: &SwapArea, first: u64, config: &DeviceConfig) -> Result<File> {
    let nr_slots = u32::try_from(area.nr_slots).unwrap_or(u32::MAX);
    let table = table(nr_slots, area.rotational).context("cannot make the table of swap slots")?;
    let set = |cell: &AtomicU32, value| cell.store(value, Ordering::Relaxed);
    set(&config.device_fd, area.file.as_raw_fd().unsigned_abs());
    set(&config.table_fd, table.as_raw_fd().unsigned_abs());
    set(&config.direct, area.direct.into());
    config.first.store(first, Ordering::Relaxed);
    config.priority.store(area.priority, Ordering::Relaxed);
    config.name.set(&area.path.to_string_lossy());
    config.nr_slots.store(nr_slots.into(), Ordering::Relaxed);
    Ok(table)
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
    let at = map(&file, len)?;
    // SAFETY: shared memory of that length, page aligned and writable. It is unmapped when the allocator that was
    // attached to it is gone.
    unsafe {
        Slots::attach(at.cast(), nr_slots, &|_| true).set_kind(rotational, true);
        libc::munmap(at, len);
    }
    Ok(file)
}

/// Maps the first `len` bytes of a table, shared and writable.
fn map(table: &File, len: usize) -> io::Result<*mut libc::c_void> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh shared mapping at an address that the kernel picks.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            prot,
            libc::MAP_SHARED,
            table.as_raw_fd(),
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(at)
}

/// Who has something on a device, looked at from outside the run.
#[derive(Debug)]
pub struct Users(Slots<'static>);

impl Users {
    /// Of `device` of `group`.
    pub fn of(group: &Group, device: &DeviceConfig) -> Result<Self> {
        let supervisor = group.supervisor.load(Ordering::Relaxed);
        let fd = device.table_fd.load(Ordering::Relaxed);
        let nr_slots = u32::try_from(device.nr_slots.load(Ordering::Relaxed)).unwrap_or(0);
        let len = Slots::memory_len(nr_slots);
        let table = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{supervisor}/fd/{fd}"))
            .and_then(|table| match table.metadata()?.len() >= len as u64 {
                true => map(&table, len),
                false => Err(io::ErrorKind::UnexpectedEof.into()),
            })
            .with_context(|| format!("cannot look at the slots of process {supervisor}'s swap"))?;
        // SAFETY: shared memory of that length, page aligned, never unmapped; everybody goes by the configuration's
        // number of slots.
        Ok(Users(unsafe {
            Slots::attach(table.cast(), nr_slots, &|_| true)
        }))
    }

    /// Whether the process of slot `number` has anything there.
    pub fn has(&self, number: usize) -> bool {
        self.0.holds(number)
    }

    /// Bytes of the slots that the process of slot `number` has anything in.
    pub fn bytes(&self, number: usize) -> u64 {
        let mut bytes = 0;
        self.0.for_each_owned(number, |_, _| bytes += 4096);
        bytes
    }
}
