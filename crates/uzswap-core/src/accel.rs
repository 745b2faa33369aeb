//! *What*: accelerators: devices that compress and decompress pages beside the processor that asks them to.
//!
//! A device is a [`WorkQueue`]: it takes jobs as long as it has descriptors, and says later what became of them. What works here are
//! threads of our own ([`thread`]); a driver of hardware (Intel IAA through its user-space queues) is one more file with one
//! more implementation. No such hardware was there to try it on.
//!
//! [`Accel`] knows the devices and deals a batch of jobs out to them. What they do not take at once, after a bounded number of
//! attempts, stays with the asker, who does it in software meanwhile; and so does what they give back.
//!
//! *Invariants*: devices are added, never removed: one that goes away takes no more jobs, and may come back. The share of
//! each is reckoned anew for every batch, from those that are there. Every job that was taken is waited for before its
//! asker goes on: nothing of a batch is under way while nobody holds a slot (fork relies on it).
//! *Locking*: handing over and asking never wait. Adding: a lock that nothing else is taken under.
//! *Context*: signal, worker; adding: any.

pub mod job;
pub mod ring;
#[cfg(not(loom))]
pub mod thread;

pub use job::{Job, Outcome, Params, Task};

use uzswap_sync::lock::Lock;
use uzswap_sync::primitive::{AtomicUsize, Ordering, UnsafeCell, spin_loop};

/// Most jobs in a batch: pages of the default folio, and bits of a [`Dispatched`].
pub const BATCH: usize = 16;
/// Most devices.
pub const MAX_QUEUES: usize = 16;
/// Rounds over all devices in which a batch may be handed over: the first deals, the others try what was refused again.
const ROUNDS: usize = 3;
/// Looks at a job before its asker sleeps.
const SPINS: u32 = if cfg!(any(loom, miri)) { 1 } else { 100 };

/// A queue of a device: what a driver implements.
pub trait WorkQueue: Sync {
    /// Whether it is there, and does such work. A queue may compress, decompress, or both, and that with some codecs only.
    fn serves(&self, op: Task) -> bool;

    /// Takes as many of `jobs`, the first ones, as it has descriptors for right now, and returns how many. Never waits. What it takes
    /// it settles, whatever happens.
    fn submit(&self, jobs: &'static [Job]) -> usize;

    /// What became of a job that it took, `None` while it is under way. A driver of hardware with completion records of its
    /// own looks at them here, and settles the job.
    fn poll(&self, job: &Job) -> Option<Outcome> {
        job.outcome()
    }

    /// Passes time until the job may be settled. It has been polled for a while.
    fn wait(&self, job: &Job);
}

/// Which devices get a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// All of them, in turn, each an equal share.
    RoundRobin,
    /// The one that this processor is mapped to.
    Mapped {
        /// The processor's number.
        cpu: usize,
    },
}

/// All devices.
pub struct Accel {
    queues: [UnsafeCell<Option<&'static dyn WorkQueue>>; MAX_QUEUES],
    nr: AtomicUsize,
    adding: Lock<()>,
    /// Where the next batch begins.
    next: AtomicUsize,
}

// SAFETY: a cell is written once, before `nr` says that it is there, and read only after that.
unsafe impl Sync for Accel {}

impl core::fmt::Debug for Accel {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Accel({} queues)", self.nr.load(Ordering::Relaxed))
    }
}

/// Who has the jobs of a batch.
#[derive(Debug, Default)]
pub struct Dispatched {
    /// The queue that took each of the first jobs.
    with: [u8; BATCH],
    /// How many were taken; the others are the asker's.
    pub nr: usize,
    /// How often a queue had no descriptor for what it was to take.
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

    /// One more. `false`: there are [`MAX_QUEUES`] already.
    pub fn add(&self, queue: &'static dyn WorkQueue) -> bool {
        let _adding = self.adding.lock();
        let nr = self.nr.load(Ordering::Relaxed);
        let Some(cell) = self.queues.get(nr) else {
            return false;
        };
        // SAFETY: nobody reads it before `nr` is larger, and nobody else writes it: we hold the lock.
        cell.get_mut().with(|cell| unsafe { *cell = Some(queue) });
        // Release: pairs with the acquire in `queue`.
        self.nr.store(nr + 1, Ordering::Release);
        true
    }

    /// Whether there are any, there or away.
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
            // SAFETY: written before `nr` said so, and never again.
            unsafe { *cell }
        })
    }

    /// The queues that do such work, and how many they are.
    fn serving(&self, op: Task) -> ([u8; MAX_QUEUES], usize) {
        let mut serving = [0; MAX_QUEUES];
        let mut nr = 0;
        for index in 0..MAX_QUEUES {
            let Some(queue) = self.queue(index) else {
                break;
            };
            if queue.serves(op)
                && let Some(place) = serving.get_mut(nr)
                && let Ok(index) = u8::try_from(index)
            {
                *place = index;
                nr += 1;
            }
        }
        (serving, nr)
    }

    /// Whether any device does such work.
    #[inline]
    #[must_use]
    pub fn serves(&self, op: Task) -> bool {
        (0..MAX_QUEUES)
            .map_while(|index| self.queue(index))
            .any(|queue| queue.serves(op))
    }

    /// Hands `jobs`, all asked to do `op`, at most [`BATCH`], over to the devices, as far as they take them. Never waits; the
    /// asker does the others itself and then [`Accel::settle`]s these.
    #[must_use]
    pub fn dispatch(&self, jobs: &'static [Job], op: Task, spread: Spread) -> Dispatched {
        let mut dealt = Dispatched::default();
        let (serving, nr) = self.serving(op);
        if nr == 0 {
            return dealt;
        }
        let (first, sharing, step) = match spread {
            Spread::RoundRobin => (self.next.fetch_add(1, Ordering::Relaxed), nr, 1),
            Spread::Mapped { cpu } => (cpu, 1, 0),
        };
        for turn in 0..sharing * ROUNDS {
            let left = jobs.get(dealt.nr..).unwrap_or_default();
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
            dealt.refused += u64::from(taken < share.len());
            for with in dealt.with.iter_mut().skip(dealt.nr).take(taken) {
                *with = index;
            }
            dealt.nr += taken;
        }
        dealt
    }

    /// Waits until all jobs that were dealt are settled.
    pub fn settle(&self, jobs: &[Job], dealt: &Dispatched) {
        let dealt = jobs.iter().zip(dealt.with).take(dealt.nr);
        // Devices take them in order, more or less: with the last one done the others are, and sleeping once is enough.
        for (job, with) in dealt.rev() {
            let Some(queue) = self.queue(with.into()) else {
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
