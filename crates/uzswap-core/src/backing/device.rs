//! *What*: one swap device, open in this process: its file, its slot allocator, and its place in
//! the number space of locations.
//!
//! The supervisor holds the device and its allocator's memory open; every process under it opens
//! both through `/proc`.
//!
//! *Invariants*: a device that is not on gets nothing new; its objects stay readable. A full device
//! is skipped a few times before it is tried again: fewer times than reclaim retries before it
//! gives up, so that "no room" is reported only after looking.
//! *Locking*: none of its own; a cluster's lock is a leaf below all others. *Context*: init
//! (`open`); signal, worker.

use core::cell::UnsafeCell;
use core::fmt::Write;
use core::ops::Range;

use crate::account::Account;
use crate::memory;
use crate::page::wide;
use uzswap_group::group::{DeviceConfig, DeviceState};
use uzswap_io::device::Medium;
use uzswap_io::exchange::EXCHANGE_LEN;
use uzswap_io::opened::Opened;
use uzswap_io::remote::Remote;
use uzswap_io::{Device, DeviceError, Extent, MAX_RUN, Queue};
use uzswap_slots::{IsAlive, Owner, Run, Slots};
use uzswap_sync::primitive::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use uzswap_sys::fmt::StackBuf;
use uzswap_sys::{Errno, file, mem, thread};

const O_DIRECT: i32 = 0o40_000;
/// Counts for a run: each slot once.
const ONCE: [u8; MAX_RUN] = [1; MAX_RUN];
/// Failed writes in a row that end writing to a device.
const MAX_FAILURES: u32 = 16;
/// Maximum times in a row that a full device is skipped.
const MAX_SKIPPED: u32 = 7;
/// Maximum clusters that are discarded at once to make room on the disk.
const MAX_DISCARDED: usize = 16;

/// Attempts in a row that free nothing before reclaim gives up (the kernel's constant of that
/// name).
pub(crate) const MAX_RECLAIM_RETRIES: u32 = 16;

const _: () = assert!(MAX_SKIPPED + 1 < MAX_RECLAIM_RETRIES);

/// How often a full device is tried again: the longer it has been full the less, down to every
/// eighth time.
#[derive(Debug)]
pub(crate) struct Backoff {
    /// Times in a row that it had no room.
    full: AtomicU32,
    /// Times that it was skipped since the last try.
    skipped: AtomicU32,
}

impl Backoff {
    const fn new() -> Self {
        Backoff {
            full: AtomicU32::new(0),
            skipped: AtomicU32::new(0),
        }
    }

    /// Whether to try it this time.
    fn is_due(&self) -> bool {
        let skipped = self.skipped.load(Relaxed);
        let due = skipped >= self.full.load(Relaxed).min(MAX_SKIPPED);
        let skipped = if due { 0 } else { skipped + 1 };
        self.skipped.store(skipped, Relaxed);
        due
    }

    /// Notes that it had no room.
    pub(crate) fn found_full(&self) {
        let full = self.full.load(Relaxed).saturating_add(1);
        self.full.store(full, Relaxed);
    }

    /// Forgets that it was full: it had room, or a request wants every device tried.
    pub(crate) fn reset(&self) {
        self.full.store(0, Relaxed);
    }
}

/// A swap device.
pub(crate) struct SwapDevice {
    pub config: &'static DeviceConfig,
    device: Device,
    fd: i32,
    slots: Slots<'static>,
    /// The number of the write that each slot holds. A slot's is written before the slot is, by
    /// whoever allocated it, and read by those who hold a count of it. Empty if the device is not
    /// fresh.
    writes: &'static [AtomicU32],
    /// The owner that this process counts slots as; `None` in a fork child that got no number: it
    /// has nothing on the device and writes nothing to it.
    owner: UnsafeCell<Option<Owner>>,
    /// The devices of the same priority, by number.
    pub peers: Range<usize>,
    pub backoff: Backoff,
}

// SAFETY: `owner` is written in `SwapDevice::set_owner` alone, when the process has one thread and
// no operation is under way; all else is shared through atomics and locks.
unsafe impl Sync for SwapDevice {}

impl SwapDevice {
    /// Opens the device of that number among the descriptors of the process's supervisor; `None`:
    /// this process may not (it is another user's).
    pub(crate) fn open(
        account: &Account,
        config: &'static DeviceConfig,
        number: usize,
        is_alive: IsAlive<'static>,
        peers: Range<usize>,
    ) -> Option<Self> {
        let run = account.group().run_of(account.process());
        let supervisor = run.supervisor.load(Relaxed);
        let nr_slots = config.nr_slots.load(Relaxed);
        let table = open_fd(supervisor, run.table_fds.get(number)?.load(Relaxed), 0)?;
        let mapped = map_slots(account, table, config, is_alive);
        let _ = file::close(table);
        let (slots, writes) = mapped?;
        let flags = match config.direct.load(Relaxed) {
            0 => 0,
            _ => O_DIRECT,
        };
        let fd = open_fd(supervisor, run.device_fds.get(number)?.load(Relaxed), flags)?;
        let is_remote = config.remote.load(Relaxed) != 0;
        let (fd, medium) = match is_remote {
            true => (-1, Opened::Remote(map_exchange(account, fd)?)),
            false => {
                let fd = memory::high_fd(fd);
                (fd, Opened::new(fd))
            }
        };
        let Some(device) = open_device(config, medium, nr_slots) else {
            let _ = file::close(fd);
            return None;
        };
        Some(SwapDevice {
            config,
            device: device.numbered_from(config.first.load(Relaxed)),
            fd,
            slots,
            writes,
            owner: UnsafeCell::new(None),
            peers,
            backoff: Backoff::new(),
        })
    }

    /// Closes the device, which was never written to.
    pub(crate) fn close(&self) {
        let _ = file::close(self.fd);
    }

    /// The device's descriptor in this process; -1: it needs none.
    pub(crate) const fn fd(&self) -> i32 {
        self.fd
    }

    /// The owner that this process counts slots as.
    pub(crate) fn owner(&self) -> Option<Owner> {
        // SAFETY: written only while no operation is under way.
        unsafe { *self.owner.get() }
    }

    /// Counts as `owner` from now on.
    ///
    /// # Safety
    /// No operation is under way, and there is no other thread that could begin one.
    pub(crate) unsafe fn set_owner(&self, owner: Option<Owner>) {
        // SAFETY: by the caller's promise nobody reads it.
        unsafe { *self.owner.get() = owner };
    }

    /// The owner for the process of number `user` in the group.
    pub(crate) fn join(&self, user: usize) -> Owner {
        self.slots.join(user)
    }

    /// Counts for the future process `child` what this process counts; see [`Slots::fork`].
    pub(crate) fn fork(&self, child: usize) -> Option<Owner> {
        Some(self.slots.fork(self.owner()?, child))
    }

    /// Frees the slots that process `user` counted: it is dead, or was never forked.
    pub(crate) fn release(&self, user: usize) {
        if let Some(owner) = self.owner() {
            self.slots.release(owner, user);
        }
    }

    /// Whether it is written to.
    pub(crate) fn is_on(&self) -> bool {
        self.config.state.load(Relaxed) == DeviceState::On
    }

    /// Whether its slots remember the write that they hold.
    pub(crate) const fn is_fresh(&self) -> bool {
        !self.writes.is_empty()
    }

    /// The number of the write that `slot`, one of its own, holds.
    pub(crate) fn write_of(&self, slot: u64) -> u32 {
        let slot = usize::try_from(slot.wrapping_sub(self.device.first()));
        let write = slot.ok().and_then(|slot| self.writes.get(slot));
        // Relaxed: whoever names the slot learned of it by its folio's lock.
        write.map_or(0, |write| write.load(Relaxed))
    }

    /// Notes that `run`, which this process has just allocated, is about to hold write number
    /// `number`.
    pub(crate) fn note_write(&self, run: Run, number: u32) {
        let slots = self.writes.iter().skip(run.first as usize);
        for slot in slots.take(run.nr.into()) {
            slot.store(number, Relaxed);
        }
    }

    /// Whether to try it for room this time.
    pub(crate) fn is_due(&self) -> bool {
        self.is_on() && self.backoff.is_due()
    }

    /// Whether to keep copies of pages read back: while the device is less than half full (the
    /// kernel's `vm_swap_full`). Decided per device, so that copies do not fill a small fast one
    /// beside a large slow one.
    pub(crate) fn keeps_copies(&self) -> bool {
        self.slots.in_use() * 2 < u64::from(self.slots.nr_slots())
            && self.is_on()
            && self.owner().is_some()
    }

    /// Whether the slot of that number is one of its own.
    pub(crate) const fn has(&self, slot: u64) -> bool {
        self.device.has(slot)
    }

    /// The number by which locations name the first slot of `run`.
    pub(crate) fn number_of(&self, run: Run) -> u64 {
        self.device.first() + u64::from(run.first)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a device has less than 2^32 slots, an object one or two"
    )]
    const fn run_of(&self, extent: Extent) -> Run {
        Run {
            first: extent.slot.saturating_sub(self.device.first()) as u32,
            nr: extent.nr_slots as u16,
        }
    }

    /// 2^`order` slots in a row, each counted once.
    pub(crate) fn alloc(&self, order: u32) -> Option<Run> {
        let cpu = thread::sched_getcpu() as usize;
        let counts = ONCE.get(..1 << order)?;
        #[expect(clippy::cast_possible_truncation, reason = "at most that of MAX_RUN")]
        self.slots.alloc(self.owner()?, cpu, order as u8, counts)
    }

    /// Counts the slots of an object that an entry is going to name. `false`: they cannot be
    /// counted.
    #[must_use]
    pub(crate) fn get(&self, extent: Extent) -> bool {
        let run = self.run_of(extent);
        self.owner().is_some_and(|owner| self.slots.dup(owner, run))
    }

    /// Uncounts the slots of an object that an entry no longer names.
    pub(crate) fn put(&self, extent: Extent) {
        self.put_run(self.run_of(extent));
    }

    /// Uncounts the slots of `run`.
    pub(crate) fn put_run(&self, run: Run) {
        if let Some(owner) = self.owner() {
            self.slots.put(owner, run);
        }
    }

    /// Writes `bytes` to `run`, from its first slot on.
    pub(crate) fn write(&self, run: Run, bytes: &[u8]) -> Result<(), DeviceError> {
        self.device.write_at(self.number_of(run), bytes)?;
        self.config.bytes_out.fetch_add(wide(bytes.len()), Relaxed);
        self.backoff.reset();
        if self.config.failures.load(Relaxed) != 0 {
            self.config.failures.store(0, Relaxed);
        }
        Ok(())
    }

    /// Retires the slots of `run`: nobody knows what they hold, or will hold.
    pub(crate) fn retire(&self, run: Run) {
        if let Some(owner) = self.owner() {
            self.slots.retire(owner, run);
        }
        self.config.write_fail.fetch_add(1, Relaxed);
    }

    /// Retires the slots of `run` after a failed write. Returns `true` once: when the device has
    /// failed too often and is turned off.
    pub(crate) fn write_failed(&self, run: Run) -> bool {
        let config = self.config;
        self.retire(run);
        config.failures.fetch_add(1, Relaxed) + 1 >= MAX_FAILURES
            && config
                .state
                .compare_exchange(DeviceState::On, DeviceState::Failed, AcqRel, Acquire)
                .is_ok()
    }

    /// Reads `extents` into `buffer`; concurrently if there is a `queue`.
    pub(crate) fn read(
        &self,
        queue: Option<&mut Queue>,
        extents: &[Extent],
        buffer: &mut [u8],
    ) -> Result<(), DeviceError> {
        self.config.bytes_in.fetch_add(wide(buffer.len()), Relaxed);
        self.device.read_extents(queue, extents, buffer)
    }

    /// As [`Device::read_copy`].
    pub(crate) fn read_copy(&self, extent: Extent, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.config.bytes_in.fetch_add(wide(buffer.len()), Relaxed);
        self.device.read_copy(extent, buffer)
    }

    /// Starts to read `extent` into `buffer`. `false`: not started.
    ///
    /// # Safety
    /// As [`Queue::start`].
    pub(crate) unsafe fn start_read(
        &self,
        queue: &mut Queue,
        extent: Extent,
        buffer: &mut [u8],
    ) -> bool {
        // SAFETY: the caller's promise; the descriptor is never closed while operations are under
        // way.
        let started = unsafe { self.device.start_read(queue, extent, buffer) };
        if started {
            self.config.bytes_in.fetch_add(wide(buffer.len()), Relaxed);
        }
        started
    }

    /// As [`Device::accepts`].
    pub(crate) fn accepts(&self, buffer: &mut [u8]) -> bool {
        self.device.accepts(buffer)
    }

    /// Whether this process has anything on it.
    pub(crate) fn is_used(&self) -> bool {
        self.owner()
            .is_some_and(|owner| self.slots.holds(owner.index()))
    }

    /// Discards free slots on the device, a cluster at most. `false`: there were none.
    pub(crate) fn discard(&self) -> bool {
        let Some(owner) = self.owner() else {
            return false;
        };
        let Some(run) = self.slots.take_discard(owner) else {
            return false;
        };
        // Discard is advice: a device without it keeps the blocks.
        let discarded = self.device.discard(self.number_of(run), run.nr.into());
        // A remote one may still be on its way, and reach the server after a later write to the
        // cluster: that is not used again as long as this process lives.
        if discarded == Err(DeviceError::Io(Errno::ETIMEDOUT)) {
            return false;
        }
        self.slots.discarded(owner, run);
        true
    }

    /// Discards enough to make room on the disk for a run. `false`: there was nothing to discard.
    pub(crate) fn discard_more(&self) -> bool {
        (0..MAX_DISCARDED).take_while(|_| self.discard()).count() > 0
    }

    /// Publishes the slots in use in the group. Returns them and their peak.
    pub(crate) fn publish_use(&self) -> (u64, u64) {
        let used = match self.config.state.load(Relaxed) {
            // `in_use` counts each CPU's current cluster, even when it is empty.
            DeviceState::Off => self.slots.used(),
            _ => self.slots.in_use(),
        };
        let peak = self.slots.peak();
        self.config.used.store(used, Relaxed);
        self.config.peak.store(peak, Relaxed);
        (used, peak)
    }
}

#[cfg(not(feature = "fault-injection"))]
fn open_device(_: &DeviceConfig, medium: Opened, nr_slots: u64) -> Option<Device> {
    Device::over(medium, nr_slots).ok()
}

/// A device with injected failures, by the configured plan.
#[cfg(feature = "fault-injection")]
fn open_device(config: &DeviceConfig, medium: Opened, nr_slots: u64) -> Option<Device> {
    use uzswap_group::group::Text;
    let mut device = Device::over(uzswap_io::inject::Failing::over(medium), nr_slots).ok()?;
    let plan = uzswap_io::inject::Plan::parse(config.failure_plan.get(&mut [0; Text::LEN]))?;
    device.medium_mut().inject(plan);
    Some(device)
}

/// Reopens descriptor `fd` of process `pid`.
fn open_fd(pid: u32, fd: u32, flags: i32) -> Option<i32> {
    let mut path = StackBuf::<64>::new();
    let _ = write!(path, "/proc/{pid}/fd/{fd}");
    let flags = file::O_RDWR | file::O_CLOEXEC | flags;
    file::openat(file::AT_FDCWD, path.as_c_str()?, flags, 0).ok()
}

fn map_slots(
    account: &Account,
    fd: i32,
    config: &DeviceConfig,
    is_alive: IsAlive<'static>,
) -> Option<(Slots<'static>, &'static [AtomicU32])> {
    let nr_slots = u32::try_from(config.nr_slots.load(Relaxed)).ok()?;
    let (at, len) = (
        DeviceConfig::writes_at(nr_slots),
        config.table_len(nr_slots),
    );
    let stat = file::fstat(fd).ok()?;
    if usize::try_from(stat.st_size).ok()? < len {
        return None;
    }
    let prot = mem::PROT_READ | mem::PROT_WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let addr = unsafe { mem::mmap(0, len, prot, mem::MAP_SHARED, fd, 0) }.ok()?;
    if !account.memory().adopt(addr, len) {
        return None;
    }
    // SAFETY: shared memory of that length, there as long as the engine; every process takes the
    // number of slots from the configuration.
    let slots = unsafe { Slots::attach(addr as *mut u8, nr_slots, is_alive) };
    let nr_writes = (len - at) / size_of::<AtomicU32>();
    // SAFETY: the rest of that memory, aligned, of zeroes at first; all access it by atomics.
    let writes = unsafe { core::slice::from_raw_parts((addr + at) as *const AtomicU32, nr_writes) };
    Some((slots, writes))
}

/// Maps the exchange of a remote device, and closes `fd`, its memory file.
fn map_exchange(account: &Account, fd: i32) -> Option<Remote> {
    let has_room = file::fstat(fd)
        .is_ok_and(|stat| usize::try_from(stat.st_size).is_ok_and(|len| len >= EXCHANGE_LEN));
    let prot = mem::PROT_READ | mem::PROT_WRITE;
    let addr = has_room.then(|| {
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        unsafe { mem::mmap(0, EXCHANGE_LEN, prot, mem::MAP_SHARED, fd, 0) }
    });
    let _ = file::close(fd);
    let addr = addr?.ok()?;
    if !account.memory().adopt(addr, EXCHANGE_LEN) {
        return None;
    }
    // SAFETY: shared memory of that length, made by the supervisor, there as long as the engine.
    let remote = unsafe { Remote::attach(addr) };
    remote.join();
    Some(remote)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_device_is_passed_over_ever_more_often_but_never_for_long() {
        let backoff = Backoff::new();
        let passes = || (0..100).take_while(|_| !backoff.is_due()).count();
        assert_eq!(passes(), 0, "not full yet");
        for full in 1..20 {
            backoff.found_full();
            assert_eq!(passes(), full.min(MAX_SKIPPED as usize));
        }
        backoff.reset();
        assert_eq!((passes(), passes()), (0, 0), "it has room");
    }
}
