//! *What*: how processes of a group ask each other for memory: each says how cold its coldest
//! memory is; who needs room writes to the coldest how much it would like and wakes its reclaimer,
//! which evicts as much if it agrees.
//!
//! Times are those of the time stamp counter, which all processes of a machine see alike.
//!
//! *Invariants*: what is asked for is a wish: the one who is asked decides what it gives, and frees
//! nothing but its own.
//! *Locking*: none. Waking is modelled in `uzswap-sync/tests/loom_presence.rs`.
//! *Context*: any, in every process of the group.

use uzswap_sync::presence::Kick;
use uzswap_sync::primitive::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// Bits of a wish that count pages; its time has the others, and is exact to some milliseconds.
const PAGES_BITS: u32 = 24;
const MAX_PAGES: u64 = (1 << PAGES_BITS) - 1;

/// What others would like of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Pages.
    pub pages: u64,
    /// Only of memory that was put on its list before this moment; [`Wish::ANY_TIME`].
    pub before: u64,
}

impl Wish {
    /// [`Wish::before`]: however warm the memory is.
    pub const ANY_TIME: u64 = u64::MAX;

    const fn encode(self) -> u64 {
        let pages = if self.pages < MAX_PAGES {
            self.pages
        } else {
            MAX_PAGES
        };
        self.before & !MAX_PAGES | pages
    }

    const fn decode(word: u64) -> Self {
        Wish {
            pages: word & MAX_PAGES,
            before: word & !MAX_PAGES,
        }
    }
}

/// A process's coldest memory, and who would like to have it. All zeroes: it has none, and nobody.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Ask {
    /// When the memory that it would evict next was put on its LRU list; 0: there is none.
    pub coldest: AtomicU64,
    /// When it last had nothing to give.
    pub refused: AtomicU64,
    /// A [`Wish`]; 0: nobody asks.
    wish: AtomicU64,
    /// Wakes its reclaimer.
    pub kick: Kick,
}

impl Ask {
    /// Asks for `wish`. Of several wishes the largest and the latest count.
    pub fn ask(&self, wish: Wish) {
        let more = |word| {
            let old = Wish::decode(word);
            let both = Wish {
                pages: wish.pages.max(old.pages),
                before: wish.before.max(old.before),
            };
            Some(both.encode())
        };
        let _ = self.wish.fetch_update(AcqRel, Relaxed, more);
        self.kick.ring();
    }

    /// Whether somebody asks, and nobody has seen to it.
    pub fn is_open(&self) -> bool {
        self.wish.load(Acquire) != 0
    }

    /// What is asked for, which the caller sees to.
    pub fn take(&self) -> Option<Wish> {
        if self.wish.load(Relaxed) == 0 {
            return None;
        }
        match self.wish.swap(0, AcqRel) {
            0 => None,
            word => Some(Wish::decode(word)),
        }
    }

    /// Another process begins here, with no memory and no reclaimer.
    pub(crate) fn reset(&self) {
        self.coldest.store(0, Relaxed);
        self.refused.store(0, Relaxed);
        self.wish.store(0, Relaxed);
        self.kick.reset();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn of_several_wishes_the_largest_counts_and_it_is_seen_to_once() {
        let ask = Ask::default();
        assert_eq!(ask.take(), None);
        let (early, late) = (3 << PAGES_BITS, 5 << PAGES_BITS);
        for (pages, before) in [(7, late), (9, early + 1)] {
            ask.ask(Wish { pages, before });
        }
        assert!(ask.is_open());
        let both = Wish {
            pages: 9,
            before: late,
        };
        assert_eq!(ask.take(), Some(both));
        assert_eq!(ask.take(), None);
        ask.ask(Wish {
            pages: u64::MAX,
            before: Wish::ANY_TIME,
        });
        let all = ask.take().unwrap();
        assert_eq!(all.pages, MAX_PAGES, "no overflow into the time");
        assert!(all.before > late);
    }
}
