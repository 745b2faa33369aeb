//! *What*: the accelerator's worker threads of this process.
//!
//! *Invariants*: workers are made once, charged, and kept. Their maximum is fixed at start, when
//! the system call guard is built that tells the program's last thread from ours.
//! *Locking*: `following`, only tried, while workers are changed. *Context*: init; signal, worker.

use crate::accel::thread::WorkerThread;
use crate::page::{narrow, wide};
use uzswap_group::knobs::{self, Knobs, MAPPED};
use uzswap_sync::lock::{Lock, LockGuard};
use uzswap_sync::primitive::{
    AtomicPtr, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

/// Most workers of a process.
pub(crate) const MAX_WORKERS: usize = narrow(knobs::MAX_WORKERS);
/// What [`Workers::asked`] never is: everything is to be looked at.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// The workers of this process.
#[derive(Debug)]
pub(crate) struct Workers {
    threads: [AtomicPtr<WorkerThread>; MAX_WORKERS],
    /// How many of them there may be.
    max: usize,
    /// The knobs that they are set up by.
    asked: AtomicU64,
    /// Held while they are set up.
    following: Lock<()>,
}

impl Workers {
    pub(crate) fn new(knobs: &Knobs) -> Self {
        Self {
            threads: [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_WORKERS],
            max: nr_asked(knobs),
            asked: AtomicU64::new(UNKNOWN),
            following: Lock::new(()),
        }
    }

    /// Those that were made.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static WorkerThread> {
        self.threads.iter().filter_map(|worker| {
            // Acquire: pairs with the release in `put`.
            let worker = worker.load(Acquire);
            // SAFETY: null, or a worker that lives for good.
            unsafe { worker.as_ref() }
        })
    }

    /// Number `at` is there from now on. `false`: there are not so many.
    pub(crate) fn put(&self, at: usize, worker: &'static WorkerThread) -> bool {
        let Some(place) = self.threads.get(at) else {
            return false;
        };
        // Release: pairs with the acquire in `all`.
        place.store(core::ptr::from_ref(worker).cast_mut(), Release);
        true
    }

    /// How many the knobs ask for, of those that there may be.
    pub(crate) fn wanted(&self, knobs: &Knobs) -> usize {
        nr_asked(knobs).min(self.max)
    }

    /// Whether there may be any.
    pub(crate) const fn may_be(&self) -> bool {
        self.max > 0
    }

    /// Threads of workers in this process.
    pub(crate) fn nr_threads(&self) -> u64 {
        wide(self.all().filter(|worker| worker.is_started()).count())
    }

    /// The knobs that they were set up by last.
    #[inline]
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Relaxed)
    }

    /// They are set up by these knobs.
    pub(crate) fn set_asked(&self, asked: u64) {
        self.asked.store(asked, Relaxed);
    }

    /// Held while they are set up. `None`: another thread does.
    pub(crate) fn try_follow(&self) -> Option<LockGuard<'_, ()>> {
        self.following.try_lock()
    }

    /// In a fork child: there are none, until they are needed.
    pub(crate) fn forget(&self) {
        self.all().for_each(WorkerThread::forget);
        self.set_asked(UNKNOWN);
    }
}

fn nr_asked(knobs: &Knobs) -> usize {
    narrow((knobs.accel.load(Relaxed) & !MAPPED).min(knobs::MAX_WORKERS))
}
