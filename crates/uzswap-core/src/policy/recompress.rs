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
    /// The eviction clock when the last one ended.
    ended: Option<u64>,
}

impl RecompressSweep {
    /// None yet.
    pub(crate) const fn new() -> Self {
        RecompressSweep {
            hand: 0,
            ended: None,
        }
    }

    /// Whether it has ended and the next is not due under a limit of `limit` pages.
    pub(crate) fn rests(&self, clock: &Clock, limit: u64) -> bool {
        let rests = |ended| clock.pages_since(ended, limit) < limit;
        self.hand == 0 && self.ended.is_some_and(rests)
    }

    /// Gives `visit` the pages that come next, until it refuses one, with which the next call
    /// begins.
    pub(crate) fn advance(&mut self, pages: &Pages, mut visit: impl FnMut(Page) -> bool) {
        for chunk in pages.ready_chunks(self.hand) {
            for index in chunk {
                if !visit(Page::from_index(index)) {
                    self.hand = index;
                    return;
                }
            }
        }
        self.hand = 0;
        self.ended = Some(pages.clock().reading());
    }
}
