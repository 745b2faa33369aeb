//! *What*: the context of one engine operation: compressor contexts, buffers, the batch being reclaimed, and
//! pages set aside for it. There is about one a CPU.
//!
//! *Invariants*: an operation holds exactly one context from beginning to end, so whoever holds all
//! of them knows that none is under way (fork relies on it). Each context owns [`RESERVE_PAGES`] charged
//! pages between operations, so that reclaim can grow the pool at the limit.
//! *Locking*: first in the order. A thread that holds one never waits for another, except
//! fork, which takes all in rising order and holds nothing else.
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

/// Pages that each context keeps charged, so that reclaim can make a zspage of any length, and a few,
/// before the first page of a batch is dropped.
pub const RESERVE_PAGES: u64 = 24;
/// Freed pages that a context may keep for its next faults, beyond [`RESERVE_PAGES`].
pub const SLACK_PAGES: u64 = 64;
/// Bytes that are loaded, and copied in, at once.
pub const LOAD_LEN: usize = 64 << 10;
/// Bytes that a block, or a batch, is compressed to at most; without either no more than a page of them is touched.
pub const STORE_LEN: usize = 64 << 10;
/// Bytes that are read from a swap device at once.
pub const READ_LEN: usize = 64 << 10;

/// The context of one operation.
#[derive(Debug)]
pub struct Op {
    /// What pages are stored with.
    pub compressor: Compressor,
    /// What some of them are stored with while that is worth it, with `--compressor auto`.
    pub denser: Option<Compressor>,
    /// The knobs `compressor` and `block` when this context last looked, and the denser codec.
    pub asked: (u64, u64, Option<Codec>),
    /// What they are brought back with.
    pub decompressor: Decompressor,
    /// [`LOAD_LEN`] bytes that pages are decompressed to.
    pub load: &'static mut [u8],
    /// What was read from the swap devices.
    pub window: ReadWindow,
    /// [`STORE_LEN`] bytes that are compressed to, a page of them for each page of a batch, and that a block is put together in.
    pub store: &'static mut [u8],
    /// The pages being evicted.
    pub batch: &'static mut Batch,
    /// What accelerators are asked to do of it, [`BATCH`](crate::accel::BATCH) jobs: all settled between operations.
    pub jobs: &'static [Job],
    /// Charged pages for the pool's growth and for the next faults.
    pub reserve: Reserve<'static>,
    /// Sequential accesses seen from here.
    pub streams: Streams,
    /// Last page that faulted though it is resident, and how often in a row.
    pub spurious: (usize, u32),
}

impl Op {
    /// Gives pages back that were taken for this operation and not used.
    #[inline]
    pub fn unreserve(&mut self, nr: u64) {
        self.reserve.put(nr);
        if self.reserve.pages() > RESERVE_PAGES + 2 * SLACK_PAGES {
            self.reserve.shrink_to(RESERVE_PAGES + SLACK_PAGES);
        }
    }

    /// Takes `nr` of the pages that the reserve holds beyond [`RESERVE_PAGES`], if it holds as many.
    #[must_use = "pages that were taken must be used or put back"]
    pub fn take_spare(&mut self, nr: u64) -> bool {
        self.spare() >= nr && self.reserve.take(nr)
    }

    /// Moves up to `max` pages that the reserve holds beyond [`RESERVE_PAGES`] to `room`.
    pub fn lend_spare(&mut self, room: &mut Reserve<'static>, max: u64) {
        let nr = self.spare().min(max);
        if self.reserve.take(nr) {
            room.put(nr);
        }
    }

    /// Takes back what is left of `room`.
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

/// A context, and whether an operation has it.
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

    /// The context that this thread holds already and whose guard it forgot.
    ///
    /// # Safety
    /// It was acquired by this thread (or, after fork, by the one it is a copy of), that guard was
    /// forgotten, and no other was made since.
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

    /// Takes the context, waiting for it.
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
    /// The table of these contexts.
    #[must_use]
    pub const fn new(cells: &'static [OpCell]) -> Self {
        Self { cells }
    }

    /// All of them.
    #[must_use]
    pub const fn all(&self) -> &'static [OpCell] {
        self.cells
    }

    /// How many there are.
    #[must_use]
    pub const fn nr(&self) -> usize {
        self.cells.len()
    }

    /// Takes a context: this CPU's if it is free, else any free one, else waits for this CPU's.
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
