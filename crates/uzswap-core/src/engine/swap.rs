//! *What*: the swap device as the engine sees it: opened for this process, read from, its slots put
//! back when an entry that named them goes.
//!
//! The supervisor holds the device and the memory of its slot allocator open; every process under it
//! opens both anew, by `/proc`. An object on the device belongs to one page of one process (and,
//! after fork, of its children), by which it was sealed; so an entry names it by location, size
//! and age, and nothing about it is kept elsewhere.
//!
//! *Invariants*: every slot that a swapped entry's object touches is counted once for it, from before
//! the entry is published until after it is gone. No object is taken for a page's contents
//! before its seal was checked.
//! *Locking*: none of its own; a cluster's lock is a leaf below all others. *Context*: init (`open`);
//! signal, worker.

use core::cell::UnsafeCell;
use core::fmt::Write;
use core::mem::MaybeUninit;

use super::writeback::{RUN_LEN, Writeback};
use super::{Parts, start};
use crate::arena::{PAGE_SIZE, Page, PageRange, narrow, wide};
use crate::counters::add;
use crate::group::{
    FREE, Group, LIVE, NO_SLOTS, Process, SLOTS, SLOTS_KEPT, SwapConfig, Text, is_alive,
};
use crate::lock::Lock;
use crate::primitive::{
    AtomicBool,
    Ordering::{Acquire, Relaxed},
};
use crate::slot::SwapIn;
use crate::swap::{Owner, Run, Slots};
use crate::swap_cache::{Leaf, SwapCache};
use crate::table::{Age, Entry};
use uzswap_io::{Device, Extent, Fingerprint, Key, Label, Location, Queue, Seal, Sequence, Window};
use uzswap_sys::fmt::{StackBuf, write_line};
use uzswap_sys::{file, mem, thread};

const O_DIRECT: i32 = 0o40_000;
/// Queues of a process.
const NR_QUEUES: usize = 4;

/// The device, open in this process.
pub(crate) struct Swap {
    pub device: Device,
    fd: i32,
    pub slots: Slots<'static>,
    /// Under what this process counts slots; `None` in a child that could not be given a number: it has
    /// nothing on the device, and puts nothing there.
    owner: UnsafeCell<Option<Owner>>,
    /// Encrypts what is written, unless that is turned off, and makes fingerprints.
    key: &'static Key,
    encrypts: bool,
    /// Written back a page at a time, for a benchmark.
    pub by_page: bool,
    sequence: &'static Sequence,
    /// The pool was over its limit and is not down yet.
    pub shrinking: AtomicBool,
    pub writeback: Lock<Writeback>,
    pub cache: SwapCache<'static>,
    /// For reads of several places at once. Few, since the system has a bound on them; a thread that finds them all
    /// in use reads one place after the other.
    queues: [Lock<Queue>; NR_QUEUES],
    /// A page that was lost has been told of.
    told: AtomicBool,
}

/// Pages that the device takes beside the slots' buffers: what is written from, its list, key and
/// sequence.
pub(crate) const SWAP_PAGES: u64 =
    wide(RUN_LEN / PAGE_SIZE) + 2 + wide(size_of::<Writeback>().div_ceil(PAGE_SIZE));

// SAFETY: `owner` is written in `fork_child` alone, when the process has one thread and no operation is
// under way; all else is shared through atomics and locks.
unsafe impl Sync for Swap {}

impl Swap {
    /// Opens the group's device for `process`; `None`: there is none, or not for this process
    /// (another user's, another pid namespace's).
    pub(crate) fn open(
        group: &'static Group,
        process: &'static Process,
        limit: u64,
    ) -> Option<Swap> {
        let config = &group.config.swap;
        let nr_slots = config.nr_slots.load(Relaxed);
        if nr_slots == 0 || !in_namespace_of(config) {
            return None;
        }
        let user = group.number_of(process)?;
        let supervisor = group.supervisor.load(Relaxed);
        let table = open_fd(supervisor, config.table_fd.load(Relaxed), 0)?;
        let slots = map_slots(table, nr_slots, group);
        let _ = file::close(table);
        let slots = slots?;
        let flags = match config.direct.load(Relaxed) {
            0 => 0,
            _ => O_DIRECT,
        };
        let fd = open_fd(supervisor, config.device_fd.load(Relaxed), flags)?;
        let fd = start::high(fd);
        let made = Self::on(config, fd, nr_slots, slots, limit);
        match &made {
            Some(swap) => {
                // SAFETY: nobody else reaches it yet.
                unsafe { *swap.owner.get() = Some(swap.slots.join(user)) };
                process.swap_user.store(SLOTS, Relaxed);
                // The program that called exec to become this one was a process of the same number.
                swap.reap(group, process);
            }
            None => {
                let _ = file::close(fd);
            }
        }
        made
    }

    /// Under what this process counts.
    pub(crate) fn owner(&self) -> Option<Owner> {
        // SAFETY: written only while no operation is under way.
        unsafe { *self.owner.get() }
    }

    fn on(
        config: &SwapConfig,
        fd: i32,
        nr_slots: u64,
        slots: Slots<'static>,
        limit: u64,
    ) -> Option<Swap> {
        let run = start::reserve(RUN_LEN).ok()?;
        // SAFETY: a fresh mapping of that length, never unmapped, used by nobody else.
        let run = unsafe { core::slice::from_raw_parts_mut(run, RUN_LEN) };
        Some(Swap {
            device: open_device(config, fd, nr_slots)?,
            fd,
            slots,
            owner: UnsafeCell::new(None),
            key: new_key()?,
            encrypts: config.encrypt.load(Relaxed) != 0,
            by_page: config.by_page.load(Relaxed) != 0,
            sequence: new_sequence()?,
            shrinking: AtomicBool::new(false),
            writeback: Lock::new(Writeback::new(run)),
            cache: new_cache(limit)?,
            queues: [const { Lock::new(Queue::new()) }; NR_QUEUES],
            told: AtomicBool::new(false),
        })
    }

    /// There was no room for its buffers: nothing was written.
    pub(crate) fn close(self) {
        let _ = file::close(self.fd);
    }

    /// Its descriptor in this process.
    pub(crate) const fn fd(&self) -> i32 {
        self.fd
    }

    /// Says in the group how much of the device is in use.
    pub(crate) fn publish_use(&self, config: &SwapConfig) {
        config.used.store(self.slots.in_use(), Relaxed);
        config.peak.store(self.slots.peak(), Relaxed);
    }

    /// Slots of processes that died are free again.
    pub(crate) fn reap(&self, group: &Group, process: &Process) {
        let Some(owner) = self.owner() else { return };
        if process.swap_user.load(Relaxed) == SLOTS {
            let pid = process.pid.load(Relaxed);
            group.reap(process, pid, is_alive, |user| {
                self.slots.release(owner, user);
            });
        }
    }

    /// Before a fork, with no operation under way: takes a slot of the group for the child and counts
    /// for it what this process counts. `None`: the group has none left.
    pub(crate) fn fork<'a>(&self, group: &'a Group) -> Option<(&'a Process, Owner)> {
        let owner = self.owner()?;
        let child = group.reserve(thread::getpid().unsigned_abs())?;
        match group.number_of(child) {
            Some(user) => Some((child, self.slots.fork(owner, user))),
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
    pub(crate) fn fork_failed(&self, group: &Group, child: &Process, owner: Owner) {
        if let Some(by) = self.owner() {
            self.slots.release(by, owner.index());
        }
        group.give_back(child);
    }

    /// In the child, before any operation: counts as `owner` from now on.
    pub(crate) fn fork_child(&self, group: &Group, process: &Process, owner: Option<Owner>) {
        // SAFETY: this process has one thread, and it is here.
        unsafe { *self.owner.get() = owner };
        let counts = match owner {
            None => NO_SLOTS,
            Some(_) if in_namespace_of(&group.config.swap) => SLOTS,
            Some(_) => SLOTS_KEPT,
        };
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

    /// Whether copies of pages that are read back are kept: as the kernel does (`vm_swap_full`), while the device
    /// is less than half full.
    fn keeps_copies(&self) -> bool {
        self.slots.in_use() * 2 < u64::from(self.slots.nr_slots()) && self.owner().is_some()
    }

    /// The slots of an object.
    fn extent(&self, location: u64, size: u16) -> Extent {
        Location::from_raw(location).extent(size.into(), self.seal())
    }

    /// Counts an object that an entry is going to name. `false`: it cannot be counted.
    #[must_use]
    pub(crate) fn get(&self, location: u64, size: u16) -> bool {
        let run = run_of(self.extent(location, size));
        self.owner().is_some_and(|owner| self.slots.dup(owner, run))
    }

    /// Counts an object off that no entry names any more.
    pub(crate) fn put(&self, location: u64, size: u16) {
        if let Some(owner) = self.owner() {
            self.slots.put(owner, run_of(self.extent(location, size)));
        }
    }

    /// Tells the device about slots that are free, a cluster at most.
    pub(crate) fn discard(&self, owner: Owner) {
        if let Some(run) = self.slots.take_discard(owner) {
            // A device that cannot is none the worse for being asked.
            let _ = self.device.discard(run.first.into(), run.nr.into());
            self.slots.discarded(owner, run);
        }
    }
}

#[cfg(not(feature = "fault-injection"))]
fn open_device(_: &SwapConfig, fd: i32, nr_slots: u64) -> Option<Device> {
    Device::new(fd, nr_slots).ok()
}

/// A device that fails as the configuration tells it.
#[cfg(feature = "fault-injection")]
fn open_device(config: &SwapConfig, fd: i32, nr_slots: u64) -> Option<Device> {
    let mut device = Device::<uzswap_io::device::SwapMedium>::new(fd, nr_slots).ok()?;
    let plan = uzswap_io::fault::Plan::parse(config.faults.get(&mut [0; Text::LEN]))?;
    device.medium_mut().inject(plan);
    Some(device)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a device has less than 2^32 slots, an object one or two"
)]
fn run_of(extent: Extent) -> Run {
    Run {
        first: extent.slot as u32,
        nr: extent.nr_slots as u16,
    }
}

/// Whether process numbers mean here what they mean to the supervisor.
fn in_namespace_of(config: &SwapConfig) -> bool {
    file::fstatat(file::AT_FDCWD, c"/proc/self/ns/pid", 0)
        .is_ok_and(|stat| stat.st_ino == config.pid_namespace.load(Relaxed))
}

/// Opens what process `pid` has open as `fd` once more.
fn open_fd(pid: u32, fd: u32, flags: i32) -> Option<i32> {
    let mut path = StackBuf::<64>::new();
    let _ = write!(path, "/proc/{pid}/fd/{fd}");
    let flags = file::O_RDWR | file::O_CLOEXEC | flags;
    file::openat(file::AT_FDCWD, path.as_c_str()?, flags, 0).ok()
}

fn map_slots(fd: i32, nr_slots: u64, group: &'static Group) -> Option<Slots<'static>> {
    let nr_slots = u32::try_from(nr_slots).ok()?;
    let len = Slots::memory_len(nr_slots);
    let stat = file::fstat(fd).ok()?;
    if usize::try_from(stat.st_size).ok()? < len {
        return None;
    }
    let prot = mem::PROT_READ | mem::PROT_WRITE;
    // SAFETY: a fresh mapping where the kernel likes.
    let addr = unsafe { mem::mmap(0, len, prot, mem::MAP_SHARED, fd, 0) }.ok()?;
    // SAFETY: shared memory of that length, never unmapped; everybody goes by the configuration's
    // number of slots.
    Some(unsafe { Slots::attach(addr as *mut u8, nr_slots, asks(group)?) })
}

/// Tells whether the process of a slot of the group is there; "no" only if it surely is not.
fn asks(group: &'static Group) -> Option<&'static (dyn Fn(usize) -> bool + Sync)> {
    let ask = move |number: usize| {
        let Some(process) = group.processes.get(number) else {
            return true;
        };
        match process.state.load(Acquire) {
            FREE => false,
            LIVE if process.swap_user.load(Relaxed) == SLOTS => {
                is_alive(process.pid.load(Relaxed)) || !in_namespace_of(&group.config.swap)
            }
            _ => true,
        }
    };
    Some(for_good(start::reserve(PAGE_SIZE).ok()?, ask))
}

/// Puts `value` at the beginning of a fresh page, where it stays.
fn for_good<T>(page: *mut u8, value: T) -> &'static T {
    const { assert!(size_of::<T>() <= PAGE_SIZE && align_of::<T>() <= PAGE_SIZE) };
    let place = page.cast::<T>();
    // SAFETY: a page that nobody else uses and that is never unmapped; it is large enough and aligned.
    unsafe {
        place.write(value);
        &*place
    }
}

/// A key in a page of its own: locked, and in no core dump. Fork children inherit it.
fn new_key() -> Option<&'static Key> {
    let memory = start::reserve(PAGE_SIZE).ok()?;
    // A limit on locked memory is no reason to do without encryption.
    let _ = mem::mlock(memory.addr(), PAGE_SIZE);
    // SAFETY: a fresh page, never unmapped, used by nobody else.
    let memory = unsafe { &mut *memory.cast::<MaybeUninit<Key>>() };
    Key::generate(memory).ok().map(|key| &*key)
}

/// An empty cache for a process of `limit` pages.
fn new_cache(limit: u64) -> Option<SwapCache<'static>> {
    let len = SwapCache::memory_len(narrow(limit));
    let leaves = start::reserve(len).ok()?.cast::<Leaf>();
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

impl Parts {
    /// Gives `unpack` the stored form of a swapped `page`, read from the device into `window` unless it
    /// is there already, and its fingerprint, if its copy on the device is worth keeping. What follows it in
    /// `range` is read with it. `None`: it cannot be had.
    pub(crate) fn swap_in<T>(
        &self,
        window: &mut SwapIn,
        page: Page,
        range: PageRange,
        unpack: impl FnOnce(&[u8], Option<Fingerprint>) -> T,
    ) -> Option<T> {
        let swap = self.swap.as_ref()?;
        let Entry::Swapped {
            location,
            size,
            age,
            ..
        } = self.table.get(page)
        else {
            return None;
        };
        let needed = swap.extent(location, size);
        if window.read(needed).is_none() {
            self.plan_read(swap, window, needed, page, range);
            // What is read along may be what cannot be read.
            let read = self.read(swap, window) || window.only(needed) && self.read(swap, window);
            if !read {
                window.forget();
                return None;
            }
        }
        let (first, slots) = window.read(needed)?;
        Window::new(first, slots)
            .open(
                swap.seal(),
                label(page, age),
                Location::from_raw(location),
                size.into(),
            )
            .ok()
            .map(|body| {
                let fingerprint = swap.keeps_copies().then(|| swap.fingerprint(page, body));
                unpack(body, fingerprint)
            })
    }

    /// Lists `needed`, where `page` is, and as much as there is room for of what is on the device of the pages that follow
    /// it in `range`, wherever it lies.
    fn plan_read(
        &self,
        swap: &Swap,
        window: &mut SwapIn,
        needed: Extent,
        page: Page,
        range: PageRange,
    ) {
        window.forget();
        let mut room = window.add(needed);
        for index in page.index() + 1..range.end {
            if !room {
                break;
            }
            if let Entry::Swapped { location, size, .. } = self.table.get(Page::from_index(index)) {
                room = window.add(swap.extent(location, size));
            }
        }
    }

    /// Reads what is listed, at once.
    fn read(&self, swap: &Swap, window: &mut SwapIn) -> bool {
        let (extents, buffer) = window.to_read();
        let mut queue = match extents.len() {
            1 => None,
            _ => swap.queues.iter().find_map(Lock::try_lock),
        };
        let counters = self.counters();
        add(&counters.swap_bytes_in, wide(buffer.len()));
        add(&counters.swap_reads, wide(extents.len()));
        swap.device
            .read_extents(queue.as_deref_mut(), extents, buffer)
            .is_ok()
    }

    /// A page that cannot be read back from the device is counted; the first time is told.
    pub(super) fn tell_unreadable(&self, page: Page) {
        if let Some(swap) = &self.swap {
            add(&self.counters().swap_read_fail, 1);
            if !swap.told.swap(true, Relaxed) {
                let name = &self.group.config.swap.name;
                let _ = write_line(
                    2,
                    format_args!(
                        "uzswap: memory at {:#x} cannot be read back from the swap device {}: the \
                         program gets SIGBUS where it uses it",
                        page.addr(),
                        name.get(&mut [0; Text::LEN]),
                    ),
                );
            }
        }
    }
}
