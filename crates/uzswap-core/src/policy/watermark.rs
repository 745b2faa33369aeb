//! *What*: when the background reclaimer works: it wakes when room falls below the low watermark,
//! and sleeps when it reaches the high one.
//!
//! *Invariants*: none. *Locking*: none; a futex. *Context*: signal, worker.

use uzswap_sync::primitive::{AtomicU32, Ordering};
use uzswap_sys::futex;

/// Whether there is a background reclaimer, and how it is woken.
pub(crate) struct Background {
    enabled: bool,
    /// Nonzero while it has work; its futex.
    kick: AtomicU32,
}

impl Background {
    pub(crate) const fn new(enabled: bool) -> Self {
        Background {
            enabled,
            kick: AtomicU32::new(0),
        }
    }

    /// Whether there is such a thread.
    pub(crate) const fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Wakes it if, under a limit of `limit` pages, `room` is below the low watermark.
    pub(crate) fn wake_below(&self, room: u64, limit: u64) {
        if self.enabled && room < low(limit) && self.kick.swap(1, Ordering::Release) == 0 {
            let _ = futex::wake(&self.kick, 1);
        }
    }

    /// Sleeps until it is woken.
    pub(crate) fn wait(&self) {
        while self.kick.swap(0, Ordering::Acquire) == 0 {
            let _ = futex::wait(&self.kick, 0, None);
        }
    }
}

const fn low(limit: u64) -> u64 {
    limit / 64
}

/// Pages of room at which the background reclaimer sleeps again.
pub(crate) const fn high(limit: u64) -> u64 {
    low(limit) * 2
}
