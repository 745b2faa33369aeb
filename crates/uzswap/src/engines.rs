//! *What*: the engines of this process, one for each pool, and which of them an address belongs to.
//!
//! An engine manages one [`Partition`] of the arena. Places are taken and given back under
//! [`PLACES`]; the fault handlers look an engine up without it.
//!
//! *Invariants*: an engine whose place is free has not started. A place is given back only after
//! its engine has stopped.
//! *Locking*: [`REQUESTS`], then [`PLACES`], both outermost and held across fork. *Context*:
//! [`of`]: any; the rest: a thread of the host.

use uzswap_core::{Engine, Partition};
use uzswap_sync::lock::{Lock, LockGuard, RawLock, RawLockGuard};

/// The engines, by the number of their partition.
static ENGINES: [Engine; Partition::COUNT] = [const { Engine::new() }; Partition::COUNT];

/// Bit `n`: place number `n` is taken.
static PLACES: Lock<u32> = Lock::new(0);

/// Held while somebody changes a pool's limit or reclaims, by its number: there is one request at
/// a time.
static REQUESTS: [RawLock; Partition::COUNT] = [const { RawLock::new() }; Partition::COUNT];

/// The right to use an engine, until it is given back.
#[derive(Debug)]
pub(crate) struct Place {
    number: usize,
}

impl Place {
    /// Takes a free place; `None`: there are as many pools as there can be.
    pub(crate) fn take() -> Option<Place> {
        let mut places = PLACES.lock();
        let number = (0..Partition::COUNT).find(|number| *places & 1 << number == 0)?;
        *places |= 1 << number;
        Some(Place { number })
    }

    /// Its number.
    pub(crate) const fn number(&self) -> usize {
        self.number
    }

    /// Waits until nobody else asks its engine for anything.
    pub(crate) fn request(&self) -> RawLockGuard<'static> {
        REQUESTS[self.number].lock()
    }

    /// Its engine.
    pub(crate) fn engine(&self) -> &'static Engine {
        &ENGINES[self.number]
    }

    /// Its part of the arena.
    pub(crate) fn partition(&self) -> Partition {
        Partition::numbered(self.number).unwrap_or(Partition::WHOLE)
    }

    /// Gives it back. Its engine has stopped.
    pub(crate) fn give_back(self) {
        *PLACES.lock() &= !(1 << self.number);
    }
}

/// The engine whose partition holds `addr`. It may not have started.
#[inline]
pub(crate) fn of(addr: usize) -> Option<&'static Engine> {
    ENGINES.get(Partition::number_of(addr)?)
}

/// All engines, by number.
pub(crate) fn all() -> impl Iterator<Item = &'static Engine> {
    ENGINES.iter()
}

/// No pool comes, goes or is asked for anything as long as this lives.
pub(crate) struct Held {
    places: LockGuard<'static, u32>,
    _requests: [RawLockGuard<'static>; Partition::COUNT],
}

impl Held {
    /// Whether there is a pool of that number.
    pub(crate) fn is_taken(&self, number: usize) -> bool {
        *self.places & 1 << number != 0
    }
}

/// Keeps pools as they are.
pub(crate) fn hold() -> Held {
    let requests = REQUESTS.each_ref().map(RawLock::lock);
    Held {
        places: PLACES.lock(),
        _requests: requests,
    }
}
