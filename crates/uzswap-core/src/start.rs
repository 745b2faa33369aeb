//! *What*: start: maps the arena and the engine's own memory, and builds the parts.
//!
//! *Invariants*: all of the engine's own memory is outside the arena. What is touched from the
//! beginning is charged here; what grows is charged where it grows.
//! *Locking*: none; runs once, before anything else of the engine. *Context*: init.

use core::mem::MaybeUninit;

use crate::accel::{BATCH, Job};
use crate::account::Account;
use crate::arena::hazard::Hazards;
use crate::arena::region::{ENTRY_LEN, RegionMap};
use crate::arena::{Arena, FaultMode, Mapping};
use crate::backing::{Backing, KEY_PAGES};
use crate::flow::others::Patience;
use crate::op::{
    LOAD_LEN, Op, OpCell, OpTable, READ_LEN, RESERVE_PAGES, ReadWindow, STORE_LEN, Stalls, Streams,
};
use crate::page::batch::Batch;
use crate::page::folio::FolioTable;
use crate::page::table::{PageTable, TABLE_LEN};
use crate::page::{PAGE_SHIFT, PAGE_SIZE, Pages, Partition, narrow, wide};
use crate::parts::Parts;
use crate::parts::densifier::Densifier;
use crate::parts::reclaimer::Reclaimer;
use crate::parts::writeback::{RUN_LEN, WRITEBACK_PAGES, Writeback};
use crate::policy::auto::Auto;
use crate::policy::pool_limit::PoolLimit;
use crate::start_error::{StartError, StartStep, failed};
use crate::store::Store;
use crate::store::codec::{compressor_len, new_compressor};
use uzswap_compress::{Codec, Decompressor};
use uzswap_group::group;
use uzswap_pool::{Pool, PoolMemory};
use uzswap_sync::charge::Reserve;
use uzswap_sync::lock::Lock;
use uzswap_sync::primitive::{AtomicUsize, Ordering::Relaxed};
use uzswap_sys::{Errno, file, mem};

/// The least limit that the engine can work with, bytes.
pub const MIN_RAM: u64 = 8 << 20;
/// Address space for pool objects.
const POOL_LEN: usize = 1 << 40;
/// Regions that the map can hold; the kernel's own default limit is 65530 mappings.
const NR_REGIONS: usize = 1 << 18;
/// Most operation contexts, so that their buffers stay small beside the limit.
const MAX_OPS: usize = 16;
/// Largest folio order: 2 MiB.
const MAX_FOLIO_ORDER: u32 = 9;

/// Builds all parts of the engine of `partition`, as the account's group configures it.
pub(crate) fn build(
    account: &'static Account,
    hazards: &'static Hazards,
    partition: Partition,
) -> Result<Parts, StartError> {
    let limit = account.limit_bytes() >> PAGE_SHIFT;
    let codec = account
        .knobs()
        .codec()
        .ok_or(failed(StartStep::Compressor, Errno(0)))?;
    let asked = account.group().config.fault_mode.load(Relaxed);
    let (mode, mapping) = open_mapping(asked, limit)?;
    let fd = mapping.fd();
    reserve_arena(partition, mapping.prot()).inspect_err(|_| {
        let _ = file::close(fd);
    })?;
    build_on(account, hazards, partition, (mode, mapping), codec).inspect_err(|_| {
        let _ = file::close(fd);
        // SAFETY: the mapping made just now, and memory of parts that never came about.
        unsafe {
            let _ = mem::munmap(partition.start(), partition.len());
            account.memory().release_all();
        }
    })
}

/// Builds the parts on the arena's mapping.
fn build_on(
    account: &'static Account,
    hazards: &'static Hazards,
    partition: Partition,
    (mode, mapping): (FaultMode, Mapping),
    codec: Codec,
) -> Result<Parts, StartError> {
    let config = &account.group().config;
    let order = config.folio_order.load(Relaxed).min(MAX_FOLIO_ORDER);
    let order = order.max(mapping.granule().ilog2());

    let pages = new_pages(account, order)?;
    let arena = Arena::new(
        mode,
        partition,
        mapping,
        new_regions(account, partition, order)?,
        hazards,
        reserve(account, LOAD_LEN)?,
    );
    let store = Store::new(account, new_pool(account)?, codec);
    let ops = make_ops(account, codec)?;
    let backing = open_backing(account, &ops);
    let run = match &backing {
        Some(_) => reserve_slice(account, RUN_LEN)?,
        None => &mut [],
    };
    arena
        .adopt_all()
        .map_err(|errno| failed(StartStep::UffdRegister, errno))?;
    account.process().fault_mode.store(mode.into(), Relaxed);
    Ok(Parts {
        account,
        pages,
        arena,
        store,
        backing,
        writeback: Lock::new(Writeback::new(run)),
        auto: Auto::new(),
        pool_limit: PoolLimit::new(),
        densifier: Densifier::new(account.charge()),
        reclaimer: Reclaimer::new(
            config.background.load(Relaxed) != 0,
            config.densifier.load(Relaxed) != 0,
        ),
        ops,
        last_fault: AtomicUsize::new(0),
    })
}

fn new_pages(account: &Account, order: u32) -> Result<Pages, StartError> {
    let (entries, ready) = (
        reserve(account, TABLE_LEN)?,
        reserve(account, PageTable::BITMAP_LEN)?,
    );
    let folios = reserve(account, FolioTable::len_for(order))?;
    let charged = reserve(account, FolioTable::bitmap_len_for(order))?;
    // SAFETY: fresh mappings of those lengths, never unmapped, used by nothing else.
    Ok(unsafe {
        Pages::new(
            PageTable::new(entries, ready),
            FolioTable::new(folios, charged, order),
        )
    })
}

fn new_regions(
    account: &Account,
    partition: Partition,
    order: u32,
) -> Result<RegionMap, StartError> {
    let regions = RegionMap::new();
    let entries = reserve(account, NR_REGIONS * ENTRY_LEN)?;
    // SAFETY: fresh memory for that many entries.
    unsafe {
        regions.init(
            partition.start(),
            partition.len(),
            PAGE_SIZE << order,
            entries,
            NR_REGIONS,
        )
    };
    Ok(regions)
}

fn new_pool(account: &Account) -> Result<Pool, StartError> {
    let pool = Pool::new();
    let memory = PoolMemory {
        data: reserve(account, POOL_LEN)?,
        data_len: POOL_LEN,
        metadata: reserve(account, Pool::metadata_len(POOL_LEN))?,
        metadata_len: Pool::metadata_len(POOL_LEN),
    };
    // SAFETY: fresh memory, which is this pool's.
    unsafe { pool.init(memory) }.map_err(|_| failed(StartStep::Tables, Errno::ENOMEM))?;
    Ok(pool)
}

/// The swap devices, with room for their buffers. Without that the process goes on as if there were
/// none.
fn open_backing(account: &'static Account, ops: &OpTable) -> Option<Backing> {
    let backing = Backing::open(account)?;
    match add_swap_buffers(ops, account) {
        Some(pages) => {
            account.add_metadata(pages);
            Some(backing)
        }
        None => {
            backing.close();
            None
        }
    }
}

/// As [`OwnMemory::reserve`](crate::memory::OwnMemory::reserve).
fn reserve(account: &Account, len: usize) -> Result<*mut u8, StartError> {
    let reserved = account.memory().reserve(len);
    reserved.map_err(|errno| failed(StartStep::Tables, errno))
}

fn reserve_slice(account: &Account, len: usize) -> Result<&'static mut [u8], StartError> {
    let memory = reserve(account, len)?;
    // SAFETY: a fresh mapping of that length, there as long as the engine, used by nobody else.
    Ok(unsafe { core::slice::from_raw_parts_mut(memory, len) })
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

fn reserve_arena(partition: Partition, prot: i32) -> Result<(), StartError> {
    let at = |errno| failed(StartStep::Arena, errno);
    // SAFETY: a fresh mapping; FIXED_NOREPLACE replaces nothing.
    let addr = unsafe {
        mem::mmap(
            partition.start(),
            partition.len(),
            prot,
            mem::MAP_PRIVATE | mem::MAP_ANONYMOUS | mem::MAP_NORESERVE | mem::MAP_FIXED_NOREPLACE,
            -1,
            0,
        )
    }
    .map_err(at)?;
    if addr != partition.start() {
        // Kernels before 4.17 take the flag for a hint.
        // SAFETY: the mapping made just now.
        let _ = unsafe { mem::munmap(addr, partition.len()) };
        return Err(at(Errno::EEXIST));
    }
    Ok(())
}

fn nr_ops() -> usize {
    (nr_cpus() + 1).clamp(2, MAX_OPS)
}

/// Pages that the operations take with this codec.
fn op_pages(codec: Codec) -> u64 {
    let nr = nr_ops();
    // Of the store buffer a page, as long as there are no blocks; of the decompressor one codec's
    // part.
    let each = DECOMPRESSOR_AT - (STORE_LEN - PAGE_SIZE)
        + compressor_len(codec, PAGE_SIZE)
        + Decompressor::part_size(codec.id(), PAGE_SIZE);
    wide(nr * each + size_of::<OpCell>() * nr).div_ceil(wide(PAGE_SIZE))
}

/// The least limit that the engine starts with on this machine, bytes: [`MIN_RAM`], or more where
/// many CPUs or a codec with large tables need it.
#[must_use]
pub fn min_ram(codec: Codec) -> u64 {
    // An eighth of the limit for buffers is the most that makes sense.
    MIN_RAM.max((op_pages(codec) * 8) << PAGE_SHIFT)
}

/// Maps and charges the operations' memory.
fn make_ops(account: &'static Account, codec: Codec) -> Result<OpTable, StartError> {
    let nr = nr_ops();
    let each = DECOMPRESSOR_AT + Decompressor::required_size();
    let pages = op_pages(codec);
    let too_small = failed(StartStep::RamTooSmall, Errno::ENOMEM);
    if account.limit_bytes() < min_ram(codec) {
        return Err(too_small);
    }
    charge_all(account, pages);
    account.add_metadata(pages);
    let cells = reserve(account, size_of::<OpCell>() * nr)?.cast::<MaybeUninit<OpCell>>();
    for at in 0..nr {
        let op = make_op(account, codec, reserve(account, each)?)?;
        // SAFETY: fresh memory for `nr` operations, page aligned.
        unsafe { (*cells.add(at)).write(OpCell::new(op)) };
    }
    // SAFETY: all `nr` were written, and their memory is mapped for good.
    Ok(OpTable::new(unsafe {
        core::slice::from_raw_parts(cells.cast::<OpCell>(), nr)
    }))
}

/// Charges `pages` of a process that starts, which may be while others hold all of the limit: of
/// memory that they can do without, if they give it up in time.
fn charge_all(account: &Account, pages: u64) {
    if !Patience::of(account, pages).charge(account, pages) {
        account.charge_beyond_group(pages);
    }
}

/// Gives every operation a buffer to read from the device into; charges them and the buffer that is
/// written from. Returns the pages; `None`: they do not fit.
fn add_swap_buffers(ops: &OpTable, account: &Account) -> Option<u64> {
    let pages = wide(ops.nr() * READ_LEN).div_ceil(wide(PAGE_SIZE)) + KEY_PAGES + WRITEBACK_PAGES;
    if !account.fits_alone(pages) {
        return None;
    }
    charge_all(account, pages);
    for op in ops.all() {
        let Ok(buffer) = reserve_slice(account, READ_LEN) else {
            account.charge().uncharge(pages);
            return None;
        };
        op.acquire().window = ReadWindow::new(buffer);
    }
    Some(pages)
}

const STORE_AT: usize = LOAD_LEN;
const BATCH_AT: usize = STORE_AT + STORE_LEN;
const JOBS_AT: usize = BATCH_AT + size_of::<Batch>().next_multiple_of(align_of::<Job>());
const DECOMPRESSOR_AT: usize = (JOBS_AT + BATCH * size_of::<Job>()).next_multiple_of(PAGE_SIZE);

/// Lays an operation out in `memory`, which has room for a decompressor at [`DECOMPRESSOR_AT`].
fn make_op(account: &'static Account, codec: Codec, memory: *mut u8) -> Result<Op, StartError> {
    let mut reserve = Reserve::empty(account.charge());
    charge_all(account, RESERVE_PAGES);
    reserve.put(RESERVE_PAGES);
    // SAFETY: the parts of `memory` do not overlap, live for good, and are aligned to pages.
    unsafe {
        let batch = memory.add(BATCH_AT).cast::<Batch>();
        batch.write(Batch::new());
        let jobs = memory.add(JOBS_AT).cast::<Job>();
        for at in 0..BATCH {
            jobs.add(at).write(Job::new());
        }
        Ok(Op {
            compressor: new_compressor(account, codec, PAGE_SIZE)
                .map_err(|errno| failed(StartStep::Workspace, errno))?,
            denser: None,
            gives_way: false,
            seen_knobs: (codec.to_bits().into(), 0, None),
            decompressor: Decompressor::init(
                memory.add(DECOMPRESSOR_AT),
                Decompressor::required_size(),
            )
            .map_err(|_| failed(StartStep::Workspace, Errno::EINVAL))?,
            load: core::slice::from_raw_parts_mut(memory, LOAD_LEN),
            window: ReadWindow::new(&mut []),
            store: core::slice::from_raw_parts_mut(memory.add(STORE_AT), STORE_LEN),
            batch: &mut *batch,
            jobs: core::slice::from_raw_parts(jobs, BATCH),
            reserve,
            streams: Streams::new(),
            stalls: Stalls::default(),
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
