//! *What*: detects sequential access, so that a fault brings in more than one page.
//!
//! A stream predicts the next fault: just above or just below what the last one brought in. A fault
//! that hits a stream brings in twice as many pages as the one before, up to the end of its folio.
//! Chance neighbours cost little; a scan soon moves whole folios.
//!
//! *Invariants*: none; a lost or wrong stream costs speed only.
//! *Locking*: belongs to an operation. *Context*: signal, worker.

use crate::page::{Page, PageRange};

const NR_STREAMS: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Stream {
    /// Page numbers just above and just below the pages brought in, or [`NOWHERE`].
    above: usize,
    below: usize,
    /// Pages in the window of the last fault.
    window: usize,
}

const NOWHERE: usize = usize::MAX;
const NONE: Stream = Stream {
    above: NOWHERE,
    below: NOWHERE,
    window: 0,
};

/// The streams that one operation context follows.
#[derive(Debug)]
pub struct Streams {
    streams: [Stream; NR_STREAMS],
    oldest: usize,
}

impl Default for Streams {
    fn default() -> Self {
        Self::new()
    }
}

impl Streams {
    /// No stream.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            streams: [NONE; NR_STREAMS],
            oldest: 0,
        }
    }

    /// The pages of `folio` that a fault on `page` should bring in. Moves the stream on.
    pub fn window(&mut self, page: Page, folio: PageRange) -> PageRange {
        let at = page.index();
        let hit = self
            .streams
            .iter()
            .position(|stream| stream.above == at || stream.below == at);
        let (number, stream) = match hit.and_then(|n| Some((n, *self.streams.get(n)?))) {
            Some(found) => found,
            None => (self.free_or_oldest(), NONE),
        };
        let window = (stream.window * 2).clamp(1, folio.len());
        let range = if stream.below == at {
            PageRange {
                start: (at + 1).saturating_sub(window).max(folio.start),
                end: at + 1,
            }
        } else {
            PageRange {
                start: at,
                end: (at + window).min(folio.end),
            }
        };
        self.set(number, range, window);
        range
    }

    /// Notes that instead of the window `from` all of `to` came in, because a block comes in whole.
    pub fn widen(&mut self, from: PageRange, to: PageRange) {
        let at = self.streams.iter().position(|stream| {
            stream.above == from.end && stream.below == from.start.wrapping_sub(1)
        });
        if let Some(number) = at {
            self.set(number, to, to.len());
        }
    }

    /// Notes that a first touch filled `range`, so that a scan from there moves whole folios at
    /// once.
    pub fn note(&mut self, range: PageRange) {
        let number = self.free_or_oldest();
        self.set(number, range, range.len());
    }

    fn set(&mut self, number: usize, range: PageRange, window: usize) {
        if let Some(stream) = self.streams.get_mut(number) {
            *stream = Stream {
                above: range.end,
                below: range.start.wrapping_sub(1),
                window,
            };
        }
    }

    fn free_or_oldest(&mut self) -> usize {
        self.oldest = (self.oldest + 1) % NR_STREAMS;
        self.oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLIO: usize = 16;

    fn fault(streams: &mut Streams, at: usize) -> (usize, usize) {
        let start = at / FOLIO * FOLIO;
        let folio = PageRange {
            start,
            end: start + FOLIO,
        };
        let range = streams.window(Page::from_index(at), folio);
        assert!(range.start <= at && at < range.end, "the page itself is in");
        assert!(folio.start <= range.start && range.end <= folio.end);
        (range.start, range.end)
    }

    #[test]
    fn a_scan_soon_moves_whole_folios() {
        let mut streams = Streams::new();
        let (mut at, mut faults) = (160, 0);
        while at < 160 + 64 * FOLIO {
            at = fault(&mut streams, at).1;
            faults += 1;
        }
        assert!(faults <= 64 + 5, "{faults} faults for 64 folios");
    }

    #[test]
    fn a_scan_downwards_too() {
        let mut streams = Streams::new();
        let (mut at, mut faults) = (160 + 64 * FOLIO, 0);
        while at >= 160 {
            at = fault(&mut streams, at).0 - 1;
            faults += 1;
        }
        assert!(faults <= 64 + 6, "{faults} faults for 64 folios");
    }

    #[test]
    fn two_interleaved_scans_are_both_followed_and_chance_costs_little() {
        let mut streams = Streams::new();
        assert_eq!(fault(&mut streams, 100), (100, 101));
        assert_eq!(fault(&mut streams, 5000), (5000, 5001));
        assert_eq!(fault(&mut streams, 101), (101, 103));
        assert_eq!(fault(&mut streams, 4999), (4998, 5000));
        assert_eq!(fault(&mut streams, 103), (103, 107));
        assert_eq!(fault(&mut streams, 4997), (4994, 4998));
        assert_eq!(fault(&mut streams, 900), (900, 901));
    }

    #[test]
    fn old_streams_give_way_to_new_ones() {
        let mut streams = Streams::new();
        for n in 0..20 {
            fault(&mut streams, n * 800);
        }
        assert_eq!(fault(&mut streams, 1), (1, 2), "forgotten");
        assert_eq!(fault(&mut streams, 15_201), (15_201, 15_203));
    }
}
