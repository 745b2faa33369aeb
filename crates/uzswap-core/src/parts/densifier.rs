//! *What*: state of the densifying thread: whether it runs, whether it sleeps, a round's buffers.
//!
//! *Invariants*: as [`crate::flow::densify`].
//! *Locking*: op → [`Work`] → folio. *Context*: worker; `wake`: any.

use uzswap_compress::Compressor;
use uzswap_sync::charge::{Charge, Reserve};
use uzswap_sync::lock::{Lock, LockGuard};
use uzswap_sync::primitive::{AtomicBool, AtomicU32, Ordering};
use uzswap_sys::futex;

/// The thread's state.
#[derive(Debug)]
pub(crate) struct Densifier {
    work: Lock<Work>,
    /// 1 while the thread sleeps until something is evicted; its futex.
    asleep: AtomicU32,
    /// The thread is there, and stays.
    running: AtomicBool,
}

/// What a round works with.
#[derive(Debug)]
pub(crate) struct Work {
    pub compressor: Option<Compressor>,
    pub reserve: Reserve<'static>,
}

impl Densifier {
    /// Without a thread.
    pub(crate) const fn new(charge: &'static Charge) -> Self {
        Densifier {
            work: Lock::new(Work {
                compressor: None,
                reserve: Reserve::empty(charge),
            }),
            asleep: AtomicU32::new(0),
            running: AtomicBool::new(false),
        }
    }

    /// The thread is there, from now on.
    pub(crate) fn begin(&self) {
        // Release: pairs with the acquire in `nr_threads`.
        self.running.store(true, Ordering::Release);
    }

    /// What a round works with.
    pub(crate) fn work(&self) -> LockGuard<'_, Work> {
        self.work.lock()
    }

    /// Threads of this kind in the process. Asked before all threads are counted: it never becomes
    /// less.
    pub(crate) fn nr_threads(&self) -> u64 {
        // Acquire: pairs with the release in `begin`.
        self.running.load(Ordering::Acquire).into()
    }

    /// Something was evicted.
    pub(crate) fn wake(&self) {
        if self.running.load(Ordering::Relaxed) && self.asleep.swap(0, Ordering::AcqRel) == 1 {
            let _ = futex::wake(&self.asleep, 1);
        }
    }

    /// Sleeps until `is_idle` is false, which whoever changes that says by `wake`.
    pub(crate) fn sleep_while(&self, is_idle: impl Fn() -> bool) {
        while is_idle() {
            // Both sides swap: either this one sees what happened, or `wake` sees that it sleeps.
            self.asleep.swap(1, Ordering::AcqRel);
            if !is_idle() {
                self.asleep.store(0, Ordering::Relaxed);
                return;
            }
            let _ = futex::wait(&self.asleep, 1, None);
        }
    }

    /// In a fork child, which has no such thread yet.
    pub(crate) fn fork_child(&self) {
        self.running.store(false, Ordering::Relaxed);
        self.asleep.store(0, Ordering::Relaxed);
    }
}
