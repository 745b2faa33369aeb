//! *What*: [`SharedLock`]: a lock in memory that several processes share, whose holder may be
//! killed.
//!
//! *Invariants*
//! - The word is 0 when free, otherwise the holder's stamp (see [`crate::owners::Owner`]), with
//!   [`WAITED`] while somebody may sleep. Zeroed memory is a free lock.
//! - Only the holder frees it, except that a waiter who knows the holder to be dead replaces the
//!   stamp by its own. That waiter is told so, and repairs what the lock guards.
//! - A stamp names one life of a process (index and epoch), so a new process in a dead one's place
//!   is never taken for the holder.
//! - Sleeps are bounded, so a wake-up that died with its sender costs [`PATIENCE_NS`] and no more.
//!
//! *Locking*: this is the lock. Not reentrant.
//! *Context*: signal, worker, init; in every process of the group.

use uzswap_sync::primitive::{AtomicU32, AtomicU64, Ordering, spin_loop};
use uzswap_sync::strict_assert;

const FREE: u32 = 0;
/// Somebody sleeps: the holder wakes one when it leaves.
pub(crate) const WAITED: u32 = 1 << 31;

/// Rounds of looking before sleeping.
const SPINS: u32 = if cfg!(any(loom, miri)) { 1 } else { 100 };
/// How long a waiter sleeps before it asks whether the holder lives.
#[cfg(not(any(loom, miri)))]
const PATIENCE_NS: u64 = 10_000_000;

/// How often and how long locks of one kind were waited for.
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub(crate) struct WaitCounts {
    pub(crate) nr: AtomicU64,
    pub(crate) ns: AtomicU64,
}

/// How the lock was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Acquired {
    /// Its last holder freed it.
    Clean,
    /// Its holder died: what it guards may be half changed.
    FromDead,
}

#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[cfg_attr(not(loom), repr(transparent))]
pub(crate) struct SharedLock {
    word: AtomicU32,
    /// Stands for what the lock guards: the model checker sees two who have it at a time.
    #[cfg(loom)]
    guarded: uzswap_sync::primitive::UnsafeCell<()>,
}

#[cfg(loom)]
// SAFETY: the cell is reached by the lock's holder alone; loom finds it if that is not so.
unsafe impl Sync for SharedLock {}

impl SharedLock {
    /// The caller holds the lock. Every guard says so when it is made, and when it frees the lock.
    #[inline]
    pub(crate) fn assert_held(&self) {
        #[cfg(loom)]
        self.guarded.get_mut().with(|_| ());
    }

    /// The holder's stamp, 0 for none: a hint, unless the holder is known to be dead.
    #[inline]
    pub(crate) fn holder(&self) -> u32 {
        self.word.load(Ordering::Relaxed) & !WAITED
    }

    #[inline]
    pub(crate) fn try_lock(&self, stamp: u32) -> bool {
        // Acquire: pairs with the Release in `unlock`.
        self.word
            .compare_exchange(FREE, stamp, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[inline]
    pub(crate) fn lock(
        &self,
        stamp: u32,
        waits: &WaitCounts,
        is_dead: impl Fn(u32) -> bool,
    ) -> Acquired {
        if self.try_lock(stamp) {
            return Acquired::Clean;
        }
        self.lock_waiting(stamp, waits, is_dead)
    }

    #[cold]
    fn lock_waiting(
        &self,
        stamp: u32,
        waits: &WaitCounts,
        is_dead: impl Fn(u32) -> bool,
    ) -> Acquired {
        let start = now_ns();
        let got = self.lock_slow(stamp, is_dead);
        waits.nr.fetch_add(1, Ordering::Relaxed);
        waits
            .ns
            .fetch_add(now_ns().saturating_sub(start), Ordering::Relaxed);
        got
    }

    fn lock_slow(&self, stamp: u32, is_dead: impl Fn(u32) -> bool) -> Acquired {
        for _ in 0..SPINS {
            match self.word.load(Ordering::Relaxed) {
                FREE if self.try_lock(stamp) => return Acquired::Clean,
                word if word & WAITED != 0 => break,
                _ => spin_loop(),
            }
        }
        loop {
            let word = self.word.load(Ordering::Relaxed);
            // A waiter cannot know whether it is the last one: it takes the lock as WAITED.
            // Acquire in both: pairs with the Release in `unlock`.
            if word == FREE {
                if self.replace(FREE, stamp | WAITED) {
                    return Acquired::Clean;
                }
                continue;
            }
            if word & WAITED == 0 && !self.replace(word, word | WAITED) {
                continue;
            }
            let word = word | WAITED;
            if self.sleep(word) && is_dead(word & !WAITED) && self.replace(word, stamp | WAITED) {
                return Acquired::FromDead;
            }
        }
    }

    fn replace(&self, old: u32, new: u32) -> bool {
        self.word
            .compare_exchange(old, new, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Frees the lock.
    ///
    /// The caller holds it.
    #[inline]
    pub(crate) fn unlock(&self) {
        self.assert_held();
        // Release: pairs with the Acquire of the next holder.
        let before = self.word.swap(FREE, Ordering::Release);
        strict_assert!(before != FREE, "freed a lock that nobody held");
        if before & WAITED != 0 {
            self.wake_one();
        }
    }

    /// Sleeps while the word is `word`; true if that lasted so long that the holder may be dead.
    #[cfg(not(any(loom, miri)))]
    fn sleep(&self, word: u32) -> bool {
        let patience = uzswap_sys::thread::Timespec::from_nanos(PATIENCE_NS);
        let waited = uzswap_sys::futex::wait_shared(&self.word, word, Some(&patience));
        waited == Err(uzswap_sys::Errno::ETIMEDOUT)
    }

    #[cfg(not(any(loom, miri)))]
    #[cold]
    fn wake_one(&self) {
        uzswap_sys::futex::wake_shared(&self.word, 1);
    }

    // No futex: the checker runs another thread, and every wait may be the last.
    #[cfg(any(loom, miri))]
    fn sleep(&self, _word: u32) -> bool {
        spin_loop();
        true
    }

    #[cfg(any(loom, miri))]
    fn wake_one(&self) {}
}

fn now_ns() -> u64 {
    #[cfg(not(any(loom, miri)))]
    return uzswap_sys::thread::monotonic_ns();
    #[cfg(any(loom, miri))]
    return 0;
}
