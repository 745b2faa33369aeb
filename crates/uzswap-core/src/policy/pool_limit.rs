//! *What*: decides what to do with a pool that is larger than it may be.
//!
//! *Invariants*: none. *Locking*: none; one relaxed atomic. *Context*: signal, worker.

use uzswap_group::knobs::{Knobs, percent};
use uzswap_sync::primitive::{AtomicBool, Ordering::Relaxed};

/// What to do with the pool next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It may stay as it is.
    Keep,
    /// Make it smaller by a denser codec.
    Recompress,
    /// Write the coldest of it to a swap device.
    WriteBack,
}

/// The pool's limit, with the hysteresis between "too large" and "small enough".
#[derive(Debug)]
pub(crate) struct PoolLimit {
    /// The pool was over its limit and is not down to what it accepts.
    shrinking: AtomicBool,
}

impl PoolLimit {
    pub(crate) const fn new() -> Self {
        PoolLimit {
            shrinking: AtomicBool::new(false),
        }
    }

    /// Decides, for the pools of this process's nodes, each with the most that it may take, in
    /// pages. `recompresses`: what is in them could be much smaller.
    pub(crate) fn decide(
        &self,
        pools: impl Iterator<Item = (u64, u64)>,
        knobs: &Knobs,
        recompresses: bool,
    ) -> Decision {
        let (mut exceeds, mut is_accepted) = (false, true);
        for (pool, max_pool) in pools {
            exceeds |= pool > max_pool;
            is_accepted &= pool <= percent(max_pool, &knobs.accept_threshold_percent);
        }
        if exceeds {
            self.shrinking.store(true, Relaxed);
        } else if !self.shrinking.load(Relaxed) {
            return Decision::Keep;
        } else if is_accepted {
            self.shrinking.store(false, Relaxed);
            return Decision::Keep;
        }
        if recompresses {
            Decision::Recompress
        } else {
            Decision::WriteBack
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_over_its_limit_shrinks_until_it_is_accepted() {
        // SAFETY: knobs are atomics, for which all zeroes are valid.
        let knobs: Knobs = unsafe { core::mem::zeroed() };
        knobs.accept_threshold_percent.store(90, Relaxed);
        let limit = PoolLimit::new();
        let decide = |pool| limit.decide([(pool, 500)].into_iter(), &knobs, false);
        assert_eq!(decide(500), Decision::Keep, "just full");
        assert_eq!(decide(501), Decision::WriteBack);
        assert_eq!(decide(451), Decision::WriteBack, "not accepted yet");
        assert_eq!(decide(450), Decision::Keep);
        assert_eq!(decide(460), Decision::Keep, "until it is full again");
        let denser = limit.decide([(501, 500)].into_iter(), &knobs, true);
        assert_eq!(denser, Decision::Recompress, "rather than written");
        let two = |inner| [(450, 500), (inner, 50)].into_iter();
        let nested = PoolLimit::new();
        let decide = |inner| nested.decide(two(inner), &knobs, false);
        assert_eq!(decide(51), Decision::WriteBack, "any of several");
        assert_eq!(decide(46), Decision::WriteBack);
        assert_eq!(decide(45), Decision::Keep, "all of them");
    }
}
