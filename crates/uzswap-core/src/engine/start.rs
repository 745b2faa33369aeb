//! *What*: start: maps the arena and the engine's own memory.
//!
//! *Invariants*: every byte of the engine's own memory is outside the arena. What is touched from the
//! beginning is charged here; what grows is charged where it grows.
//! *Locking*: none; runs once, before anything else of the engine. *Context*: init.

use core::fmt;
use core::mem::MaybeUninit;

use super::accel::Engines;
use super::auto::Auto;
use super::clock::Clock;
use super::compressor::{compressor_len, decoder_bit, new_compressor};
use super::densify::Densifier;
use super::mapping::Mapping;
use super::swap::{SWAP_PAGES, Swap};
use super::{Engine, FaultMode, Parts};
use crate::accel::{Accel, BATCH, Job};
use crate::arena::{ARENA_BASE, ARENA_LEN, PAGE_SHIFT, PAGE_SIZE, Page, narrow, wide};
use crate::folio::FolioTable;
use crate::lru::Lru;
use crate::masked::Masked;
use crate::readahead::Streams;
use crate::region::{ENTRY_LEN, RegionMap};
use crate::slot::{
    BATCH_FOLIOS, BATCH_PAGES, Batch, BatchFolio, BatchPage, LOAD_LEN, RESERVE_PAGES, STORE_LEN,
    SWAP_IN_LEN, Slot, SlotInner, SlotTable, SwapIn,
};
use crate::table::{Entry, PageTable, TABLE_LEN};
use uzswap_compress::{Codec, Decompressor};
use uzswap_group::group::{self, Group, Process};
use uzswap_pool::{Pool, PoolMemory};
use uzswap_sync::charge::{Charge, Reserve};
use uzswap_sync::lock::Lock;
use uzswap_sync::primitive::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use uzswap_sys::mem::{self, IoVec};
use uzswap_sys::{Errno, file, thread};

/// The least limit that the engine can work with, bytes.
pub const MIN_RAM: u64 = 8 << 20;
/// Address space for pool objects.
const POOL_LEN: usize = 1 << 40;
/// Regions that the map can hold; the kernel's own default limit is 65530 mappings.
const NR_REGIONS: usize = 1 << 18;
/// Most slots, so that their buffers stay small beside the limit.
const MOST_SLOTS: usize = 16;
/// Where the userfaultfd's number is looked for: above what programs use.
const HIGH_FD: i32 = 960;

/// What `start` was doing when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum StartStep {
    /// Reserving the arena: EEXIST if something is mapped there, ENOMEM under an address space limit.
    Arena = 1,
    /// Reserving memory for the engine's tables.
    Tables = 2,
    /// userfaultfd(2): ENOSYS without kernel support, EPERM where a sandbox or a sysctl forbids it.
    UffdOpen = 3,
    /// Its features: write protection (5.7), and SIGBUS delivery in signal mode.
    UffdApi = 4,
    /// Registering the arena.
    UffdRegister = 5,
    /// A compressor's or decompressor's memory.
    Workspace = 6,
    /// The limit is below [`MIN_RAM`] or what the slots need.
    RamTooSmall = 7,
    /// A compressor or level that this library does not have.
    Compressor = 8,
    /// Installing the system call guard: ENOMEM below more than a hundred programs that each
    /// started the next; EEXIST if its addresses are taken; EACCES, EINVAL without seccomp.
    Guard = 9,
    /// Opening /proc/self/mem, or writing through it to memory that nobody may access: ENOENT without /proc, EIO where
    /// the kernel forbids that (`proc_mem.force_override`).
    Memory = 10,
}

impl StartStep {
    /// The step of that number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<StartStep> {
        Some(match number {
            1 => StartStep::Arena,
            2 => StartStep::Tables,
            3 => StartStep::UffdOpen,
            4 => StartStep::UffdApi,
            5 => StartStep::UffdRegister,
            6 => StartStep::Workspace,
            7 => StartStep::RamTooSmall,
            8 => StartStep::Compressor,
            9 => StartStep::Guard,
            10 => StartStep::Memory,
            _ => return None,
        })
    }
}

/// Why the engine could not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartError {
    /// The step that failed.
    pub step: StartStep,
    /// The system call's error; 0 if none was involved.
    pub errno: Errno,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.step, self.errno)
    }
}

pub(super) const fn failed(step: StartStep, errno: Errno) -> StartError {
    StartError { step, errno }
}

impl Engine {
    /// Starts the engine of this process as `group` configures it, counting into `process`.
    ///
    /// # Errors
    /// The step that failed; nothing is managed then.
    pub fn start(
        &'static self,
        _masked: &Masked,
        group: &'static Group,
        process: &'static Process,
    ) -> Result<FaultMode, StartError> {
        let config = &group.config;
        self.charge.follow(&group.knobs.ram);
        let order = config.folio_order.load(Ordering::Relaxed).min(9);
        let codec = group
            .knobs
            .codec()
            .ok_or(failed(StartStep::Compressor, Errno(0)))?;
        let asked = config.fault_mode.load(Ordering::Relaxed);
        let (mode, mapping) = open_mapping(asked, self.charge.limit())?;
        let order = order.max(mapping.granule().ilog2());

        reserve_arena(mapping.prot())?;
        let table = reserve(TABLE_LEN)?;
        let table_map = reserve(PageTable::BITMAP_LEN)?;
        let folios = reserve(FolioTable::len_for(order))?;
        let folio_map = reserve(FolioTable::bitmap_len_for(order))?;
        let regions = RegionMap::new();
        // SAFETY: fresh memory for that many entries.
        unsafe {
            let entries = reserve(NR_REGIONS * ENTRY_LEN)?;
            regions.init(
                ARENA_BASE,
                ARENA_LEN,
                PAGE_SIZE << order,
                entries,
                NR_REGIONS,
            );
        }
        // SAFETY: `parts` is written before `started` is set, and nobody reads it before.
        let parts = unsafe {
            (*self.parts.get()).write(Parts {
                charge: &self.charge,
                hazards: &self.hazards,
                table: PageTable::new(table, table_map),
                folios: FolioTable::new(folios, folio_map, order),
                regions,
                lru: Lru::new(),
                pool: Pool::new(),
                slots: SlotTable::new(&[]),
                mapping,
                mode,
                charged_parts: AtomicU32::new(decoder_bit(codec.id())),
                over_limit_allow: config.over_limit_allow.load(Ordering::Relaxed) != 0,
                how_to_drop: mem::probe_vectored_dontneed(None),
                zeroes: reserve(LOAD_LEN)?,
                group,
                process: AtomicPtr::new(core::ptr::from_ref(process).cast_mut()),
                pid: AtomicI32::new(thread::getpid()),
                clock: Clock::new(),
                resident: AtomicU64::new(0),
                metadata: AtomicU64::new(0),
                region_pages: AtomicU64::new(0),
                swap: None,
                told_damaged: AtomicBool::new(false),
                #[cfg(feature = "fault-injection")]
                pool_injector: pool_injector(group),
                accel: Accel::new(),
                engines: Engines::new(group),
                protecting: Lock::new(()),
                auto: Auto::new(),
                densifier: Densifier::new(&self.charge),
                kick: AtomicU32::new(0),
                background: config.background.load(Ordering::Relaxed) != 0,
            })
        };
        // SAFETY: fresh memory; the pool is this engine's.
        unsafe {
            let memory = PoolMemory {
                data: reserve(POOL_LEN)?,
                data_len: POOL_LEN,
                metadata: reserve(Pool::metadata_len(POOL_LEN))?,
                metadata_len: Pool::metadata_len(POOL_LEN),
            };
            parts
                .pool
                .init(memory)
                .map_err(|_| failed(StartStep::Tables, Errno::ENOMEM))?;
        }
        parts.slots = make_slots(&self.charge, codec, &parts.metadata)?;
        // Without it the process goes on as if there were no device.
        if let Some(swap) = Swap::open(group, process, self.charge.limit()) {
            match add_swap_buffers(&parts.slots, &self.charge) {
                Some(pages) => {
                    parts.metadata.fetch_add(pages, Ordering::Relaxed);
                    parts.swap = Some(swap);
                }
                None => swap.close(),
            }
        }
        parts
            .mapping
            .adopt(ARENA_BASE, ARENA_LEN)
            .map_err(|errno| failed(StartStep::UffdRegister, errno))?;
        process.fault_mode.store(mode.into(), Ordering::Relaxed);
        // Release: pairs with the acquire in `started`; `parts` is complete.
        self.started.store(true, Ordering::Release);
        parts.publish_sizes();
        Ok(mode)
    }
}

/// As the configuration tells it.
#[cfg(feature = "fault-injection")]
fn pool_injector(group: &Group) -> uzswap_io::inject::Injector {
    let mut text = [0; uzswap_group::group::Text::LEN];
    // As the first swap device, if there is one or not.
    let [first, ..] = &group.config.swap.devices;
    let plan = uzswap_io::inject::Plan::parse(first.failure_plan.get(&mut text));
    uzswap_io::inject::Injector::new(plan.unwrap_or_default())
}

/// The way in which faults are served if `asked` is configured, and what it needs.
fn open_mapping(asked: group::FaultMode, limit: u64) -> Result<(FaultMode, Mapping), StartError> {
    let open = |mode| Mapping::open(mode, limit).map(|mapping| (mode, mapping));
    match asked {
        group::FaultMode::Signal => open(FaultMode::Signal),
        group::FaultMode::Thread => open(FaultMode::Thread),
        group::FaultMode::Segv => open(FaultMode::Segv),
        group::FaultMode::Auto => open(FaultMode::Signal).or_else(|_| open(FaultMode::Segv)),
    }
}

/// Reserves memory of the engine's own: zero-filled, touched later.
pub(super) fn reserve(len: usize) -> Result<*mut u8, StartError> {
    // SAFETY: a fresh mapping where the kernel likes.
    let addr = unsafe {
        mem::mmap(
            0,
            len.next_multiple_of(PAGE_SIZE),
            mem::PROT_READ | mem::PROT_WRITE,
            mem::MAP_PRIVATE | mem::MAP_ANONYMOUS | mem::MAP_NORESERVE,
            -1,
            0,
        )
    }
    .map_err(|errno| failed(StartStep::Tables, errno))?;
    // Whole huge pages would be touched, uncharged, for one byte.
    // SAFETY: the mapping above; the advice changes no contents. EINVAL without huge pages.
    let _ = unsafe { mem::madvise(addr, len.next_multiple_of(PAGE_SIZE), mem::MADV_NOHUGEPAGE) };
    // As for the arena: see `adopt`.
    // SAFETY: as above.
    let _ = unsafe { mem::madvise(addr, len.next_multiple_of(PAGE_SIZE), mem::MADV_DONTDUMP) };
    Ok(addr as *mut u8)
}

fn reserve_arena(prot: i32) -> Result<(), StartError> {
    let at = |errno| failed(StartStep::Arena, errno);
    // SAFETY: a fresh mapping; FIXED_NOREPLACE replaces nothing.
    let addr = unsafe {
        mem::mmap(
            ARENA_BASE,
            ARENA_LEN,
            prot,
            mem::MAP_PRIVATE | mem::MAP_ANONYMOUS | mem::MAP_NORESERVE | mem::MAP_FIXED_NOREPLACE,
            -1,
            0,
        )
    }
    .map_err(at)?;
    if addr != ARENA_BASE {
        // Kernels before 4.17 take the flag for a hint.
        // SAFETY: the mapping made just now.
        let _ = unsafe { mem::munmap(addr, ARENA_LEN) };
        return Err(at(Errno::EEXIST));
    }
    Ok(())
}

/// Moves a descriptor to a number where programs do not meet it.
pub(super) fn high(fd: i32) -> i32 {
    match file::dupfd_cloexec(fd, HIGH_FD).or_else(|_| file::dupfd_cloexec(fd, 200)) {
        Ok(number) => {
            let _ = file::close(fd);
            number
        }
        Err(_) => fd,
    }
}

fn nr_slots() -> usize {
    (nr_cpus() + 1).clamp(2, MOST_SLOTS)
}

/// Pages that the slots take with this codec.
fn slot_pages(codec: Codec) -> u64 {
    let nr = nr_slots();
    // Of the store buffer a page, as long as there are no blocks; of the decompressor one codec's part.
    let each = DECOMPRESSOR_AT - (STORE_LEN - PAGE_SIZE)
        + compressor_len(codec, PAGE_SIZE)
        + Decompressor::part_size(codec.id(), PAGE_SIZE);
    wide(nr * each + size_of::<Slot>() * nr).div_ceil(wide(PAGE_SIZE))
}

/// The least limit that the engine starts with on this machine, bytes: [`MIN_RAM`], or more where many
/// CPUs or a codec with large tables need it.
#[must_use]
pub fn min_ram(codec: Codec) -> u64 {
    // An eighth of the limit for buffers is the most that makes sense.
    MIN_RAM.max((slot_pages(codec) * 8) << PAGE_SHIFT)
}

/// Maps and charges the slots.
fn make_slots(
    charge: &'static Charge,
    codec: Codec,
    metadata: &AtomicU64,
) -> Result<SlotTable, StartError> {
    let nr = nr_slots();
    let each = DECOMPRESSOR_AT + Decompressor::required_size();
    let pages = slot_pages(codec);
    let too_small = failed(StartStep::RamTooSmall, Errno::ENOMEM);
    if charge.limit() << PAGE_SHIFT < min_ram(codec) {
        return Err(too_small);
    }
    if !charge.try_charge(pages) {
        return Err(too_small);
    }
    metadata.fetch_add(pages, Ordering::Relaxed);
    let slots = reserve(size_of::<Slot>() * nr)?.cast::<MaybeUninit<Slot>>();
    for at in 0..nr {
        let inner = make_slot(charge, codec, reserve(each)?)?;
        // SAFETY: fresh memory for `nr` slots, page aligned.
        unsafe { (*slots.add(at)).write(Slot::new(inner)) };
    }
    // SAFETY: all `nr` were written, and their memory is mapped for good.
    Ok(SlotTable::new(unsafe {
        core::slice::from_raw_parts(slots.cast::<Slot>(), nr)
    }))
}

/// Gives every slot a buffer to read from the device into; charges them and the buffer that is written
/// from. Returns the pages; `None`: they do not fit.
fn add_swap_buffers(slots: &SlotTable, charge: &'static Charge) -> Option<u64> {
    let pages = wide(slots.all().len() * SWAP_IN_LEN).div_ceil(wide(PAGE_SIZE)) + SWAP_PAGES;
    if !charge.try_charge(pages) {
        return None;
    }
    for slot in slots.all() {
        let Ok(memory) = reserve(SWAP_IN_LEN) else {
            charge.uncharge(pages);
            return None;
        };
        // SAFETY: a fresh mapping of that length, never unmapped, used by this slot alone.
        let buffer = unsafe { core::slice::from_raw_parts_mut(memory, SWAP_IN_LEN) };
        slot.acquire().swap_in = SwapIn::new(buffer);
    }
    Some(pages)
}

const STORE_AT: usize = LOAD_LEN;
const BATCH_AT: usize = STORE_AT + STORE_LEN;
const JOBS_AT: usize = BATCH_AT + size_of::<Batch>().next_multiple_of(align_of::<Job>());
const DECOMPRESSOR_AT: usize = (JOBS_AT + BATCH * size_of::<Job>()).next_multiple_of(PAGE_SIZE);

/// Lays a slot out in `memory`, which has room for a decompressor at [`DECOMPRESSOR_AT`].
fn make_slot(
    charge: &'static Charge,
    codec: Codec,
    memory: *mut u8,
) -> Result<SlotInner, StartError> {
    let reserve = Reserve::charged(charge, RESERVE_PAGES)
        .ok_or(failed(StartStep::RamTooSmall, Errno::ENOMEM))?;
    // SAFETY: the parts of `memory` do not overlap, live for good, and are aligned to pages.
    unsafe {
        let batch = memory.add(BATCH_AT).cast::<Batch>();
        batch.write(Batch {
            pages: [BatchPage {
                page: Page::from_index(0),
                entry: Entry::None,
            }; BATCH_PAGES],
            nr_pages: 0,
            folios: [BatchFolio {
                index: 0,
                first: 0,
                nr: 0,
                denser: false,
                dropping: false,
            }; BATCH_FOLIOS],
            nr_folios: 0,
            ranges: [IoVec { base: 0, len: 0 }; BATCH_PAGES],
        });
        let jobs = memory.add(JOBS_AT).cast::<Job>();
        for at in 0..BATCH {
            jobs.add(at).write(Job::new());
        }
        Ok(SlotInner {
            compressor: new_compressor(codec, PAGE_SIZE)?,
            denser: None,
            asked: (codec.to_bits().into(), 0, None),
            decompressor: Decompressor::init(
                memory.add(DECOMPRESSOR_AT),
                Decompressor::required_size(),
            )
            .map_err(|_| failed(StartStep::Workspace, Errno::EINVAL))?,
            load: core::slice::from_raw_parts_mut(memory, LOAD_LEN),
            swap_in: SwapIn::new(&mut []),
            store: core::slice::from_raw_parts_mut(memory.add(STORE_AT), STORE_LEN),
            batch: &mut *batch,
            jobs: core::slice::from_raw_parts(jobs, BATCH),
            reserve,
            streams: Streams::new(),
            spurious: (usize::MAX, 0),
        })
    }
}

/// CPUs that this process may run on.
fn nr_cpus() -> usize {
    let mut mask = [0_u64; 128];
    let len = size_of_val(&mask);
    // SAFETY: the kernel writes at most `len` bytes.
    let got = unsafe {
        uzswap_sys::syscall::call3(
            uzswap_sys::nr::SCHED_GETAFFINITY,
            0,
            len,
            mask.as_mut_ptr() as usize,
        )
    };
    let words = got.map_or(0, |bytes| bytes / 8);
    let nr: u32 = mask.iter().take(words).map(|word| word.count_ones()).sum();
    narrow(u64::from(nr)).max(1)
}
