//! *What*: [`Backing`], the owner of the swap devices that this process has open, of their swap
//! cache and readahead, and of the key.
//!
//! *Invariants*: as [`super`]. *Locking*: none of its own. *Context*: init (`open`); signal,
//! worker.

use core::mem::MaybeUninit;
use core::ops::Range;

use super::cache::{Leaf, SwapCache};
use super::device::SwapDevice;
use super::readahead::Readahead;
use crate::account::Account;
use crate::memory::{self, place_static};
use crate::page::transition::Slots;
use crate::page::{Age, PAGE_SIZE, Page, narrow, wide};
use uzswap_group::group::{
    Group, NR_DEVICES, Process, ProcessState, SwapConfig, SwapUser, is_alive,
};
use uzswap_io::{Extent, Fingerprint, Key, Label, Location, Queue, Seal, Sequence};
use uzswap_slots::{IsAlive, Owner};
use uzswap_sync::lock::{Lock, LockGuard};
use uzswap_sync::primitive::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed},
};
use uzswap_sync::strict_assert;
use uzswap_sys::{file, mem, thread};

/// Queues per process for concurrent reads.
const NR_QUEUES: usize = 4;

/// The swap devices, open in this process.
pub(crate) struct Backing {
    pub(super) account: &'static Account,
    /// In the order of the configuration, without gaps.
    devices: [Option<SwapDevice>; NR_DEVICES],
    /// Runs written: selects the next of the devices of equal priority.
    turn: AtomicU32,
    /// Encrypts objects, unless that is off, and makes fingerprints.
    key: &'static Key,
    encrypts: bool,
    sequence: &'static Sequence,
    pub(super) cache: SwapCache<'static>,
    /// The readahead windows.
    pub(super) readahead: Readahead,
    /// For concurrent reads. Few, since the kernel limits them system-wide; a thread that finds all
    /// in use reads one extent after the other.
    pub(super) queues: [Lock<Queue>; NR_QUEUES],
    /// An unreadable page has been reported.
    pub(super) reported_unreadable: AtomicBool,
}

/// The owner that a process counts slots as, on each device.
pub(crate) type Owners = [Option<Owner>; NR_DEVICES];

/// Pages of key and sequence.
pub(crate) const KEY_PAGES: u64 = 2;

impl Backing {
    /// Opens the group's devices for this process; `None`: there are none, or they belong to
    /// another user or pid namespace.
    pub(crate) fn open(account: &'static Account) -> Option<Backing> {
        let (group, process) = (account.group(), account.process());
        let config = &group.config.swap;
        if config.nr_slots() == 0 || !in_namespace_of(config) {
            return None;
        }
        let user = group.number_of(process)?;
        let backing = Self::on(account)?;
        if backing.devices().count() < config.devices().count() {
            backing.close();
            return None;
        }
        for device in backing.devices() {
            let owner = device.join(user);
            // SAFETY: nobody else reaches it yet.
            unsafe { device.set_owner(Some(owner)) };
        }
        process.swap_user.store(SwapUser::Yes, Relaxed);
        // The program that this process ran before exec left slots under the same pid.
        backing.reap(group, process);
        Some(backing)
    }

    /// Opens as many of the devices as possible.
    fn on(account: &'static Account) -> Option<Backing> {
        let group = account.group();
        let limit = account.charge().limit();
        let config = &group.config.swap;
        let mut backing = Backing {
            account,
            devices: [const { None }; NR_DEVICES],
            turn: AtomicU32::new(0),
            key: new_key()?,
            encrypts: config.encrypt.load(Relaxed) != 0,
            sequence: new_sequence()?,
            cache: new_cache(limit)?,
            readahead: Readahead::new(),
            queues: [const { Lock::new(Queue::new()) }; NR_QUEUES],
            reported_unreadable: AtomicBool::new(false),
        };
        let is_alive = liveness_probe(group)?;
        for (place, device) in backing.devices.iter_mut().zip(config.devices()) {
            let priorities = config.devices().map(|device| device.priority.load(Relaxed));
            let peers = peers(priorities, device.priority.load(Relaxed));
            *place = SwapDevice::open(device, group, is_alive, peers);
        }
        Some(backing)
    }

    /// The devices, those of the highest priority first.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &SwapDevice> {
        self.devices.iter().flatten()
    }

    /// The device of that number.
    pub(crate) fn device(&self, number: usize) -> Option<&SwapDevice> {
        self.devices.get(number)?.as_ref()
    }

    /// The devices with their numbers, in the order in which they are filled: those of equal
    /// priority take turns.
    pub(crate) fn in_turn(&self) -> impl Iterator<Item = (usize, &SwapDevice)> {
        let turn = self.turn.load(Relaxed) as usize;
        (0..NR_DEVICES).filter_map(move |at| {
            let at = rotated(at, &self.device(at)?.peers, turn);
            Some((at, self.device(at)?))
        })
    }

    /// Advances the turn after a run was written.
    pub(crate) fn next_turn(&self) {
        self.turn.fetch_add(1, Relaxed);
    }

    /// The device that has `slot`.
    pub(crate) fn device_of(&self, slot: u64) -> Option<&SwapDevice> {
        self.devices().find(|device| device.has(slot))
    }

    /// Closes the devices, none of which was written to.
    pub(crate) fn close(self) {
        self.devices().for_each(SwapDevice::close);
    }

    /// The devices' descriptors in this process; -1 where there is none.
    pub(crate) fn fds(&self) -> [i32; NR_DEVICES] {
        self.devices.each_ref().map(|device| match device {
            Some(device) => device.fd(),
            None => -1,
        })
    }

    /// Publishes the use of the devices in the group.
    pub(crate) fn publish_use(&self, config: &SwapConfig) {
        let (mut used, mut peak) = (0, 0);
        for device in self.devices() {
            let (its, its_peak) = device.publish_use();
            used += its;
            peak = its_peak.max(peak);
        }
        // Between two calls, only each device's own peak is known.
        let peak = used.max(peak);
        if peak > config.peak.load(Relaxed) {
            config.peak.fetch_max(peak, Relaxed);
        }
    }

    /// Frees the slots of dead processes.
    pub(crate) fn reap(&self, group: &Group, process: &Process) {
        if self.counts() && process.swap_user.load(Relaxed) == SwapUser::Yes {
            let pid = process.pid.load(Relaxed);
            group.reap(process, pid, is_alive, |user| self.release(user));
        }
    }

    fn release(&self, user: usize) {
        for device in self.devices() {
            device.release(user);
        }
    }

    /// Whether this process counts slots.
    pub(crate) fn counts(&self) -> bool {
        self.devices().any(|device| device.owner().is_some())
    }

    /// Before a fork, with no operation under way: reserves a record of the group for the child and
    /// counts for it what this process counts. `None`: the group has no record left.
    pub(crate) fn fork<'a>(&self, group: &'a Group) -> Option<(&'a Process, Owners)> {
        if !self.counts() {
            return None;
        }
        let child = group.reserve(thread::getpid().unsigned_abs())?;
        match group.number_of(child) {
            Some(user) => {
                let owners = self.devices.each_ref();
                let owners = owners.map(|device| device.as_ref()?.fork(user));
                Some((child, owners))
            }
            None => {
                group.give_back(child);
                None
            }
        }
    }

    /// In the parent after a fork: the child, of record `reserved`, is process `pid`.
    pub(crate) fn fork_parent(&self, group: &Group, reserved: &Process, pid: u32) {
        // In another namespace the pid means nothing to the processes that reap.
        if in_namespace_of(&group.config.swap) {
            group.born(reserved, thread::getpid().unsigned_abs(), pid);
        }
    }

    /// Undoes [`Backing::fork`] after a failed fork.
    pub(crate) fn fork_failed(&self, group: &Group, child: &Process) {
        if let Some(user) = group.number_of(child) {
            self.release(user);
        }
        group.give_back(child);
    }

    /// In a fork child, before any operation: counts as `owners` from now on.
    pub(crate) fn fork_child(&self, group: &Group, process: &Process, owners: Option<Owners>) {
        let counts = match owners {
            None => SwapUser::No,
            Some(_) if in_namespace_of(&group.config.swap) => SwapUser::Yes,
            Some(_) => SwapUser::Unknown,
        };
        for (device, owner) in self.devices().zip(owners.unwrap_or_default()) {
            // SAFETY: this process has one thread, this one.
            unsafe { device.set_owner(owner) };
        }
        process.swap_user.store(counts, Relaxed);
        // A fork child does not inherit memory locks.
        let _ = mem::mlock(core::ptr::from_ref(self.key).addr(), size_of::<Key>());
    }

    /// How objects are sealed.
    pub(crate) fn seal(&self) -> Seal<'static> {
        if self.encrypts {
            Seal::Encrypted {
                key: self.key,
                sequence: self.sequence,
            }
        } else {
            Seal::Checksummed
        }
    }

    /// The fingerprint of `body`, the stored form of `page`.
    pub(crate) fn fingerprint(&self, page: Page, body: &[u8]) -> Fingerprint {
        self.key.fingerprint(wide(page.index()), body)
    }

    /// The slots of an object.
    pub(crate) fn extent(&self, location: u64, size: u16) -> Extent {
        Location::from_raw(location).extent(size.into(), self.seal())
    }

    /// A queue for concurrent or overlapped reads. `None`: all are in use.
    pub(crate) fn try_queue(&self) -> Option<LockGuard<'_, Queue>> {
        self.queues.iter().find_map(Lock::try_lock)
    }

    /// Counts a hit on a page that was read ahead.
    pub(crate) fn note_hit(&self, page: Page) {
        self.readahead.hit(page);
    }

    /// Counts the slots of an object that an entry is going to name. `false`: they cannot be
    /// counted.
    #[must_use]
    pub(crate) fn get(&self, location: u64, size: u16) -> bool {
        let extent = self.extent(location, size);
        self.device_of(extent.slot)
            .is_some_and(|device| device.get(extent))
    }

    /// Uncounts the slots of an object that an entry no longer names.
    pub(crate) fn put(&self, location: u64, size: u16) {
        let extent = self.extent(location, size);
        let device = self.device_of(extent.slot);
        strict_assert!(device.is_some(), "a location on no device");
        if let Some(device) = device {
            device.put(extent);
        }
    }
}

impl Slots for Option<Backing> {
    fn count(&self, location: u64, size: u16) -> bool {
        self.as_ref()
            .is_some_and(|backing| backing.get(location, size))
    }

    fn uncount(&self, location: u64, size: u16) {
        if let Some(backing) = self {
            backing.put(location, size);
        }
    }

    fn drop_copy(&self, page: Page) {
        if let Some(backing) = self {
            backing.drop_copy(page);
        }
    }
}

/// The numbers of the devices of priority `own` among `priorities`, highest first.
fn peers(priorities: impl Iterator<Item = i32> + Clone, own: i32) -> Range<usize> {
    let higher = priorities.clone().take_while(|&one| one > own).count();
    higher..priorities.take_while(|&one| one >= own).count()
}

/// The device that takes the place of device `at`, one of `peers`, in this turn.
fn rotated(at: usize, peers: &Range<usize>, turn: usize) -> usize {
    peers.start + (at - peers.start + turn) % peers.len().max(1)
}

/// Whether this process is in the supervisor's pid namespace.
fn in_namespace_of(config: &SwapConfig) -> bool {
    file::fstatat(file::AT_FDCWD, c"/proc/self/ns/pid", 0)
        .is_ok_and(|stat| stat.st_ino == config.pid_namespace.load(Relaxed))
}

/// A function that tells whether the process of a group record is alive; `false` only if it surely
/// is not.
fn liveness_probe(group: &'static Group) -> Option<IsAlive<'static>> {
    let ask = move |number: usize| {
        let Some(process) = group.processes.get(number) else {
            return true;
        };
        match process.state.load(Acquire) {
            ProcessState::Free => false,
            ProcessState::Live if process.swap_user.load(Relaxed) == SwapUser::Yes => {
                is_alive(process.pid.load(Relaxed)) || !in_namespace_of(&group.config.swap)
            }
            _ => true,
        }
    };
    Some(place_static(memory::reserve(PAGE_SIZE).ok()?, ask))
}

/// A key in a page of its own: locked, and in no core dump. Fork children inherit it.
fn new_key() -> Option<&'static Key> {
    let memory = memory::reserve(PAGE_SIZE).ok()?;
    // The lock is best effort: RLIMIT_MEMLOCK must not turn encryption off.
    let _ = mem::mlock(memory.addr(), PAGE_SIZE);
    // SAFETY: a fresh page, never unmapped, used by nobody else.
    let memory = unsafe { &mut *memory.cast::<MaybeUninit<Key>>() };
    Key::generate(memory).ok().map(|key| &*key)
}

/// An empty cache for a process of `limit` pages.
fn new_cache(limit: u64) -> Option<SwapCache<'static>> {
    let len = SwapCache::memory_len(narrow(limit));
    let leaves = memory::reserve(len).ok()?.cast::<Leaf>();
    // SAFETY: zeroed memory of that length, page aligned and never unmapped, is empty leaves;
    // used by nobody else.
    let leaves = unsafe { core::slice::from_raw_parts(leaves, len / size_of::<Leaf>()) };
    Some(SwapCache::new(leaves))
}

/// A sequence in shared memory, so that parent and fork children never reuse a number.
fn new_sequence() -> Option<&'static Sequence> {
    let prot = mem::PROT_READ | mem::PROT_WRITE;
    let flags = mem::MAP_SHARED | mem::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let addr = unsafe { mem::mmap(0, PAGE_SIZE, prot, flags, -1, 0) }.ok()?;
    // SAFETY: zeroed memory, never unmapped, is a sequence at its beginning.
    Some(unsafe { &*(addr as *const Sequence) })
}

/// The label that an object of `page` is sealed with.
pub(crate) fn label(page: Page, age: Age) -> Label {
    Label {
        page: wide(page.index()),
        generation: age.0.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a plain model, for all ways in which up to five devices can share priorities: higher
    /// ones first, and in as many turns as there are peers each of them is at each of their places
    /// once.
    #[test]
    fn devices_are_filled_by_priority_and_peers_by_turns() {
        for nr in 1..=5_usize {
            for pattern in 0..1_u32 << (nr - 1) {
                let mut priorities = vec![9];
                for at in 1..nr {
                    let lower = i32::from(pattern >> (at - 1) & 1 == 1);
                    priorities.push(priorities[at - 1] - lower);
                }
                let order = |turn| -> Vec<usize> {
                    let all = priorities.iter().copied();
                    let rotated = |at| rotated(at, &peers(all.clone(), priorities[at]), turn);
                    (0..nr).map(rotated).collect()
                };
                let mut firsts = vec![0; nr];
                for turn in 0..60 {
                    let order = order(turn);
                    let mut sorted = order.clone();
                    sorted.sort_unstable();
                    assert!(sorted.iter().copied().eq(0..nr), "{order:?}");
                    assert!(order.is_sorted_by_key(|&at| -priorities[at]), "{order:?}");
                    firsts[order[0]] += 1;
                }
                let best = priorities.iter().filter(|&&one| one == 9).count();
                assert!(firsts[..best].iter().all(|&times| times == 60 / best));
            }
        }
    }
}
