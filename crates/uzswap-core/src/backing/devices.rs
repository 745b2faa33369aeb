//! *What*: [`Backing`], the owner of the swap devices that this process has open, and of what it keeps about them.
//!
//! *Invariants*: as [`super`]. *Locking*: none of its own. *Context*: init (`open`); signal, worker.

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
use uzswap_sys::{file, mem, thread};

/// Queues of a process.
const NR_QUEUES: usize = 4;

/// The devices, open in this process.
pub(crate) struct Backing {
    pub(super) account: &'static Account,
    /// From the front, as the configuration has them.
    devices: [Option<SwapDevice>; NR_DEVICES],
    /// Runs that were written: tells which of the devices of one priority is next.
    turn: AtomicU32,
    /// Encrypts what is written, unless that is turned off, and makes fingerprints.
    key: &'static Key,
    encrypts: bool,
    sequence: &'static Sequence,
    pub(super) cache: SwapCache<'static>,
    /// How much is read along.
    pub(super) readahead: Readahead,
    /// For reads of several places at once. Few, since the system has a bound on them; a thread that finds them all
    /// in use reads one place after the other.
    pub(super) queues: [Lock<Queue>; NR_QUEUES],
    /// A page that was lost has been reported.
    pub(super) reported_unreadable: AtomicBool,
}

/// Under what a process counts slots, on each device.
pub(crate) type Owners = [Option<Owner>; NR_DEVICES];

/// Pages that key and sequence take.
pub(crate) const KEY_PAGES: u64 = 2;

impl Backing {
    /// Opens the group's devices for `process`; `None`: there are none, or not for this process
    /// (another user's, another pid namespace's).
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
        // The program that called exec to become this one was a process of the same number.
        backing.reap(group, process);
        Some(backing)
    }

    /// On as many of the devices as can be opened.
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
        let is_alive = asks(group)?;
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

    /// The devices, and their numbers, in the order in which they are filled: those of one priority take turns.
    pub(crate) fn in_turn(&self) -> impl Iterator<Item = (usize, &SwapDevice)> {
        let turn = self.turn.load(Relaxed) as usize;
        (0..NR_DEVICES).filter_map(move |at| {
            let at = turned(at, &self.device(at)?.peers, turn);
            Some((at, self.device(at)?))
        })
    }

    /// A run was written.
    pub(crate) fn next_turn(&self) {
        self.turn.fetch_add(1, Relaxed);
    }

    /// The device that the slot of that number is on.
    pub(crate) fn device_of(&self, slot: u64) -> Option<&SwapDevice> {
        self.devices().find(|device| device.has(slot))
    }

    /// There was no room for its buffers: nothing was written.
    pub(crate) fn close(self) {
        self.devices().for_each(SwapDevice::close);
    }

    /// Their descriptors in this process; -1 for what there is not.
    pub(crate) fn fds(&self) -> [i32; NR_DEVICES] {
        self.devices.each_ref().map(|device| match device {
            Some(device) => device.fd(),
            None => -1,
        })
    }

    /// Says in the group how much of the devices is in use.
    pub(crate) fn publish_use(&self, config: &SwapConfig) {
        let (mut used, mut peak) = (0, 0);
        for device in self.devices() {
            let (its, its_peak) = device.publish_use();
            used += its;
            peak = its_peak.max(peak);
        }
        // What was in use between two looks is known of each device alone.
        let peak = used.max(peak);
        if peak > config.peak.load(Relaxed) {
            config.peak.fetch_max(peak, Relaxed);
        }
    }

    /// Slots of processes that died are free again.
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

    /// Whether this process has a number under which to count slots.
    pub(crate) fn counts(&self) -> bool {
        self.devices().any(|device| device.owner().is_some())
    }

    /// Before a fork, with no operation under way: takes a slot of the group for the child and counts
    /// for it what this process counts. `None`: the group has none left.
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

    /// In the parent: the child that has `reserved` is process `pid`.
    pub(crate) fn fork_parent(&self, group: &Group, reserved: &Process, pid: u32) {
        // Elsewhere the number means nothing to those who would look for it.
        if in_namespace_of(&group.config.swap) {
            group.born(reserved, thread::getpid().unsigned_abs(), pid);
        }
    }

    /// There is no child after all.
    pub(crate) fn fork_failed(&self, group: &Group, child: &Process) {
        if let Some(user) = group.number_of(child) {
            self.release(user);
        }
        group.give_back(child);
    }

    /// In the child, before any operation: counts as `owners` from now on.
    pub(crate) fn fork_child(&self, group: &Group, process: &Process, owners: Option<Owners>) {
        let counts = match owners {
            None => SwapUser::No,
            Some(_) if in_namespace_of(&group.config.swap) => SwapUser::Yes,
            Some(_) => SwapUser::Unknown,
        };
        for (device, owner) in self.devices().zip(owners.unwrap_or_default()) {
            // SAFETY: this process has one thread, and it is here.
            unsafe { device.set_owner(owner) };
        }
        process.swap_user.store(counts, Relaxed);
        // Locks are not inherited.
        let _ = mem::mlock(core::ptr::from_ref(self.key).addr(), size_of::<Key>());
    }

    /// How objects are protected.
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

    /// By which what `page` is stored as is known again.
    pub(crate) fn fingerprint(&self, page: Page, body: &[u8]) -> Fingerprint {
        self.key.fingerprint(wide(page.index()), body)
    }

    /// The slots of an object.
    pub(crate) fn extent(&self, location: u64, size: u16) -> Extent {
        Location::from_raw(location).extent(size.into(), self.seal())
    }

    /// A queue for reads of several places at once, or that go on meanwhile. `None`: all are in use.
    pub(crate) fn try_queue(&self) -> Option<LockGuard<'_, Queue>> {
        self.queues.iter().find_map(Lock::try_lock)
    }

    /// A page that was read along is asked for.
    pub(crate) fn note_hit(&self, page: Page) {
        self.readahead.hit(page);
    }

    /// Counts an object that an entry is going to name. `false`: it cannot be counted.
    #[must_use]
    pub(crate) fn get(&self, location: u64, size: u16) -> bool {
        let extent = self.extent(location, size);
        self.device_of(extent.slot)
            .is_some_and(|device| device.get(extent))
    }

    /// Counts an object off that no entry names any more.
    pub(crate) fn put(&self, location: u64, size: u16) {
        let extent = self.extent(location, size);
        if let Some(device) = self.device_of(extent.slot) {
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

/// Which of the devices with these priorities, the highest first, have priority `own`.
fn peers(priorities: impl Iterator<Item = i32> + Clone, own: i32) -> Range<usize> {
    let higher = priorities.clone().take_while(|&one| one > own).count();
    higher..priorities.take_while(|&one| one >= own).count()
}

/// Who comes where number `at`, one of `peers`, would without turns.
fn turned(at: usize, peers: &Range<usize>, turn: usize) -> usize {
    peers.start + (at - peers.start + turn) % peers.len().max(1)
}

/// Whether process numbers mean here what they mean to the supervisor.
fn in_namespace_of(config: &SwapConfig) -> bool {
    file::fstatat(file::AT_FDCWD, c"/proc/self/ns/pid", 0)
        .is_ok_and(|stat| stat.st_ino == config.pid_namespace.load(Relaxed))
}

/// Tells whether the process of a slot of the group is there; "no" only if it surely is not.
fn asks(group: &'static Group) -> Option<IsAlive<'static>> {
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
    // A limit on locked memory is no reason to do without encryption.
    let _ = mem::mlock(memory.addr(), PAGE_SIZE);
    // SAFETY: a fresh page, never unmapped, used by nobody else.
    let memory = unsafe { &mut *memory.cast::<MaybeUninit<Key>>() };
    Key::generate(memory).ok().map(|key| &*key)
}

/// An empty cache for a process of `limit` pages.
fn new_cache(limit: u64) -> Option<SwapCache<'static>> {
    let len = SwapCache::memory_len(narrow(limit));
    let leaves = memory::reserve(len).ok()?.cast::<Leaf>();
    // SAFETY: zeroed memory of that length, page aligned and never unmapped, is leaves with nothing in
    // them; used by nobody else.
    let leaves = unsafe { core::slice::from_raw_parts(leaves, len / size_of::<Leaf>()) };
    Some(SwapCache::new(leaves))
}

/// A sequence in shared memory: fork children go on where their parent is.
fn new_sequence() -> Option<&'static Sequence> {
    let prot = mem::PROT_READ | mem::PROT_WRITE;
    let flags = mem::MAP_SHARED | mem::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping where the kernel likes.
    let addr = unsafe { mem::mmap(0, PAGE_SIZE, prot, flags, -1, 0) }.ok()?;
    // SAFETY: zeroed memory, never unmapped, is a sequence at its beginning.
    Some(unsafe { &*(addr as *const Sequence) })
}

/// Whose data an object is.
pub(crate) fn label(page: Page, age: Age) -> Label {
    Label {
        page: wide(page.index()),
        generation: age.0.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a plain model, for all ways in which up to five devices can share priorities: higher ones first, and in
    /// as many turns as there are peers each of them is at each of their places once.
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
                    let turned = |at| turned(at, &peers(all.clone(), priorities[at]), turn);
                    (0..nr).map(turned).collect()
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
