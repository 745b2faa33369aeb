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

use core::fmt::Write;
use core::mem::MaybeUninit;

use super::fault::Fault;
use super::slots::Slots;
use super::writeback::{RUN_LEN, Writeback};
use super::{Parts, start};
use crate::arena::{PAGE_SIZE, Page, PageRange, narrow, wide};
use crate::counters::add;
use crate::group::{Group, NR_PROCESSES, Process, SLOTS, SLOTS_KEPT, SwapConfig, Text};
use crate::lock::Lock;
use crate::primitive::{AtomicBool, Ordering::Relaxed};
use crate::slot::SwapIn;
use crate::table::{Age, Entry};
use uzswap_io::{Device, Extent, Key, Label, Location, Seal, Sequence, Window};
use uzswap_sys::fmt::{StackBuf, write_line};
use uzswap_sys::{Errno, file, mem, signal, thread};

const O_DIRECT: i32 = 0o40_000;

/// The device, open in this process.
pub(crate) struct Swap {
    pub device: Device,
    fd: i32,
    pub slots: Slots,
    /// Encrypts what is written, if anything does.
    key: Option<&'static Key>,
    sequence: &'static Sequence,
    /// Pool pages above which the shrinker starts, and down to which it goes.
    pub max_pool: u64,
    pub accept: u64,
    /// The pool was over its limit and is not down yet.
    pub shrinking: AtomicBool,
    pub writeback: Lock<Writeback>,
    /// A page that was lost has been told of.
    told: AtomicBool,
}

/// Pages that the device takes beside the slots' buffers: what is written from, its list, key and
/// sequence.
pub(crate) const SWAP_PAGES: u64 =
    wide(RUN_LEN / PAGE_SIZE) + 2 + wide(size_of::<Writeback>().div_ceil(PAGE_SIZE));

impl Swap {
    /// Opens the group's device for `process`; `None`: there is none, or not for this process
    /// (another user's, another pid namespace's).
    pub(crate) fn open(group: &Group, process: &'static Process, limit: u64) -> Option<Swap> {
        let config = &group.config.swap;
        let nr_slots = config.nr_slots.load(Relaxed);
        if nr_slots == 0 || !in_namespace_of(config) {
            return None;
        }
        let user = group.number_of(process)?;
        let supervisor = group.supervisor.load(Relaxed);
        let table = open_fd(supervisor, config.table_fd.load(Relaxed), 0)?;
        let slots = map_slots(table, nr_slots, user);
        let _ = file::close(table);
        let slots = slots?;
        let flags = match config.direct.load(Relaxed) {
            0 => 0,
            _ => O_DIRECT,
        };
        let fd = open_fd(supervisor, config.device_fd.load(Relaxed), flags)?;
        let fd = start::high(fd);
        let made = Self::on(config, fd, nr_slots, slots, limit);
        match made {
            Some(_) => {
                process.swap_user.store(SLOTS, Relaxed);
                group.reap(
                    process,
                    thread::getpid().unsigned_abs(),
                    is_alive,
                    |user| {
                        if let Some(swap) = &made {
                            swap.slots.release(user);
                        }
                    },
                );
            }
            None => {
                let _ = file::close(fd);
            }
        }
        made
    }

    fn on(config: &SwapConfig, fd: i32, nr_slots: u64, slots: Slots, limit: u64) -> Option<Swap> {
        let percent = |of: u64, cell: &core::sync::atomic::AtomicU32| {
            of * u64::from(cell.load(Relaxed)) / 100
        };
        let max_pool = percent(limit, &config.max_pool_percent);
        let key = match config.encrypt.load(Relaxed) {
            0 => None,
            _ => Some(new_key()?),
        };
        let run = start::reserve(RUN_LEN).ok()?;
        // SAFETY: a fresh mapping of that length, never unmapped, used by nobody else.
        let run = unsafe { core::slice::from_raw_parts_mut(run, RUN_LEN) };
        Some(Swap {
            device: Device::new(fd, nr_slots).ok()?,
            fd,
            slots,
            key,
            sequence: new_sequence()?,
            max_pool,
            accept: percent(max_pool, &config.accept_threshold_percent),
            shrinking: AtomicBool::new(false),
            writeback: Lock::new(Writeback::new(run)),
            told: AtomicBool::new(false),
        })
    }

    /// Its descriptor in this process.
    pub(crate) const fn fd(&self) -> i32 {
        self.fd
    }

    /// Says in the group how much of the device is in use.
    pub(crate) fn publish_use(&self, config: &SwapConfig) {
        let (used, peak) = self.slots.used();
        config.used.store(used, Relaxed);
        config.peak.store(peak, Relaxed);
    }

    /// Slots of processes that died are free again.
    pub(crate) fn reap(&self, group: &Group, process: &Process) {
        if process.swap_user.load(Relaxed) == SLOTS {
            let pid = process.pid.load(Relaxed);
            group.reap(process, pid, is_alive, |user| self.slots.release(user));
        }
    }

    /// Before a fork: counts for the child, in the slot of the group that it will have, what this
    /// process counts. Without a slot of its own it cannot be.
    pub(crate) fn fork<'a>(&self, group: &'a Group) -> Option<&'a Process> {
        let child = group.reserve()?;
        match group.number_of(child) {
            Some(user) => {
                self.slots.fork(user);
                Some(child)
            }
            None => {
                group.give_back(child);
                None
            }
        }
    }

    /// There is no child after all.
    pub(crate) fn fork_failed(&self, group: &Group, child: &Process) {
        if let Some(user) = group.number_of(child) {
            self.slots.release(user);
        }
        group.give_back(child);
    }

    /// In the child: counts for itself from now on.
    pub(crate) fn fork_child(&self, group: &Group, process: &Process) {
        if let Some(user) = group.number_of(process) {
            self.slots.set_user(user as u32);
        }
        let told = if in_namespace_of(&group.config.swap) {
            SLOTS
        } else {
            SLOTS_KEPT
        };
        process.swap_user.store(told, Relaxed);
        if let Some(key) = self.key {
            // Locks are not inherited.
            let _ = mem::mlock(core::ptr::from_ref(key).addr(), size_of::<Key>());
        }
    }

    /// How objects are protected.
    pub(crate) fn seal(&self) -> Seal<'static> {
        match self.key {
            Some(key) => Seal::Encrypted {
                key,
                sequence: self.sequence,
            },
            None => Seal::Checksummed,
        }
    }

    /// The slots of an object.
    fn extent(&self, location: u64, size: u16) -> Extent {
        Location::from_raw(location).extent(size.into(), self.seal())
    }

    /// Counts an object that an entry is going to name.
    pub(crate) fn get(&self, location: u64, size: u16) {
        let extent = self.extent(location, size);
        for slot in extent.slot..extent.slot + u64::from(extent.nr_slots) {
            self.slots.get(slot);
        }
    }

    /// Counts an object off that no entry names any more.
    pub(crate) fn put(&self, location: u64, size: u16) {
        let extent = self.extent(location, size);
        for slot in extent.slot..extent.slot + u64::from(extent.nr_slots) {
            self.slots.put(slot);
        }
    }
}

fn is_alive(pid: u32) -> bool {
    let pid = pid.cast_signed();
    signal::tgkill(pid, pid, 0) != Err(Errno::ESRCH)
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

fn map_slots(fd: i32, nr_slots: u64, user: usize) -> Option<Slots> {
    let len = narrow(Slots::len_for(nr_slots, wide(NR_PROCESSES)));
    let stat = file::fstat(fd).ok()?;
    if usize::try_from(stat.st_size).ok()? < len {
        return None;
    }
    let prot = mem::PROT_READ | mem::PROT_WRITE;
    // SAFETY: a fresh mapping where the kernel likes.
    let addr = unsafe { mem::mmap(0, len, prot, mem::MAP_SHARED, fd, 0) }.ok()?;
    // SAFETY: shared memory of that length, never unmapped.
    Some(unsafe { Slots::new(addr as *const u8, nr_slots, user as u32) })
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
    /// is there already. What follows it in `range` and lies behind it on the device is read along.
    /// `None`: it cannot be had.
    pub(crate) fn swap_in<T>(
        &self,
        window: &mut SwapIn,
        page: Page,
        range: PageRange,
        unpack: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        let swap = self.swap.as_ref()?;
        let Entry::Swapped {
            location,
            size,
            age,
        } = self.table.get(page)
        else {
            return None;
        };
        let needed = swap.extent(location, size);
        if !window.holds(needed) {
            let following = (page.index() + 1..range.end).filter_map(|index| {
                match self.table.get(Page::from_index(index)) {
                    Entry::Swapped { location, size, .. } => Some(swap.extent(location, size)),
                    _ => None,
                }
            });
            let extent = joined(needed, following, window.most());
            let buffer = window.prepare(extent)?;
            if swap.device.read_at(extent.slot, buffer).is_err() {
                window.forget();
                return None;
            }
        }
        let (first, buffer) = window.contents();
        Window::new(first, buffer)
            .open(
                swap.seal(),
                label(page, age),
                Location::from_raw(location),
                size.into(),
            )
            .ok()
            .map(|body| unpack(body))
    }

    /// A page's contents cannot be had back: the program gets SIGBUS for the access. The first time
    /// is told.
    pub(crate) fn lost(&self, page: Page) -> Fault {
        if let Some(swap) = &self.swap
            && matches!(self.table.get(page), Entry::Swapped { .. })
        {
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
        Fault::Corrupt
    }
}

/// `first` and what follows on it without a gap, up to `most` slots.
fn joined(first: Extent, following: impl Iterator<Item = Extent>, most: usize) -> Extent {
    let mut joined = first;
    for next in following {
        let end = next.slot + u64::from(next.nr_slots);
        let touches = joined.slot + u64::from(joined.nr_slots) >= next.slot;
        let Some(nr_slots) = end.checked_sub(joined.slot).filter(|_| touches) else {
            break;
        };
        if next.slot < joined.slot || nr_slots > wide(most) {
            break;
        }
        #[expect(clippy::cast_possible_truncation, reason = "a buffer is small")]
        let nr_slots = nr_slots as u32;
        joined.nr_slots = joined.nr_slots.max(nr_slots);
    }
    joined
}
