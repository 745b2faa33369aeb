//! *What*: [`Backing`], what a process swaps with: it opens the devices and counts their slots as
//! one owner, from start or fork on.
//!
//! *Invariants*: as [`super`]. *Locking*: none of its own. *Context*: init (`open`); signal,
//! worker.

use super::device::SwapDevice;
use super::devices::{Devices, Owners};
use super::keys::Keys;
use super::readahead::Readahead;
use super::swap_cache::{Leaf, SwapCache};
use crate::account::Account;
use crate::memory::place_static;
use crate::page::transition::Slots;
use crate::page::{PAGE_SHIFT, PAGE_SIZE, Page, narrow};
use uzswap_group::group::{Group, Process, ProcessState, SwapUser, is_alive};
use uzswap_io::{Extent, Location, Queue, Seal};
use uzswap_slots::IsAlive;
use uzswap_sync::lock::{Lock, LockGuard};
use uzswap_sync::primitive::{
    AtomicBool,
    Ordering::{Acquire, Relaxed},
};
use uzswap_sync::strict_assert;

/// Queues per process for concurrent reads.
const NR_QUEUES: usize = 4;

/// The swap devices of this process, and what goes with them.
pub(crate) struct Backing {
    pub(super) account: &'static Account,
    pub(super) devices: Devices,
    pub(super) keys: Keys,
    pub(super) cache: SwapCache<'static>,
    /// The readahead windows.
    pub(super) readahead: Readahead,
    /// For concurrent reads. Few, since the kernel limits them system-wide; a thread that finds all
    /// in use reads one extent after the other.
    queues: [Lock<Queue>; NR_QUEUES],
    /// An unreadable page has been reported.
    pub(super) reported_unreadable: AtomicBool,
}

impl Backing {
    /// Opens the group's devices for this process; `None`: there are none, or they belong to
    /// another user or pid namespace.
    pub(crate) fn open(account: &'static Account) -> Option<Backing> {
        let (group, process) = (account.group(), account.process());
        let config = &group.config.swap;
        if config.nr_slots() == 0 || group.is_foreign(process) {
            return None;
        }
        let user = group.number_of(process)?;
        let keys = Keys::new(account, config.encrypt.load(Relaxed) != 0)?;
        let cache = new_cache(account)?;
        let backing = Backing {
            account,
            devices: Devices::open(account, liveness_probe(account)?)?,
            keys,
            cache,
            readahead: Readahead::new(),
            queues: [const { Lock::new(Queue::new()) }; NR_QUEUES],
            reported_unreadable: AtomicBool::new(false),
        };
        for device in backing.devices.iter() {
            let owner = device.join(user);
            // SAFETY: nobody else reaches it yet.
            unsafe { device.set_owner(Some(owner)) };
        }
        process.swap_user.store(SwapUser::Yes, Relaxed);
        // The program that this process ran before exec left slots under the same pid.
        backing.reap(group, process);
        Some(backing)
    }

    /// The devices.
    pub(crate) const fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Closes the devices, none of which was written to.
    pub(crate) fn close(self) {
        self.devices.close();
    }

    /// Frees all slots of this engine, whose memory is needed no more.
    pub(crate) fn leave(&self) {
        let process = self.account.process();
        let is_user = process.swap_user.load(Relaxed) == SwapUser::Yes;
        if let Some(user) = self.account.group().number_of(process).filter(|_| is_user) {
            self.devices.release(user);
            process.swap_user.store(SwapUser::No, Relaxed);
        }
    }

    /// Frees the slots of dead processes.
    pub(crate) fn reap(&self, group: &Group, process: &Process) {
        if self.devices.counts() && process.swap_user.load(Relaxed) == SwapUser::Yes {
            let pid = process.pid.load(Relaxed);
            group.reap(process, pid, is_alive, |user| self.devices.release(user));
        }
    }

    /// Before a fork, with no operation under way: counts for `child`, of user number `user`, what
    /// this process counts. `None`: it counts nothing.
    pub(crate) fn fork(&self, user: usize) -> Option<Owners> {
        self.devices.counts().then(|| self.devices.fork(user))
    }

    /// Undoes [`Backing::fork`] after a failed fork.
    pub(crate) fn fork_failed(&self, user: usize) {
        self.devices.release(user);
    }

    /// In a fork child, before any operation: counts as `owners` from now on.
    pub(crate) fn fork_child(&self, process: &Process, owners: Option<Owners>) {
        let counts = match owners {
            None => SwapUser::No,
            Some(_) if self.account.group().is_foreign(process) => SwapUser::Unknown,
            Some(_) => SwapUser::Yes,
        };
        for (device, owner) in self.devices.iter().zip(owners.unwrap_or_default()) {
            // SAFETY: this process has one thread, this one.
            unsafe { device.set_owner(owner) };
        }
        process.swap_user.store(counts, Relaxed);
        self.keys.lock_again();
    }

    /// How objects are sealed.
    pub(crate) fn seal(&self) -> Seal<'static> {
        self.keys.seal()
    }

    /// The number of the next write; 0 where the devices do not remember it.
    pub(crate) fn next_write(&self) -> u32 {
        match self.devices.iter().any(SwapDevice::is_fresh) {
            true => self.keys.next_write(),
            false => 0,
        }
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
        self.devices
            .of_slot(extent.slot)
            .is_some_and(|device| device.get(extent))
    }

    /// Uncounts the slots of an object that an entry no longer names.
    pub(crate) fn put(&self, location: u64, size: u16) {
        let extent = self.extent(location, size);
        let device = self.devices.of_slot(extent.slot);
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

/// A function that tells whether the process of a group record is alive; `false` only if it surely
/// is not.
fn liveness_probe(account: &'static Account) -> Option<IsAlive<'static>> {
    let group = account.group();
    let ask = move |number: usize| {
        let Some(process) = group.processes.get(number) else {
            return true;
        };
        match process.state.load(Acquire) {
            ProcessState::Free => false,
            ProcessState::Live { .. } if process.swap_user.load(Relaxed) == SwapUser::Yes => {
                !process.is_abandoned(is_alive) || !account.knows_pids()
            }
            _ => true,
        }
    };
    Some(place_static(account.memory().reserve(PAGE_SIZE).ok()?, ask))
}

/// An empty cache for a process with the account's limit.
fn new_cache(account: &Account) -> Option<SwapCache<'static>> {
    let len = SwapCache::memory_len(narrow(account.limit_bytes() >> PAGE_SHIFT));
    let leaves = account.memory().reserve(len).ok()?.cast::<Leaf>();
    // SAFETY: zeroed memory of that length, page aligned and never unmapped, is empty leaves;
    // used by nobody else.
    let leaves = unsafe { core::slice::from_raw_parts(leaves, len / size_of::<Leaf>()) };
    Some(SwapCache::new(leaves))
}
