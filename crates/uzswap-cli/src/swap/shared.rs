//! *What*: how the processes of a group share its swap devices. Each supervisor holds each device
//! and the memory of its slot allocator open; the group file names the descriptors, which the
//! supervisor's processes open anew through `/proc`, and so does a supervisor that joins.
//!
//! *Invariants*: everything stays open as long as the group lives, whoever ends first. The
//! allocator's memory is a memfd, so nothing is left behind when supervisors are killed. A swap
//! file that the user named remains, but takes no space after the last run.
//! *Locking*: none here; [`Slots`] has its own. *Context*: `uzswap run`, `uzswap swapoff`.

use std::cmp::Reverse;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use uzswap_group::group::{
    Group, NR_DEVICES, Process, ProcessState, Run, SwapConfig, SwapUser, is_alive,
};
use uzswap_io::device::Fd;
use uzswap_io::{Device, MAX_DEVICE_SLOTS};
use uzswap_slots::{CLUSTER_SLOTS, Slots};

use super::{SwapArea, area};
use crate::group_file;
use crate::group_view::PAGE;
use crate::os;
use uzswap_swap::share::share;

/// Unused slot numbers between two devices, so that no run of slots crosses from one to the next.
const GAP: u64 = CLUSTER_SLOTS as u64;
/// Slots of the smallest device.
const MIN_SLOTS: u64 = CLUSTER_SLOTS as u64;

/// An open device, with the memory of its slot allocator.
#[derive(Debug)]
struct Held {
    device: File,
    table: File,
    nr_slots: u64,
}

/// The open devices.
#[derive(Debug)]
pub struct SwapGroup(Vec<Held>);

impl SwapGroup {
    /// Shares `areas` through `config`, those of the highest priority first.
    pub fn new(mut areas: Vec<SwapArea>, encrypt: bool, config: &SwapConfig) -> Result<Self> {
        // A stable sort: areas of the same priority keep the order of the command line.
        areas.sort_by_key(|area| Reverse(area.priority));
        config.encrypt.store(encrypt.into(), Ordering::Relaxed);
        // If one is remote, all remember their writes: a run may go from one to another.
        let fresh = areas.iter().any(|area| area.remote);
        for device in &config.devices {
            device.fresh.store(fresh.into(), Ordering::Relaxed);
        }
        let mut first = 0;
        let mut shared = Vec::new();
        for (mut area, device) in areas.into_iter().zip(&config.devices) {
            area.nr_slots = area.nr_slots.min(MAX_DEVICE_SLOTS.saturating_sub(first));
            if area.nr_slots < MIN_SLOTS {
                bail!("all --swap devices together may have 1 TiB: limit each by --swap-max");
            }
            let table = share(&area, first, device)?;
            first += area.nr_slots + GAP;
            shared.push(Held {
                device: area.file,
                table,
                nr_slots: area.nr_slots,
            });
        }
        Ok(SwapGroup(shared))
    }

    /// The devices of a group that goes on, as one of its supervisors holds them.
    pub fn join(group: &Group) -> Result<Self> {
        let mut devices = group.config.swap.devices();
        if devices.any(|device| device.remote.load(Ordering::Relaxed) != 0) {
            bail!(
                "this group swaps to other machines' memory, which the run that made it reaches: \
                 start this command in a group of its own"
            );
        }
        let held = group
            .config
            .swap
            .devices()
            .enumerate()
            .map(|(number, config)| {
                let open = |which: Which| open_held(group, which, number);
                let device = open(|run| &run.device_fds)?;
                area::lock(&device)?;
                Ok(Held {
                    device,
                    table: open(|run| &run.table_fds)?,
                    nr_slots: config.nr_slots.load(Ordering::Relaxed),
                })
            });
        held.collect::<Result<_>>().map(SwapGroup)
    }

    /// Tells the processes of `run`, this supervisor's, where to find the devices.
    pub fn describe(&self, run: &Run) {
        for (number, held) in self.0.iter().enumerate() {
            let set = |cell: &AtomicU32, file: &File| {
                cell.store(file.as_raw_fd().unsigned_abs(), Ordering::Relaxed);
            };
            set(&run.device_fds[number], &held.device);
            set(&run.table_fds[number], &held.table);
        }
    }

    /// After the run: frees the disk space of swap files that have names, unless a process of the
    /// group that may need them is still running.
    pub fn end(self, group: &Group) {
        if !group.used().iter().all(has_ended) {
            return;
        }
        for Held {
            device: file,
            nr_slots,
            ..
        } in self.0
        {
            let has_name = file
                .metadata()
                .is_ok_and(|meta| meta.is_file() && meta.nlink() > 0);
            if has_name && let Ok(device) = Device::<Fd>::new(file.as_raw_fd(), nr_slots) {
                // Not every file system can.
                let _ = device.discard(0, nr_slots);
            }
        }
    }
}

/// One of the two descriptors of a device.
type Which = fn(&Run) -> &[AtomicU32; NR_DEVICES];

/// What a supervisor of `group` holds open.
fn open_held(group: &Group, which: Which, number: usize) -> Result<File> {
    let run = group.runs().iter().find(|run| !group_file::has_ended(run));
    let run = run.context("no 'uzswap run' of this group is left to open its swap devices with")?;
    let supervisor = run.supervisor.load(Ordering::Acquire);
    let fd = which(run)[number].load(Ordering::Relaxed);
    let path = format!("/proc/{supervisor}/fd/{fd}");
    let opened = File::options().read(true).write(true).open(path);
    opened.with_context(|| format!("cannot open the swap devices of 'uzswap run' {supervisor}"))
}

/// Whether a process has certainly ended. One whose pid is unknown, or of another namespace, has
/// not.
fn has_ended(process: &Process) -> bool {
    match process.state.load(Ordering::Acquire) {
        ProcessState::Free => true,
        ProcessState::Live { .. } => {
            process.swap_user.load(Ordering::Relaxed) != SwapUser::Unknown
                && process.is_abandoned(is_alive)
        }
        _ => false,
    }
}

/// The processes with data on a device, seen from outside the run.
#[derive(Debug)]
pub struct Users(Slots<'static>);

impl Users {
    /// Those of device `number` of `group`.
    pub fn of(group: &Group, number: usize) -> Result<Self> {
        let device = &group.config.swap.devices[number];
        let nr_slots = u32::try_from(device.nr_slots.load(Ordering::Relaxed)).unwrap_or(0);
        let len = Slots::memory_len(nr_slots);
        let table = open_held(group, |run| &run.table_fds, number)?;
        let mapped = match table.metadata()?.len() >= len as u64 {
            true => os::map_shared(&table, len, true),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        };
        let table = mapped.context("cannot map the swap slots of the group")?;
        // SAFETY: shared memory of that length, page aligned, never unmapped. All processes take
        // the number of slots from the same configuration.
        Ok(Users(unsafe {
            Slots::attach(table.as_ptr().cast(), nr_slots, &|_| true)
        }))
    }

    /// Whether process number `number` of the group has data there.
    pub fn has(&self, number: usize) -> bool {
        self.0.holds(number)
    }

    /// Bytes of the slots that process number `number` uses.
    pub fn bytes(&self, number: usize) -> u64 {
        let mut bytes = 0;
        self.0.for_each_owned(number, |_, _| bytes += PAGE);
        bytes
    }
}
