//! *What*: the context of one engine operation: codec contexts, buffers, the batch under reclaim,
//! and a reserve of charged pages. There is about one per CPU.
//!
//! *Invariants*
//! - An operation holds exactly one context from beginning to end, so whoever holds all of them
//!   knows that no operation is under way; fork relies on it.
//! - Between operations each context owns [`RESERVE_PAGES`] charged pages, so that reclaim can grow
//!   the pool at the limit.
//!
//! *Locking*: first in the order. A thread that holds one never waits for another, except fork,
//! which takes all in rising order and holds nothing else.
//! *Context*: signal, worker; allocated at init.

mod streams;
mod window;

pub use streams::Streams;
pub use window::ReadWindow;

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use crate::accel::Job;
use crate::page::batch::Batch;
use uzswap_compress::{Codec, Compressor, Decompressor};
use uzswap_sync::charge::Reserve;
use uzswap_sync::lock::{RawLock, RawLockGuard};

/// Charged pages that each context keeps: enough for zspages of any length before reclaim drops the
/// first page of a batch.
pub const RESERVE_PAGES: u64 = 24;
/// Freed pages that a context keeps for its next faults, on top of [`RESERVE_PAGES`].
pub const SLACK_PAGES: u64 = 64;
/// Bytes that a load decompresses and installs at once.
pub const LOAD_LEN: usize = 64 << 10;
/// Maximum compressed bytes of a block or batch. With neither in use, one page of them is touched.
pub const STORE_LEN: usize = 64 << 10;
/// Bytes that one read from a swap device covers at most.
pub const READ_LEN: usize = 64 << 10;

/// The context of one operation.
#[derive(Debug)]
pub struct Op {
    /// Whether this thread lets others run between the folios that it compresses: nobody waits for
    /// it.
    pub gives_way: bool,
    /// Compresses pages for the pool.
    pub compressor: Compressor,
    /// Compresses some pages more densely while that pays, with `--compressor auto`.
    pub denser: Option<Compressor>,
    /// The knobs `compressor` and `block` as this context last saw them, and the denser codec.
    pub seen_knobs: (u64, u64, Option<Codec>),
    /// Decompresses pages of any codec.
    pub decompressor: Decompressor,
    /// [`LOAD_LEN`] bytes for decompressed pages.
    pub load: &'static mut [u8],
    /// Slots read from the swap devices.
    pub window: ReadWindow,
    /// [`STORE_LEN`] bytes for compressed pages, one page of them for each page of a batch; a block
    /// is assembled here as well.
    pub store: &'static mut [u8],
    /// The pages being evicted.
    pub batch: &'static mut Batch,
    /// [`BATCH`](crate::accel::BATCH) jobs for accelerators; all settled between operations.
    pub jobs: &'static [Job],
    /// Charged pages for the pool's growth and for the next faults.
    pub reserve: Reserve<'static>,
    /// Sequential accesses seen by this context.
    pub streams: Streams,
    /// What its thread has waited for since [`Op::begin_wait`].
    pub stalls: Stalls,
    /// The last page that faulted while resident, and how often in a row.
    pub spurious: (usize, u32),
}

/// What the thread of an operation has waited for, in TSC ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stalls {
    /// Reclaim, without what was written meanwhile.
    pub reclaim: u64,
    /// Writes to swap devices. Reads are in [`ReadWindow::waited`].
    pub write: u64,
    /// Evicted pages were brought in.
    pub loaded: bool,
}

impl Op {
    /// From now on a thread of the program waits for this operation.
    #[inline]
    pub fn begin_wait(&mut self) {
        self.stalls = Stalls::default();
        self.window.waited = 0;
    }

    /// Returns `nr` pages that this operation took and did not use.
    #[inline]
    pub fn unreserve(&mut self, nr: u64) {
        self.reserve.put(nr);
        if self.reserve.pages() > RESERVE_PAGES + 2 * SLACK_PAGES {
            self.reserve.shrink_to(RESERVE_PAGES + SLACK_PAGES);
        }
    }

    /// Takes `nr` of the spare pages; `false`: there are fewer.
    #[must_use = "pages that were taken must be used or put back"]
    pub fn take_spare(&mut self, nr: u64) -> bool {
        self.spare() >= nr && self.reserve.take(nr)
    }

    /// Moves up to `max` spare pages to `room`.
    pub fn lend_spare(&mut self, room: &mut Reserve<'static>, max: u64) {
        let nr = self.spare().min(max);
        if self.reserve.take(nr) {
            room.put(nr);
        }
    }

    /// Takes back the pages left in `room`.
    pub fn take_back(&mut self, room: &mut Reserve<'static>) {
        let rest = room.pages();
        if room.take(rest) {
            self.reserve.put(rest);
        }
    }

    /// Pages that the reserve holds beyond [`RESERVE_PAGES`].
    pub fn spare(&self) -> u64 {
        self.reserve.pages().saturating_sub(RESERVE_PAGES)
    }
}

/// A context and its lock.
#[derive(Debug)]
pub struct OpCell {
    lock: RawLock,
    op: UnsafeCell<Op>,
}

// SAFETY: `op` is reached through `OpGuard` only, which holds `lock`.
unsafe impl Sync for OpCell {}

impl OpCell {
    /// A free context.
    #[must_use]
    pub const fn new(op: Op) -> OpCell {
        OpCell {
            lock: RawLock::new(),
            op: UnsafeCell::new(op),
        }
    }

    /// The guard of a context that this thread holds already, having forgotten its guard.
    ///
    /// # Safety
    /// This thread (or, after fork, the thread it is a copy of) acquired the context and forgot the
    /// guard; no other guard was made since.
    pub unsafe fn held(&self) -> OpGuard<'_> {
        OpGuard {
            cell: self,
            // SAFETY: the caller's promise.
            _guard: unsafe { self.lock.held() },
        }
    }

    /// Takes the context if it is free now.
    pub fn try_acquire(&self) -> Option<OpGuard<'_>> {
        let guard = self.lock.try_lock()?;
        Some(OpGuard {
            cell: self,
            _guard: guard,
        })
    }

    /// Takes the context; waits until it is free.
    pub fn acquire(&self) -> OpGuard<'_> {
        let guard = self.lock.lock();
        OpGuard {
            cell: self,
            _guard: guard,
        }
    }
}

/// A context, held.
#[derive(Debug)]
pub struct OpGuard<'a> {
    cell: &'a OpCell,
    _guard: RawLockGuard<'a>,
}

impl Deref for OpGuard<'_> {
    type Target = Op;
    fn deref(&self) -> &Op {
        // SAFETY: the lock is held by this guard.
        unsafe { &*self.cell.op.get() }
    }
}

impl DerefMut for OpGuard<'_> {
    fn deref_mut(&mut self) -> &mut Op {
        // SAFETY: the lock is held by this guard, which is borrowed uniquely.
        unsafe { &mut *self.cell.op.get() }
    }
}

/// All contexts.
#[derive(Debug)]
pub struct OpTable {
    cells: &'static [OpCell],
}

impl OpTable {
    /// A table of `cells`.
    #[must_use]
    pub const fn new(cells: &'static [OpCell]) -> Self {
        Self { cells }
    }

    /// All contexts.
    #[must_use]
    pub const fn all(&self) -> &'static [OpCell] {
        self.cells
    }

    /// Number of contexts.
    #[must_use]
    pub const fn nr(&self) -> usize {
        self.cells.len()
    }

    /// Takes this CPU's context if it is free, else any free one, else waits for this CPU's.
    /// `None`: the table is empty.
    #[must_use]
    pub fn acquire(&self) -> Option<OpGuard<'static>> {
        let nr = self.cells.len();
        let own = uzswap_sys::thread::sched_getcpu() as usize;
        for step in 0..nr {
            if let Some(cell) = self.cells.get((own + step) % nr)
                && let Some(guard) = cell.try_acquire()
            {
                return Some(guard);
            }
        }
        self.cells.get(own % nr.max(1)).map(OpCell::acquire)
    }

    /// Waits for the operations that are under way now. The caller holds no context.
    pub fn wait_for_all(&self) {
        self.cells.iter().for_each(|cell| drop(cell.acquire()));
    }
}
