//! *What*: accelerators: devices that compress and decompress pages beside the CPU that submits
//! them.
//!
//! A device is a [`WorkQueue`]: it takes jobs while it has free descriptors, and settles them
//! later. The devices here are worker threads of the engine's own ([`thread`]). A driver of
//! hardware, such as Intel IAA through its user-space queues, would be one more implementation;
//! none has been tried.
//!
//! [`Accel`] knows the devices and dispatches a batch of jobs to them. The submitter compresses in
//! software what they refuse after a bounded number of attempts, and what they give back.
//!
//! *Invariants*
//! - Devices are added, never removed: one that goes away takes no more jobs, and may come back.
//! - Shares are computed anew for every batch, from the devices that are present.
//! - The submitter waits for every job that was taken before it goes on: no job is under way while
//!   no operation is (fork relies on it).
//!
//! *Locking*: submitting and polling never wait. Adding takes a leaf lock.
//! *Context*: signal, worker; adding: any.

pub mod job;
pub mod ring;
#[cfg(not(loom))]
pub mod thread;

pub use job::{Job, Outcome, Params, Task};

use uzswap_sync::lock::Lock;
use uzswap_sync::primitive::{AtomicUsize, Ordering, UnsafeCell, spin_loop};
use uzswap_sync::strict_unreachable;

/// Maximum jobs in a batch: the pages of the default folio.
pub const BATCH: usize = 16;
/// Maximum devices.
pub const MAX_QUEUES: usize = 16;
/// Maximum rounds over all devices for one batch: the first dispatches, the others retry refused
/// jobs.
const MAX_ROUNDS: usize = 3;
/// Polls of a job before its submitter sleeps.
const SPINS: u32 = if cfg!(any(loom, miri)) { 1 } else { 100 };

/// The queue of a device, as a driver implements it.
pub trait WorkQueue: Sync {
    /// Whether the device is present and does `task`. A device may support one direction and some
    /// codecs only.
    fn serves(&self, task: Task) -> bool;

    /// Takes as many of `jobs`, from the first on, as it has free descriptors, and returns how
    /// many. Never waits. The implementer settles every job that it takes, whatever happens.
    fn submit(&self, jobs: &'static [Job]) -> usize;

    /// The outcome of a job that it took; `None` while it is under way. A driver of hardware reads
    /// its completion records here and settles the job.
    fn poll(&self, job: &Job) -> Option<Outcome> {
        job.outcome()
    }

    /// Waits until the job may be settled. The caller has polled it for a while.
    fn wait(&self, job: &Job);
}

/// How a batch is spread over devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Equal shares for all, the first device rotating.
    RoundRobin,
    /// All to the device that this CPU is mapped to.
    Mapped {
        /// The CPU's number.
        cpu: usize,
    },
}

/// All devices.
pub struct Accel {
    queues: [UnsafeCell<Option<&'static dyn WorkQueue>>; MAX_QUEUES],
    nr: AtomicUsize,
    adding: Lock<()>,
    /// The device that the next batch begins with.
    next: AtomicUsize,
}

// SAFETY: a cell is written once, before `nr` covers it, and read only after that.
unsafe impl Sync for Accel {}

impl core::fmt::Debug for Accel {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Accel({} queues)", self.nr.load(Ordering::Relaxed))
    }
}

/// Which devices took the jobs of a batch.
#[derive(Debug, Default)]
pub struct Dispatched {
    /// The queue that took each of the first jobs.
    queues: [u8; BATCH],
    /// Jobs taken; the others stay with the submitter.
    pub nr: usize,
    /// Times that a queue had too few descriptors for its share.
    pub refused: u64,
}

impl Default for Accel {
    fn default() -> Self {
        Self::new()
    }
}

impl Accel {
    /// No devices.
    #[must_use]
    pub fn new() -> Self {
        Self {
            queues: core::array::from_fn(|_| UnsafeCell::new(None)),
            nr: AtomicUsize::new(0),
            adding: Lock::new(()),
            next: AtomicUsize::new(0),
        }
    }

    /// Adds a device. `false`: there are [`MAX_QUEUES`] already.
    pub fn add(&self, queue: &'static dyn WorkQueue) -> bool {
        let _adding = self.adding.lock();
        let nr = self.nr.load(Ordering::Relaxed);
        let Some(cell) = self.queues.get(nr) else {
            return false;
        };
        // SAFETY: nobody reads it before `nr` covers it, and the lock keeps other writers out.
        cell.get_mut().with(|cell| unsafe { *cell = Some(queue) });
        // Release: pairs with the acquire in `queue`.
        self.nr.store(nr + 1, Ordering::Release);
        true
    }

    /// Whether any device was added, present or away.
    #[inline]
    #[must_use]
    pub fn has_queues(&self) -> bool {
        self.nr.load(Ordering::Relaxed) > 0
    }

    fn queue(&self, index: usize) -> Option<&'static dyn WorkQueue> {
        // Acquire: pairs with the release in `add`.
        if index >= self.nr.load(Ordering::Acquire) {
            return None;
        }
        self.queues.get(index)?.get_mut().with(|cell| {
            // SAFETY: written before `nr` covered it, and never again.
            unsafe { *cell }
        })
    }

    /// The queues that serve `task`, and their number.
    fn serving(&self, task: Task) -> ([u8; MAX_QUEUES], usize) {
        let mut serving = [0; MAX_QUEUES];
        let mut nr = 0;
        for index in 0..MAX_QUEUES {
            let Some(queue) = self.queue(index) else {
                break;
            };
            if queue.serves(task)
                && let Some(place) = serving.get_mut(nr)
                && let Ok(index) = u8::try_from(index)
            {
                *place = index;
                nr += 1;
            }
        }
        (serving, nr)
    }

    /// Whether any device serves `task`.
    #[inline]
    #[must_use]
    pub fn serves(&self, task: Task) -> bool {
        (0..MAX_QUEUES)
            .map_while(|index| self.queue(index))
            .any(|queue| queue.serves(task))
    }

    /// Submits `jobs`, at most [`BATCH`], all prepared for `task`, as far as the devices take them.
    /// Never waits. The submitter does the others itself and then [`Accel::settle`]s these.
    #[must_use]
    pub fn dispatch(&self, jobs: &'static [Job], task: Task, spread: Spread) -> Dispatched {
        let mut dispatched = Dispatched::default();
        let (serving, nr) = self.serving(task);
        if nr == 0 {
            return dispatched;
        }
        let (first, sharing, step) = match spread {
            Spread::RoundRobin => (self.next.fetch_add(1, Ordering::Relaxed), nr, 1),
            Spread::Mapped { cpu } => (cpu, 1, 0),
        };
        for turn in 0..sharing * MAX_ROUNDS {
            let left = jobs.get(dispatched.nr..).unwrap_or_default();
            if left.is_empty() {
                break;
            }
            let share = left.len().div_ceil(sharing - turn % sharing);
            let index = serving.get(first.wrapping_add(turn * step) % nr);
            let (Some(&index), Some(share)) = (index, left.get(..share)) else {
                break;
            };
            let taken = self
                .queue(index.into())
                .map_or(0, |queue| queue.submit(share));
            dispatched.refused += u64::from(taken < share.len());
            for queue in dispatched.queues.iter_mut().skip(dispatched.nr).take(taken) {
                *queue = index;
            }
            dispatched.nr += taken;
        }
        dispatched
    }

    /// Waits until all dispatched jobs are settled.
    pub fn settle(&self, jobs: &[Job], dispatched: &Dispatched) {
        let dispatched = jobs.iter().zip(dispatched.queues).take(dispatched.nr);
        // Devices work roughly in order: once the last job is done so are the others, and the
        // submitter sleeps once.
        for (job, queue) in dispatched.rev() {
            let Some(queue) = self.queue(queue.into()) else {
                strict_unreachable!("a job was taken by a device that was never added");
                continue;
            };
            let mut looks = 0;
            while queue.poll(job).is_none() {
                if looks < SPINS {
                    looks += 1;
                    spin_loop();
                } else {
                    queue.wait(job);
                }
            }
        }
    }
}
