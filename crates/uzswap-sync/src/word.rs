//! *What*: a word that threads sleep on: four bytes, and the kernel's futex queue behind them.
//!
//! Processes that share the memory may share the word: a [`SharedWord`].
//!
//! *Invariants*: whoever sleeps looks at the value again: sleeping may end early, for no reason at
//! all. Memory that is all zeroes is a word that holds 0.
//! *Locking*: none; locks are made of it. *Context*: signal, worker, init.

use crate::const_unless_modelled;
use crate::primitive::AtomicU32;
use core::ops::Deref;
#[cfg(not(any(loom, miri)))]
use uzswap_sys::{Errno, futex, thread::Timespec};

/// An atomic number that threads may sleep on; with `SHARED` those of other processes, too, in
/// whose memory it also is.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(transparent))]
pub struct Word<const SHARED: bool = false> {
    value: AtomicU32,
    /// The kernel's futex queue, as far as the model needs one.
    #[cfg(loom)]
    queue: model::Queue,
}

/// A word that threads of several processes may sleep on.
pub type SharedWord = Word<true>;

impl<const SHARED: bool> Word<SHARED> {
    const_unless_modelled! {
        /// A word that holds `value`.
        pub fn new(value: u32) -> Self {
            Self {
                value: AtomicU32::new(value),
                #[cfg(loom)]
                queue: model::Queue::default(),
            }
        }
    }

    /// Sleeps while the word is `value`; may return early.
    #[cfg(not(any(loom, miri)))]
    pub fn sleep_while(&self, value: u32) {
        // An interrupted or refused wait is an early return like any other.
        let _ = Self::wait(&self.value, value, None);
    }

    /// Sleeps while the word is `value`, for `ns` nanoseconds at most; may return early.
    #[cfg(not(any(loom, miri)))]
    pub fn sleep_while_for(&self, value: u32, ns: u64) {
        let time = Timespec::from_nanos(ns);
        let _ = Self::wait(&self.value, value, Some(&time));
    }

    #[cfg(not(any(loom, miri)))]
    fn wait(word: &AtomicU32, value: u32, time: Option<&Timespec>) -> Result<(), Errno> {
        match SHARED {
            true => futex::wait_shared(word, value, time),
            false => futex::wait(word, value, time),
        }
    }

    /// Sleeps until the word is 0, which the kernel makes it when a thread ends.
    #[cfg(not(any(loom, miri)))]
    pub fn wait_for_zero_of_kernel(&self) {
        uzswap_sys::thread::wait_exit(&self.value);
    }

    /// Wakes one sleeper, if there is one.
    #[cfg(not(any(loom, miri)))]
    #[cold]
    pub fn wake_one(&self) {
        let _ = match SHARED {
            true => futex::wake_shared(&self.value, 1),
            false => futex::wake(&self.value, 1),
        };
    }

    // Miri runs no raw system call: a spin hint lets it switch threads.
    /// Sleeps while the word is `value`; may return early.
    #[cfg(miri)]
    pub fn sleep_while(&self, _value: u32) {
        crate::primitive::spin_loop();
    }

    /// As [`Word::sleep_while`]: no time passes in a model.
    #[cfg(any(loom, miri))]
    pub fn sleep_while_for(&self, value: u32, _ns: u64) {
        self.sleep_while(value);
    }

    /// Sleeps until the word is 0.
    #[cfg(any(loom, miri))]
    pub fn wait_for_zero_of_kernel(&self) {
        loop {
            let value = self.value.load(crate::primitive::Ordering::Acquire);
            if value == 0 {
                return;
            }
            self.sleep_while(value);
        }
    }

    /// Wakes one sleeper, if there is one.
    #[cfg(miri)]
    pub fn wake_one(&self) {}

    /// Sleeps while the word is `value`; may return early.
    #[cfg(loom)]
    pub fn sleep_while(&self, value: u32) {
        self.queue
            .wait_while(|| self.value.load(crate::primitive::Ordering::Relaxed) == value);
    }

    /// Wakes one sleeper, if there is one.
    #[cfg(loom)]
    pub fn wake_one(&self) {
        self.queue.wake_one();
    }
}

impl<const SHARED: bool> Deref for Word<SHARED> {
    type Target = AtomicU32;

    #[inline]
    fn deref(&self) -> &AtomicU32 {
        &self.value
    }
}

/// What the kernel's futex queue does, in terms that a model checker can explore: the check
/// of the value and going to sleep are one step against a wake-up.
#[cfg(loom)]
mod model {
    use crate::primitive::checker::sync::{Condvar, Mutex};

    #[derive(Debug, Default)]
    pub(super) struct Queue {
        lock: Mutex<()>,
        sleepers: Condvar,
    }

    impl Queue {
        pub(super) fn wait_while(&self, still: impl Fn() -> bool) {
            let Ok(guard) = self.lock.lock() else { return };
            if still() {
                let _ = self.sleepers.wait(guard);
            }
        }

        pub(super) fn wake_one(&self) {
            let _guard = self.lock.lock();
            self.sleepers.notify_one();
        }
    }
}
