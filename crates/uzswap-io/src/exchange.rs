//! *What*: the exchange between the programs of a run and the broker of a remote swap device: a
//! fixed number of cells in shared memory, each of which carries one request and its data.
//!
//! ```text
//!            claim          submit            take           complete
//!     Free ────────► Claimed ────► Submitted ──────► Taken ──────────► Done
//!       ▲  release      │              │  abandon      │  abandon       │ release
//!       ├───────────────┘              ▼               ▼                │
//!       │                          Abandoned ◄─────────┘                │
//!       │   take, complete, recover    │                                │
//!       └──────────────────────────────┴────────────────────────────────┘
//! ```
//!
//! A program moves a cell by `claim`, `submit`, `abandon` and `release`, the broker by `take`,
//! `complete` and `recover`. Requests have no order among each other: those under way at the same
//! time are on different slots of the device.
//!
//! *Invariants*
//! - A cell's fields and data belong to whoever moved it last: the program in `Claimed` and `Done`,
//!   the broker in `Taken` and `Abandoned`, nobody in `Free` and `Submitted`.
//! - A state names the thread that claimed the cell. A program that finds another name, or a state
//!   that it cannot be in, has lost the cell and takes nothing from it.
//! - A submitted cell has its bit in `pending` until it is taken; a worker that sleeps is woken for
//!   each bit that it may have missed.
//! - Nothing is allocated: what a program cannot claim, it waits for.
//!
//! *Locking*: none; a thread that holds cells waits only for their completion, never for another
//! cell. *Context*: programs: any with all signals blocked; the waits end by a deadline. Broker:
//! its threads.

use uzswap_sync::primitive::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    UnsafeCell, fence,
};
use uzswap_sync::word::SharedWord;

/// Cells: requests that can be under way at the same time.
pub const NR_CELLS: usize = if cfg!(loom) { 2 } else { 64 };
/// Bytes of a cell: what one request transfers at most.
pub const CELL_LEN: usize = if cfg!(loom) { 1 } else { 16 << 10 };
/// Bytes of the device that one key, or one discard, covers: a cluster of slots.
pub const CLUSTER_LEN: u64 = 512 * crate::SLOT as u64;
/// Clusters of the largest device.
const NR_CLUSTERS: usize = if cfg!(loom) {
    64
} else {
    (crate::MAX_DEVICE_SLOTS / 512) as usize
};
/// Waits for a cell or a request end after so many nanoseconds, unless told otherwise.
pub const DEADLINE_NS: u64 = 30_000_000_000;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Op {
    /// Bytes from the device into the cell.
    Read = 0,
    /// The same, from another copy if there is one: what came first was not what was written.
    ReadCopy = 1,
    /// Bytes from the cell to the device.
    Write = 2,
    /// The range is not needed any more; no data.
    Discard = 3,
}

impl Op {
    const fn from_number(number: u32) -> Self {
        match number {
            0 => Op::Read,
            1 => Op::ReadCopy,
            2 => Op::Write,
            _ => Op::Discard,
        }
    }

    /// Whether it reads.
    #[must_use]
    pub const fn is_read(self) -> bool {
        matches!(self, Op::Read | Op::ReadCopy)
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub op: Op,
    /// Where on the device, bytes.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
}

/// No state at all: the cell is free.
const FREE: u32 = 0;

/// The kind of a state; the rest of the word is the thread that claimed the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Kind {
    Claimed = 1,
    Submitted,
    Taken,
    Done,
    Abandoned,
}

const KIND_BITS: u32 = 3;

const fn state(kind: Kind, owner: u32) -> u32 {
    owner << KIND_BITS | kind as u32
}

const fn is(state: u32, kind: Kind) -> bool {
    state & ((1 << KIND_BITS) - 1) == kind as u32
}

const fn owner_of(state: u32) -> u32 {
    state >> KIND_BITS
}

/// One cell.
#[derive(Debug)]
#[repr(C, align(64))]
struct Cell {
    state: SharedWord,
    op: AtomicU32,
    /// 0, or the error number with which the request failed.
    error: AtomicU32,
    offset: AtomicU64,
    len: AtomicU64,
}

/// The shared memory.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Exchange {
    /// A bit for each submitted cell.
    pending: AtomicU64,
    /// Counts submissions that a sleeping worker may have missed.
    doorbell: SharedWord,
    /// Workers that sleep, or are about to.
    sleepers: AtomicU32,
    /// Counts releases that a thread waiting for a cell may have missed.
    freed: SharedWord,
    /// Threads that wait for a free cell, or are about to.
    waiting: AtomicU32,
    /// Nanoseconds that a program waits for one request.
    pub deadline_ns: AtomicU64,
    /// 1: the broker reaches its servers.
    pub is_up: AtomicU32,
    /// Times that a broker has begun to serve.
    pub nr_starts: AtomicU32,
    cells: [Cell; NR_CELLS],
    /// A bit for each cluster that was ever written and not discarded since.
    written: [AtomicU64; NR_CLUSTERS / 64],
    data: [UnsafeCell<[u8; CELL_LEN]>; NR_CELLS],
}

// SAFETY: all but `data` are atomics; a cell's data is accessed by its owner alone, as the head
// says, and ownership passes by acquire and release on its state.
unsafe impl Sync for Exchange {}
// SAFETY: as above.
unsafe impl Send for Exchange {}

/// Bytes of the shared memory. All zeroes is an exchange that nothing is under way in.
pub const EXCHANGE_LEN: usize = size_of::<Exchange>();

/// A cell that a program holds, by number and the thread that claimed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    cell: usize,
    owner: u32,
}

/// A cell that the broker has taken.
#[derive(Debug, PartialEq, Eq)]
pub struct Taken {
    cell: usize,
    owner: u32,
    /// What is asked for.
    pub request: Request,
}

/// A program does not have its cell any more, or the deadline is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The broker did not complete it in time.
    Late,
    /// Somebody else changed the cell: memory that others share was damaged.
    Stolen,
}

impl Default for Exchange {
    fn default() -> Self {
        Self::new()
    }
}

impl Exchange {
    /// One that nothing is under way in.
    #[must_use]
    pub fn new() -> Self {
        Exchange {
            pending: AtomicU64::new(0),
            doorbell: SharedWord::new(0),
            sleepers: AtomicU32::new(0),
            freed: SharedWord::new(0),
            waiting: AtomicU32::new(0),
            deadline_ns: AtomicU64::new(DEADLINE_NS),
            is_up: AtomicU32::new(0),
            nr_starts: AtomicU32::new(0),
            cells: core::array::from_fn(|_| Cell {
                state: SharedWord::new(FREE),
                op: AtomicU32::new(0),
                error: AtomicU32::new(0),
                offset: AtomicU64::new(0),
                len: AtomicU64::new(0),
            }),
            written: core::array::from_fn(|_| AtomicU64::new(0)),
            data: core::array::from_fn(|_| UnsafeCell::new([0; CELL_LEN])),
        }
    }

    // The program's side.

    /// Claims a free cell for thread `owner`, if there is one.
    pub fn claim(&self, owner: u32) -> Option<Claim> {
        self.cells.iter().enumerate().find_map(|(at, cell)| {
            // Looked at first: a compare-and-swap takes the cache line even if it fails.
            // Acquire: pairs with the release of whoever had the cell before.
            let free = cell.state.load(Relaxed) == FREE
                && cell
                    .state
                    .compare_exchange(FREE, state(Kind::Claimed, owner), Acquire, Relaxed)
                    .is_ok();
            free.then_some(Claim { cell: at, owner })
        })
    }

    /// As [`Exchange::claim`], and waits for one while `goes_on`, looking again at least every
    /// `ns` nanoseconds.
    pub fn claim_waiting(
        &self,
        owner: u32,
        ns: u64,
        mut goes_on: impl FnMut() -> bool,
    ) -> Option<Claim> {
        if let Some(claim) = self.claim(owner) {
            return Some(claim);
        }
        self.waiting.fetch_add(1, Relaxed);
        // Pairs with that in `free`: either this thread sees the cell free, or whoever frees it
        // sees this thread wait.
        fence(SeqCst);
        let mut claimed;
        loop {
            let seen = self.freed.load(Acquire);
            claimed = self.claim(owner);
            if claimed.is_some() || !goes_on() {
                break;
            }
            self.freed.sleep_while_for(seen, ns);
        }
        self.waiting.fetch_sub(1, Relaxed);
        claimed
    }

    /// Passes the cell's data to `fill`, before it is submitted or after it is done.
    pub fn with_data<R>(&self, claim: &Claim, fill: impl FnOnce(*mut u8) -> R) -> Option<R> {
        let data = self.data.get(claim.cell)?;
        Some(data.get_mut().with(|data| fill(data.cast())))
    }

    /// Submits what the claims ask for, all at once.
    pub fn submit(&self, requests: impl Iterator<Item = (Claim, Request)>) {
        let mut bits = 0;
        for (claim, request) in requests {
            let Some(cell) = self.cells.get(claim.cell) else {
                continue;
            };
            cell.op.store(request.op as u32, Relaxed);
            cell.offset.store(request.offset, Relaxed);
            cell.len.store(request.len, Relaxed);
            // Release: pairs with `take`, which reads the fields and the data.
            let to = state(Kind::Submitted, claim.owner);
            cell.state.store(to, Release);
            bits |= 1 << claim.cell;
        }
        self.pending.fetch_or(bits, Release);
        // Pairs with that in `sleep`: either the worker sees the bit, or this thread sees it sleep.
        fence(SeqCst);
        if self.sleepers.load(Relaxed) > 0 {
            self.wake();
        }
    }

    /// Whether the request is complete: then its error, 0 for none.
    pub fn poll(&self, claim: &Claim) -> Result<Option<u32>, Lost> {
        let Some(cell) = self.cells.get(claim.cell) else {
            return Err(Lost::Stolen);
        };
        // Acquire: pairs with `complete`, before which the broker wrote error and data.
        let now = cell.state.load(Acquire);
        if now == state(Kind::Done, claim.owner) {
            return Ok(Some(cell.error.load(Relaxed)));
        }
        let is_under_way =
            now == state(Kind::Submitted, claim.owner) || now == state(Kind::Taken, claim.owner);
        if is_under_way {
            Ok(None)
        } else {
            Err(Lost::Stolen)
        }
    }

    /// Waits until the request is complete, while `goes_on`, which is asked at least every `ns`
    /// nanoseconds. Returns its error, 0 for none. After [`Lost`] the cell is not the caller's any
    /// more.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn wait(
        &self,
        claim: &Claim,
        ns: u64,
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<u32, Lost> {
        loop {
            if let Some(error) = self.poll(claim)? {
                return Ok(error);
            }
            if !goes_on() {
                if self.abandon(claim) {
                    return Err(Lost::Late);
                }
                continue;
            }
            let Some(cell) = self.cells.get(claim.cell) else {
                return Err(Lost::Stolen);
            };
            let now = cell.state.load(Relaxed);
            if is(now, Kind::Submitted) || is(now, Kind::Taken) {
                cell.state.sleep_while_for(now, ns);
            }
        }
    }

    /// Leaves a request that is under way to the broker. `false`: it is complete, or was lost.
    pub fn abandon(&self, claim: &Claim) -> bool {
        let Some(cell) = self.cells.get(claim.cell) else {
            return false;
        };
        let to = state(Kind::Abandoned, claim.owner);
        [Kind::Submitted, Kind::Taken].into_iter().any(|from| {
            let from = state(from, claim.owner);
            // Release: what the program did with the data is over.
            let turned = cell.state.compare_exchange(from, to, Release, Relaxed);
            turned.is_ok()
        })
    }

    /// Gives a cell back, claimed or done. `false`: it was not the caller's any more, and what was
    /// read from it means nothing.
    pub fn release(&self, claim: &Claim) -> bool {
        [Kind::Done, Kind::Claimed]
            .into_iter()
            .any(|from| self.free(claim.cell, state(from, claim.owner)))
    }

    fn free(&self, cell: usize, from: u32) -> bool {
        // Release: what this thread read or wrote of the cell comes before what the next does.
        let freed = self.cells.get(cell).is_some_and(|cell| {
            cell.state
                .compare_exchange(from, FREE, Release, Relaxed)
                .is_ok()
        });
        if freed {
            // See `claim_waiting`.
            fence(SeqCst);
            if self.waiting.load(Relaxed) > 0 {
                self.freed.fetch_add(1, Release);
                self.freed.wake_one();
            }
        }
        freed
    }

    /// Gives up what thread `owner` had in its former life, before an exec(2) that another thread
    /// of its process made: it has the same number, and knows nothing of it.
    pub fn disown(&self, owner: u32) {
        for (cell, at) in self.cells.iter().zip(0..) {
            let now = cell.state.load(Acquire);
            if now == FREE || owner_of(now) != owner {
                continue;
            }
            let claim = Claim { cell: at, owner };
            // What is under way may be complete before it is abandoned.
            let _ = self.release(&claim) || self.abandon(&claim) || self.release(&claim);
        }
    }

    // The broker's side.

    /// Takes up to `max` submitted requests; all reads, or, unless `only_reads`, all others.
    pub fn take(&self, max: usize, only_reads: bool, mut each: impl FnMut(Taken)) -> usize {
        let mut nr = 0;
        let kinds: &[bool] = if only_reads { &[true] } else { &[true, false] };
        for &reads in kinds {
            let bits = self.pending.load(Acquire);
            for (at, cell) in self.cells.iter().enumerate() {
                if bits & 1 << at == 0 || nr == max {
                    continue;
                }
                let is_read = Op::from_number(cell.op.load(Relaxed)).is_read();
                // The bit is one worker's: whoever clears it moves the cell.
                if is_read == reads
                    && self.pending.fetch_and(!(1 << at), AcqRel) & 1 << at != 0
                    && let Some(taken) = self.take_cell(at)
                {
                    nr += 1;
                    each(taken);
                }
            }
            if nr > 0 {
                break;
            }
        }
        nr
    }

    fn take_cell(&self, at: usize) -> Option<Taken> {
        let cell = self.cells.get(at)?;
        let now = cell.state.load(Relaxed);
        let owner = owner_of(now);
        let (from, to) = (state(Kind::Submitted, owner), state(Kind::Taken, owner));
        // Acquire: pairs with `submit`.
        if cell
            .state
            .compare_exchange(from, to, AcqRel, Acquire)
            .is_err()
        {
            self.free(at, state(Kind::Abandoned, owner));
            return None;
        }
        let op = Op::from_number(cell.op.load(Relaxed));
        Some(Taken {
            cell: at,
            owner,
            request: Request {
                op,
                offset: cell.offset.load(Relaxed),
                len: cell.len.load(Relaxed),
            },
        })
    }

    /// Passes the data of a cell that was taken to `access`.
    pub fn with_taken<R>(&self, taken: &Taken, access: impl FnOnce(*mut u8) -> R) -> Option<R> {
        let data = self.data.get(taken.cell)?;
        Some(data.get_mut().with(|data| access(data.cast())))
    }

    /// Whether nobody waits for the request any more.
    pub fn is_abandoned(&self, taken: &Taken) -> bool {
        self.cells
            .get(taken.cell)
            .is_some_and(|cell| is(cell.state.load(Relaxed), Kind::Abandoned))
    }

    /// Completes a request, with an error number or 0. `false`: it had been abandoned.
    #[expect(clippy::needless_pass_by_value, reason = "it is taken no longer")]
    pub fn complete(&self, taken: Taken, error: u32) -> bool {
        let Some(cell) = self.cells.get(taken.cell) else {
            return false;
        };
        cell.error.store(error, Relaxed);
        let from = state(Kind::Taken, taken.owner);
        let to = state(Kind::Done, taken.owner);
        // Release: pairs with `poll`.
        let done = cell.state.compare_exchange(from, to, Release, Relaxed);
        match done {
            Ok(_) => cell.state.wake_one(),
            Err(_) => {
                self.free(taken.cell, state(Kind::Abandoned, taken.owner));
            }
        }
        done.is_ok()
    }

    /// Whether something is submitted that a worker may take.
    fn is_wanted(&self, only_reads: bool) -> bool {
        let bits = self.pending.load(Acquire);
        let reads = |(at, cell): (usize, &Cell)| {
            bits & 1 << at != 0 && Op::from_number(cell.op.load(Relaxed)).is_read()
        };
        bits != 0 && (!only_reads || self.cells.iter().enumerate().any(reads))
    }

    /// Sleeps until there may be something to take, `ns` nanoseconds at most; see
    /// [`Exchange::take`] for `only_reads`.
    pub fn sleep(&self, only_reads: bool, ns: u64) {
        self.sleepers.fetch_add(1, Relaxed);
        // See `submit`.
        fence(SeqCst);
        let seen = self.doorbell.load(Acquire);
        if !self.is_wanted(only_reads) {
            self.doorbell.sleep_while_for(seen, ns);
        }
        self.sleepers.fetch_sub(1, Relaxed);
        if only_reads && self.is_wanted(false) && !self.is_wanted(true) {
            // It was woken for something that another one must take.
            self.doorbell.wake_one();
        }
    }

    /// Wakes a worker that sleeps.
    pub fn wake(&self) {
        self.doorbell.fetch_add(1, Release);
        self.doorbell.wake_one();
    }

    /// A new broker begins, after the one before has surely ended: reads that it had taken are
    /// submitted again; writes fail with `error`, as nobody knows what became of them.
    pub fn recover(&self, error: u32) {
        // Those who slept in it are gone.
        self.sleepers.store(0, Relaxed);
        for (at, cell) in self.cells.iter().enumerate() {
            let now = cell.state.load(Acquire);
            let owner = owner_of(now);
            if is(now, Kind::Taken) && Op::from_number(cell.op.load(Relaxed)).is_read() {
                let to = state(Kind::Submitted, owner);
                let _ = cell.state.compare_exchange(now, to, AcqRel, Relaxed);
            } else if is(now, Kind::Taken) {
                let request = Request {
                    op: Op::Write,
                    offset: 0,
                    len: 0,
                };
                let (cell, owner) = (at, owner);
                self.complete(
                    Taken {
                        cell,
                        owner,
                        request,
                    },
                    error,
                );
            }
            // One that is abandoned may have lost its bit.
            let now = cell.state.load(Acquire);
            if is(now, Kind::Submitted) || is(now, Kind::Abandoned) {
                self.pending.fetch_or(1 << at, Release);
            }
        }
        self.nr_starts.fetch_add(1, Relaxed);
    }

    /// Frees cells whose thread has died, as `is_alive` says, and which were in the same state at
    /// the last call, as `before` says.
    pub fn sweep(&self, before: &mut [u32; NR_CELLS], is_alive: impl Fn(u32) -> bool) {
        for ((at, cell), before) in self.cells.iter().enumerate().zip(before) {
            let now = cell.state.load(Acquire);
            let is_held = is(now, Kind::Claimed) || is(now, Kind::Done);
            if is_held && now == *before && owner_of(now) != 0 && !is_alive(owner_of(now)) {
                self.free(at, now);
            }
            *before = now;
        }
    }

    /// Whether no cell is in use.
    pub fn is_idle(&self) -> bool {
        self.cells
            .iter()
            .all(|cell| cell.state.load(Relaxed) == FREE)
    }

    /// Notes that cluster `cluster` is going to be written. `true`: for the first time.
    pub fn note_written(&self, cluster: u64) -> bool {
        let (word, bit) = place(cluster);
        let word = usize::try_from(word)
            .ok()
            .and_then(|at| self.written.get(at));
        word.is_some_and(|word| {
            word.load(Relaxed) & bit == 0 && word.fetch_or(bit, AcqRel) & bit == 0
        })
    }

    /// Notes that cluster `cluster` is gone. `true`: it was there.
    pub fn note_gone(&self, cluster: u64) -> bool {
        let (word, bit) = place(cluster);
        let word = usize::try_from(word)
            .ok()
            .and_then(|at| self.written.get(at));
        word.is_some_and(|word| word.fetch_and(!bit, AcqRel) & bit != 0)
    }

    /// The clusters that were written and are not gone.
    pub fn written(&self) -> impl Iterator<Item = u64> {
        (0_u64..).zip(&self.written).flat_map(|(at, word)| {
            let word = word.load(Acquire);
            (0..64)
                .filter(move |bit| word & 1 << bit != 0)
                .map(move |bit| at * 64 + bit)
        })
    }
}

const fn place(cluster: u64) -> (u64, u64) {
    (cluster / 64, 1 << (cluster % 64))
}
