//! *What*: the engine: everything above put together, one in a process.
//!
//! Where to look: [`start`](self) maps and registers; `fault` serves a page fault; `load` brings
//! pages in, and `mapping` tells the kernel (`protection` where there is no userfaultfd); `object` is how their bytes are stored; `compressor` says what pages are stored with (`auto`: what that is where nobody said), `block` how several are as one, and `accel` hands them to devices; `reclaim` makes
//! room (isolate → protect → store → drop); `writeback` moves the coldest of
//! what is stored to the `swap` devices (`swap_out`, `swap_in`, `early`, `swap_off`, one of them `device`), of which `copies` remembers
//! what is still right there; `space` is the address space
//! (map, unmap, discard, protect) and `remap` mremap; `pin` keeps memory in for system calls; `fork`
//! carries the engine into a child; `densify` makes what is cold take less; `asked` does what
//! `uzswap reclaim` wants; `threads` are the loops of its own threads.
//!
//! *Invariants*
//! - `charge` counts every page of resident + pool + metadata + what slots have set aside, before
//!   it is touched, and never exceeds the limit (unless the group allows it).
//! - A page is present in the arena only if its entry is [`Entry::Resident`](crate::table::Entry),
//!   and only the engine makes it present: all other first touches fault.
//! - Every operation takes a [`Masked`] and holds one slot.
//!
//! *Locking*: see [`crate::folio`]. *Context*: `Engine::start` at init; the rest signal or worker.

mod accel;
mod asked;
mod auto;
mod block;
mod clock;
mod compressor;
mod copies;
mod densify;
mod device;
mod early;
mod fault;
mod fork;
mod leave;
mod load;
mod mapping;
mod object;
mod pin;
mod protection;
mod reclaim;
mod recompress;
mod remap;
mod shrinker;
mod space;
mod start;
mod store;
mod swap;
mod swap_in;
mod swap_off;
mod swap_out;
mod threads;
mod writeback;

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

use self::clock::Clock;
use crate::arena::{PAGE_SIZE, Page, wide};
use crate::folio::FolioTable;
use crate::hazard::Hazards;
use crate::lru::Lru;
use crate::masked::Masked;
use crate::region::RegionMap;
use crate::slot::{SlotGuard, SlotTable};
use crate::table::PageTable;
use uzswap_group::counters::{Counters, add, sub};
use uzswap_group::group::{Group, NR_DEVICES, Process};
use uzswap_pool::Pool;
use uzswap_sync::charge::Charge;
use uzswap_sync::lock::Lock;
use uzswap_sync::primitive::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use uzswap_sys::mem::SelfMadvise;

pub use densify::MIN_DENSE_ORDER;
pub use fault::Fault;
pub use fork::ForkGuard;
pub use pin::Pin;
pub use remap::RemapTo;
pub use space::{ForkPolicy, MapError};
pub use start::{MIN_RAM, StartError, StartStep, min_ram};

/// How faults reach the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultMode {
    /// SIGBUS in the faulting thread; faults inside the kernel fail, so system calls are guarded.
    Signal,
    /// A handler thread reads them; faults inside the kernel are served as well.
    Thread,
    /// SIGSEGV in the faulting thread, by protection instead of userfaultfd; else as [`FaultMode::Signal`].
    Segv,
}

impl From<FaultMode> for uzswap_group::group::FaultMode {
    fn from(mode: FaultMode) -> Self {
        match mode {
            FaultMode::Signal => Self::Signal,
            FaultMode::Thread => Self::Thread,
            FaultMode::Segv => Self::Segv,
        }
    }
}

/// What a started engine is made of.
pub(crate) struct Parts {
    pub charge: &'static Charge,
    pub hazards: &'static Hazards,
    pub table: PageTable,
    pub folios: FolioTable,
    pub regions: RegionMap,
    pub lru: Lru,
    pub pool: Pool,
    pub slots: SlotTable,
    pub mapping: mapping::Mapping,
    pub mode: FaultMode,
    /// What of the slots' memory is charged beyond what every slot uses: a bit for each part.
    pub charged_parts: AtomicU32,
    pub over_limit_allow: bool,
    pub how_to_drop: SelfMadvise,
    /// [`LOAD_LEN`](crate::slot::LOAD_LEN) bytes of zeroes.
    pub zeroes: *const u8,
    pub group: &'static Group,
    pub process: AtomicPtr<Process>,
    /// Whose memory this is: another pid here is a vfork child running in it.
    pub pid: AtomicI32,
    /// What ages are told by.
    pub clock: Clock,
    /// Managed pages in the arena.
    pub resident: AtomicU64,
    /// Pages of page table and folio table, and what `start` charged.
    pub metadata: AtomicU64,
    /// Pages of the region map that are charged.
    pub region_pages: AtomicU64,
    /// The swap devices, if there are any.
    pub swap: Option<swap::Swap>,
    /// A page that the pool held damaged has been told of.
    pub told_damaged: AtomicBool,
    /// How objects in the pool are damaged on purpose.
    #[cfg(feature = "fault-injection")]
    pub pool_injector: uzswap_io::inject::Injector,
    /// Devices that compress and decompress.
    pub accel: crate::accel::Accel,
    /// Those of them that are threads of ours.
    pub engines: accel::Engines,
    /// Held while the protection of a range changes in region map and kernel.
    pub protecting: Lock<()>,
    /// Which codec `--compressor auto` is.
    pub auto: auto::Auto,
    /// Makes cold pages denser.
    pub densifier: densify::Densifier,
    /// Nonzero while the background thread has work; its futex.
    pub kick: AtomicU32,
    /// Whether there is a background thread.
    pub background: bool,
}

/// The engine. Zero-filled memory is one that has not started.
pub struct Engine {
    parts: UnsafeCell<MaybeUninit<Parts>>,
    charge: Charge,
    hazards: Hazards,
    started: AtomicBool,
}

// SAFETY: `parts` is written once in `start`, before `started` is set; everything in it is shared
// through atomics and locks. The raw pointers in it are to memory that lives as long as the process.
unsafe impl Sync for Engine {}

impl Default for Engine {
    fn default() -> Self {
        Self::new()
    }
}

impl Engine {
    /// An engine that has not started.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            parts: UnsafeCell::new(MaybeUninit::uninit()),
            charge: Charge::new(0),
            hazards: Hazards::new(),
            started: AtomicBool::new(false),
        }
    }

    /// Whether [`Engine::start`] has succeeded.
    #[inline]
    #[must_use]
    pub fn started(&self) -> bool {
        // Acquire: pairs with the release in `start`; `parts` is complete.
        self.started.load(Ordering::Acquire)
    }

    /// The descriptor by which pages come and go, -1 before start.
    #[must_use]
    pub fn mapping_fd(&self) -> i32 {
        self.parts().map_or(-1, |parts| parts.mapping.fd())
    }

    /// The swap devices' numbers in this process, -1 for those that there are not.
    #[must_use]
    pub fn swap_fds(&self) -> [i32; NR_DEVICES] {
        self.parts()
            .and_then(|parts| parts.swap.as_ref())
            .map_or([-1; NR_DEVICES], swap::Swap::fds)
    }

    /// This process's counters.
    #[must_use]
    pub fn process(&self) -> Option<&'static Process> {
        Some(self.parts()?.process())
    }

    /// The fault mode in use.
    #[must_use]
    pub fn mode(&self) -> Option<FaultMode> {
        Some(self.parts()?.mode)
    }

    #[inline]
    pub(crate) fn parts(&self) -> Option<&'static Parts> {
        if !self.started() {
            return None;
        }
        // SAFETY: started: `parts` was written, and does not move or change as the engine is static.
        Some(unsafe { &*(*self.parts.get()).as_ptr() })
    }
}

impl Parts {
    #[inline]
    pub(crate) fn process(&self) -> &'static Process {
        // SAFETY: set by `start` and `fork_child` to slots of a group mapped for good.
        unsafe { &*self.process.load(Ordering::Relaxed) }
    }

    #[inline]
    pub(crate) fn counters(&self) -> &'static Counters {
        &self.process().counters
    }

    /// Takes a slot for an operation.
    #[inline]
    pub(crate) fn slot(&self, _masked: &Masked) -> SlotGuard<'static> {
        loop {
            // `None` only without slots, and `start` makes at least one.
            if let Some(slot) = self.slots.acquire() {
                return slot;
            }
        }
    }

    /// Room below which the background thread is woken, pages.
    pub(crate) fn low_water(&self) -> u64 {
        self.charge.limit() / 64
    }

    /// Counts pages that became resident.
    #[inline]
    pub(crate) fn count_resident(&self, nr: usize) {
        let nr = wide(nr);
        let now = self.resident.fetch_add(nr, Ordering::Relaxed) + nr;
        let counters = self.counters();
        add(&counters.resident, nr * wide(PAGE_SIZE));
        let out = counters.stored_pages.load(Ordering::Relaxed)
            + counters.swapped_pages.load(Ordering::Relaxed);
        let need = (now + out) * wide(PAGE_SIZE);
        if need > counters.need_peak.load(Ordering::Relaxed) {
            counters.need_peak.store(need, Ordering::Relaxed);
            // A program that never needs reclaim publishes nowhere else.
            self.publish_sizes();
        }
    }

    /// Counts pages that were dropped.
    #[inline]
    pub(crate) fn count_dropped(&self, nr: usize) {
        let nr = wide(nr);
        self.resident.fetch_sub(nr, Ordering::Relaxed);
        sub(&self.counters().resident, nr * wide(PAGE_SIZE));
    }

    /// Publishes the sizes that live in the engine's own cells.
    pub(crate) fn publish_sizes(&self) {
        let page = wide(PAGE_SIZE);
        let counters = self.counters();
        let pool = self.pool.total_pages() * page;
        counters.pool_total_size.store(pool, Ordering::Relaxed);
        counters.pool_peak.fetch_max(pool, Ordering::Relaxed);
        let stored = counters.stored_pages.load(Ordering::Relaxed) * page;
        counters.zswapped_peak.fetch_max(stored, Ordering::Relaxed);
        let metadata = self.metadata.load(Ordering::Relaxed) * page;
        counters.metadata.store(metadata, Ordering::Relaxed);
        counters
            .ram_peak
            .store(self.charge.peak() * page, Ordering::Relaxed);
        if let Some(swap) = &self.swap {
            swap.publish_use(&self.group.config.swap);
        }
    }

    /// Charges the tables' pages that the entries around `page` need, if they are not yet. `false`:
    /// there is no room for them.
    pub(crate) fn ready_chunk(&self, slot: &mut SlotGuard<'_>, page: Page) -> bool {
        if self.table.is_ready(page) {
            return true;
        }
        let first = page.index() & !(crate::table::CHUNK_PAGES - 1);
        let chunk = crate::arena::PageRange {
            start: first,
            end: first + crate::table::CHUNK_PAGES,
        };
        // One page of page table and up to two of folio table; what is not needed goes back.
        const MOST: u64 = 3;
        if !self.reserve_pages(slot, MOST) {
            add(&self.counters().reject_kmemcache_fail, 1);
            return false;
        }
        let used = self.folios.charge_chunk(chunk) + u64::from(self.table.make_ready(page));
        self.metadata.fetch_add(used, Ordering::Relaxed);
        slot.reserve.put(MOST.saturating_sub(used));
        true
    }
}
