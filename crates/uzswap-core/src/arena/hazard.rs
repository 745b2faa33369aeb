//! *What*: hazards: memory that a system call of the program is using, one word per thread, which
//! reclaim passes over. Cheaper than a pin, which takes locks; and a thread that a signal handler
//! jumps out of the call has nothing to give back.
//!
//! *Invariants*
//! - As with hazard pointers: a thread announces its memory, then checks that all of it is resident
//!   and none isolated; a reclaimer isolates a folio, then checks that it is not announced. Each
//!   has a full fence in between, so at least one sees the other: the thread falls back to a pin,
//!   or the folio stays. Modelled in `tests/loom_folio.rs`.
//! - A word belongs to one thread and to the signal handlers that interrupt it. Starting a handler
//!   of the program withdraws the word first; the interrupted code checks its word right before the
//!   call.
//!
//! *Locking*: none. *Context*: the program's, signal; reclaim checks from any.

use crate::page::{PageRange, wide};
use uzswap_sync::primitive::{AtomicU64, AtomicUsize, Ordering, fence};

/// Threads that have a word; few in a model.
pub const NR_HAZARDS: usize = if cfg!(loom) { 2 } else { 1024 };

/// Bits of a word that hold the number of pages.
const NR_BITS: u32 = 8;
const WITHDRAWN: u64 = 0;

/// The words of all threads.
#[derive(Debug)]
pub struct Hazards {
    /// Words that were ever used.
    used: AtomicUsize,
    words: [AtomicU64; NR_HAZARDS],
}

/// One thread's word, and its value when it was announced.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Hazard<'a> {
    word: &'a AtomicU64,
    value: u64,
}

impl Hazard<'_> {
    /// The word, for code that checks it right before a system call.
    #[must_use]
    pub const fn word(&self) -> *const AtomicU64 {
        self.word
    }

    /// The value of the word until it is withdrawn.
    #[must_use]
    pub const fn value(&self) -> u64 {
        self.value
    }

    /// Withdraws the hazard after the call.
    pub fn withdraw(self) {
        // Release: the call's use of the memory comes before.
        self.word.store(WITHDRAWN, Ordering::Release);
    }
}

impl Hazards {
    /// None announced.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            used: AtomicUsize::new(0),
            words: [const { AtomicU64::new(WITHDRAWN) }; NR_HAZARDS],
        }
    }

    /// None announced.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self {
            used: AtomicUsize::new(0),
            words: core::array::from_fn(|_| AtomicU64::new(WITHDRAWN)),
        }
    }

    /// Announces `range`, of less than 256 pages, for thread `nr`. Pages that are found resident
    /// and not isolated after that stay so until it is withdrawn. `None`: the thread has no word,
    /// or the range does not fit one.
    #[inline]
    pub fn announce(&self, nr: usize, range: PageRange) -> Option<Hazard<'_>> {
        let word = self.words.get(nr)?;
        let len = wide(range.len());
        if len == 0 || len >= 1 << NR_BITS {
            return None;
        }
        let value = wide(range.start) << NR_BITS | len;
        if self.used.load(Ordering::Relaxed) <= nr {
            self.used.fetch_max(nr + 1, Ordering::Relaxed);
        }
        word.store(value, Ordering::Relaxed);
        // Pairs with the fence in `covers`.
        fence(Ordering::SeqCst);
        Some(Hazard { word, value })
    }

    /// Withdraws the word of thread `nr`.
    #[inline]
    pub fn withdraw(&self, nr: usize) {
        if let Some(word) = self.words.get(nr) {
            word.store(WITHDRAWN, Ordering::Release);
        }
    }

    /// Withdraws all words: in a fork child the threads are gone.
    pub fn withdraw_all(&self) {
        let used = self.used.load(Ordering::Relaxed);
        for word in self.words.iter().take(used) {
            word.store(WITHDRAWN, Ordering::Relaxed);
        }
    }

    /// Whether a thread has announced a page of `range`. The caller has isolated it before.
    #[inline]
    #[must_use]
    pub fn covers(&self, range: PageRange) -> bool {
        // Pairs with the fence in `announce`.
        fence(Ordering::SeqCst);
        let used = self.used.load(Ordering::Relaxed);
        self.words.iter().take(used).any(|word| {
            let value = word.load(Ordering::Acquire);
            let start = value >> NR_BITS;
            let end = start + (value & ((1 << NR_BITS) - 1));
            value != WITHDRAWN && start < wide(range.end) && wide(range.start) < end
        })
    }
}

impl Default for Hazards {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const fn range(start: usize, end: usize) -> PageRange {
        PageRange { start, end }
    }

    #[test]
    fn what_is_announced_is_covered_to_the_page_until_it_is_withdrawn() {
        let hazards = Hazards::new();
        assert!(!hazards.covers(range(0, usize::MAX)));
        let one = hazards.announce(3, range(10, 12)).unwrap();
        let other = hazards.announce(0, range(20, 21)).unwrap();
        assert!(hazards.covers(range(11, 20)) && hazards.covers(range(0, 11)));
        assert!(!hazards.covers(range(0, 10)) && !hazards.covers(range(12, 20)));
        one.withdraw();
        assert!(!hazards.covers(range(0, 20)) && hazards.covers(range(16, 32)));
        other.withdraw();
        assert!(!hazards.covers(range(0, usize::MAX)));
    }

    #[test]
    fn what_has_no_word_is_not_announced() {
        let hazards = Hazards::new();
        assert!(hazards.announce(NR_HAZARDS, range(0, 1)).is_none());
        assert!(hazards.announce(0, range(0, 256)).is_none());
        assert!(hazards.announce(0, range(5, 5)).is_none());
        assert!(!hazards.covers(range(0, usize::MAX)));
    }
}
