//! *What*: [`Curve`], how many faults more resident memory would save: faults by refault distance.
//!
//! A page that came back after so many evictions would have stayed, had the resident set been as
//! much larger (the kernel's workingset code). Of a smaller resident set it is not known which
//! pages would fault in addition: the curve goes on in proportion.
//!
//! *Invariants*: older windows count less. *Locking*: the watch's. *Context*: signal, worker.

use uzswap_group::histogram::{Histogram, NR_BUCKETS};
use uzswap_sync::primitive::Ordering::Relaxed;

/// The whole, of parts of it.
pub(super) const ONE: u64 = 1 << 16;

/// Each window, 1/4 of the counts is forgotten.
const FADE_PART: u64 = 4;
/// What one fault counts, so that few fade smoothly.
const UNIT: u64 = 16;
/// A smaller resident set is assumed to make faults at most four times as many.
const MAX_GROWTH: u64 = 4;

/// Faults by refault distance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Curve {
    counts: [u64; NR_BUCKETS],
}

impl Curve {
    pub(super) const NONE: Curve = Curve {
        counts: [0; NR_BUCKETS],
    };

    /// A window has ended. Takes what `histogram` has that was not there before, as `seen` says.
    pub(super) fn take(&mut self, histogram: &Histogram, seen: &mut Curve) {
        let counts = self.counts.iter_mut().zip(&mut seen.counts);
        for ((count, seen), bucket) in counts.zip(&histogram.buckets) {
            let now = bucket.load(Relaxed);
            // A process that a fork has made begins anew.
            let new = now.saturating_sub(core::mem::replace(seen, now));
            *count = *count - count.div_ceil(FADE_PART) + new * UNIT;
        }
    }

    #[cfg(test)]
    pub(super) fn add(&mut self, distance: u64, nr: u64) {
        self.counts[Histogram::bucket(distance)] += nr * UNIT;
    }

    /// Part of the faults, of [`ONE`], that there would be with `more` pages resident, or, if
    /// `fewer` is set, with so many fewer.
    pub(super) fn faults_with(&self, more: u64, fewer: u64) -> u64 {
        if fewer > 0 {
            let left = self.beyond(fewer).max(ONE / MAX_GROWTH);
            return ONE * ONE / left;
        }
        self.beyond(more)
    }

    /// Part of the faults, of [`ONE`], on pages that came back after more than `distance`
    /// evictions.
    fn beyond(&self, distance: u64) -> u64 {
        let all: u64 = self.counts.iter().sum();
        if all == 0 || distance == 0 {
            return ONE;
        }
        let bucket = Histogram::bucket(distance);
        let nearer: u64 = self.counts.iter().take(bucket).sum();
        let (low, high) = (
            Histogram::lower_bound(bucket),
            Histogram::lower_bound(bucket + 1),
        );
        let here = self.counts.get(bucket).copied().unwrap_or(0);
        let nearer = nearer + here * distance.saturating_sub(low) / high.saturating_sub(low).max(1);
        ONE - ONE * nearer.min(all) / all
    }
}
