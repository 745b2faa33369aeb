//! *What*: position of the sweep that recompresses before writeback, and its pauses.
//!
//! The next sweep starts when as many pages were evicted since the last one's end as the limit has.
//!
//! *Invariants*: none. *Locking*: the sweep's lock, held by the caller. *Context*: signal, worker.

use crate::page::clock::Clock;
use crate::page::{Page, Pages};

/// Where the sweep stands.
#[derive(Debug)]
pub(crate) struct RecompressSweep {
    /// The page that it has come to; 0 when it has ended.
    hand: usize,
    /// The eviction clock when it began.
    began: u64,
    /// The clock when the last one began, and when it ended.
    last: Option<(u64, u64)>,
}

impl RecompressSweep {
    /// None yet.
    pub(crate) const fn new() -> Self {
        RecompressSweep {
            hand: 0,
            began: 0,
            last: None,
        }
    }

    /// Whether it has ended and the next is not due under a limit of `limit` pages. One is due at
    /// once where the codec became denser at `since` by the clock.
    pub(crate) fn rests(&self, clock: &Clock, limit: u64, since: u64) -> bool {
        let rests = |(began, ended)| began >= since && clock.pages_since(ended, limit) < limit;
        self.hand == 0 && self.last.is_some_and(rests)
    }

    /// Whether no sweep before this one has begun after `since`: what a denser codec made before
    /// then is recompressed as well, once.
    pub(crate) fn is_first_since(&self, since: u64) -> bool {
        self.last.is_none_or(|(began, _)| began < since)
    }

    /// Gives `visit` the pages that come next, until it refuses one, with which the next call
    /// begins.
    pub(crate) fn advance(&mut self, pages: &Pages, mut visit: impl FnMut(Page) -> bool) {
        if self.hand == 0 {
            self.began = pages.clock().reading();
        }
        for chunk in pages.ready_chunks(self.hand) {
            for index in chunk {
                if !visit(Page::from_index(index)) {
                    self.hand = index;
                    return;
                }
            }
        }
        self.hand = 0;
        self.last = Some((self.began, pages.clock().reading()));
    }
}
