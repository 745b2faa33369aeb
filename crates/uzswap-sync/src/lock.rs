//! *What*: the engine's locks: [`RawLock`], four bytes that guard data kept elsewhere,
//! and [`Lock`], which owns what it guards. They spin for a moment, then sleep
//! in a futex.
//!
//! *Invariants*
//! - `state` is [`FREE`] (0), [`HELD`] or [`HELD_WAITED`]. Memory that is all
//!   zeroes is a free lock, so a lock needs no constructor in the engine's
//!   zero-initialised static memory.
//! - A thread sleeps only while `state` is `HELD_WAITED`, and whoever takes
//!   `state` from `HELD_WAITED` to `FREE` wakes one sleeper: no wake-up is lost.
//! - A lock is released by dropping its guard and in no other way. After fork
//!   the child's copy of the guard releases the child's copy of the lock; the
//!   sleepers that the copied state may tell of live in the parent, so the
//!   child's wake finds nobody, which is harmless.
//!
//! *Locking*: these are the locks. Order in the engine: op → folio → LRU → pool class → leaf (a
//! pool window is one). Not reentrant.
//! *Context*: signal, worker, init. The holder has every signal blocked on its thread (or is a
//! worker that no program handler interrupts): otherwise a handler that faults while its own thread
//! holds the lock would wait for itself.
//! *Memory order*: taking the lock is an Acquire read of `state` that pairs with the Release
//! write of `FREE` in the previous holder's [`RawLockGuard::drop`]: everything
//! that holder wrote is seen. Nothing else needs an order: the waiter's write of
//! `HELD_WAITED` carries no data, and the futex compares the value inside the
//! kernel.

use crate::primitive::{MutPtr, Ordering, UnsafeCell, spin_loop};
use crate::word::Word;
use crate::{const_unless_modelled, strict_assert};
use core::ops::{Deref, DerefMut};

/// Nobody holds the lock.
const FREE: u32 = 0;
/// Held, and nobody sleeps.
const HELD: u32 = 1;
/// Held, and somebody may sleep: the holder wakes one when it leaves.
const HELD_WAITED: u32 = 2;

/// Rounds of looking before sleeping. A critical section here is tens of
/// nanoseconds, a futex sleep and wake-up several microseconds.
const SPINS: u32 = if cfg!(any(loom, miri)) { 1 } else { 100 };

/// A lock without data: one `u32`, 0 when free.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(transparent))]
pub struct RawLock {
    state: Word,
}

impl RawLock {
    const_unless_modelled! {
        /// A free lock.
        pub fn new() -> Self {
            Self {
                state: Word::new(FREE),
            }
        }
    }

    /// The guard of a lock that is held already and whose guard was forgotten.
    ///
    /// # Safety
    /// This thread holds the lock (after fork: the thread that it is a copy of), its guard was
    /// forgotten, and no other was made since.
    pub unsafe fn held(&self) -> RawLockGuard<'_> {
        RawLockGuard { lock: self }
    }

    /// Takes the lock if it is free at this moment. Never waits.
    #[inline]
    pub fn try_lock(&self) -> Option<RawLockGuard<'_>> {
        // Acquire: pairs with the Release in the guard's drop.
        match self
            .state
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
        {
            Ok(_) => Some(RawLockGuard { lock: self }),
            Err(_) => None,
        }
    }

    /// Takes the lock, waiting for it as long as it takes.
    #[inline]
    pub fn lock(&self) -> RawLockGuard<'_> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_slow(),
        }
    }

    /// Whether somebody held the lock a moment ago: a hint, never a proof.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) != FREE
    }

    #[cold]
    fn lock_slow(&self) -> RawLockGuard<'_> {
        for _ in 0..SPINS {
            match self.state.load(Ordering::Relaxed) {
                FREE => {
                    if let Some(guard) = self.try_lock() {
                        return guard;
                    }
                }
                // Others sleep already: spinning past them would starve them.
                HELD_WAITED => break,
                _ => spin_loop(),
            }
        }
        // From here on the lock is taken as HELD_WAITED even when this thread is
        // the last waiter, since it cannot know: one wake-up too many at most.
        //
        // Acquire: pairs with the Release in the guard's drop.
        while self.state.swap(HELD_WAITED, Ordering::Acquire) != FREE {
            self.state.sleep_while(HELD_WAITED);
        }
        RawLockGuard { lock: self }
    }
}

impl Default for RawLock {
    fn default() -> Self {
        Self::new()
    }
}

/// Proof that this thread holds a [`RawLock`]; dropping it releases the lock.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct RawLockGuard<'a> {
    lock: &'a RawLock,
}

impl Drop for RawLockGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the next holder.
        let before = self.lock.state.swap(FREE, Ordering::Release);
        strict_assert!(before != FREE, "released a lock that nobody held");
        if before == HELD_WAITED {
            self.lock.state.wake_one();
        }
    }
}

/// A lock and what it guards. Zeroed memory is a free lock around a zeroed `T`.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C))]
pub struct Lock<T> {
    raw: RawLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through the guard alone, one thread at a time, so
// sharing the lock only ever sends the value between threads.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: the lock owns its value; nothing in it is tied to a thread.
unsafe impl<T: Send> Send for Lock<T> {}

impl<T> Lock<T> {
    const_unless_modelled! {
        /// A free lock around `value`.
        pub fn new(value: T) -> Self {
            Self {
                raw: RawLock::new(),
                value: UnsafeCell::new(value),
            }
        }
    }

    /// Takes the lock, waiting for it as long as it takes.
    #[inline]
    pub fn lock(&self) -> LockGuard<'_, T> {
        let raw = self.raw.lock();
        LockGuard {
            value: self.value.get_mut(),
            _raw: raw,
        }
    }

    /// Takes the lock if it is free at this moment. Never waits.
    #[inline]
    pub fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        let raw = self.raw.try_lock()?;
        Some(LockGuard {
            value: self.value.get_mut(),
            _raw: raw,
        })
    }

    /// Whether somebody held the lock a moment ago: a hint, never a proof.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }
}

/// Proof that this thread holds a [`Lock`], and the way to its value.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct LockGuard<'a, T> {
    // Dropped in this order: the access to the value ends before the lock does.
    value: MutPtr<T>,
    _raw: RawLockGuard<'a>,
}

// SAFETY: a shared guard gives out `&T` only. (The raw pointer inside takes the
// automatic implementation away.)
unsafe impl<T: Sync> Sync for LockGuard<'_, T> {}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // Shared all the way: two of these may live at once.
        // SAFETY: the lock is held as long as the guard lives, and the reference
        // borrows the guard.
        self.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; the guard is borrowed exclusively here.
        self.value.with(|value| unsafe { &mut *value })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::mem::MaybeUninit;

    #[test]
    fn zeroed_memory_is_a_free_lock_of_four_bytes() {
        assert_eq!(size_of::<RawLock>(), 4);
        assert_eq!(size_of::<Lock<u32>>(), 8);
        // SAFETY: the property under test.
        let lock: Lock<u32> = unsafe { MaybeUninit::zeroed().assume_init() };
        assert!(!lock.is_locked());
        *lock.try_lock().unwrap() += 1;
        let guard = lock.lock();
        assert_eq!(*guard, 1);
        assert!(lock.is_locked() && lock.try_lock().is_none());
    }

    /// More threads than processors, so that holders are preempted and waiters
    /// reach the futex. A lost wake-up would hang here.
    #[test]
    fn many_threads_count_together() {
        let (threads, each) = if cfg!(miri) { (3, 20) } else { (16, 20_000) };
        let lock = Lock::new((0_u64, 0_u64));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for step in 0..each {
                        let mut both = lock.lock();
                        both.0 += 1;
                        if step % 1000 == 0 {
                            std::thread::yield_now();
                        }
                        both.1 += 1;
                        assert_eq!(both.0, both.1);
                    }
                });
            }
        });
        assert_eq!(lock.lock().0, threads * each);
        assert!(!lock.is_locked());
    }
}
