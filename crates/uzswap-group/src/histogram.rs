//! *What*: [`Histogram`], durations in time stamp counter ticks, or distances in pages.
//! *Invariants*: four buckets for each power of two; a bucket and `max` only rise, until they are
//! folded into the sums of a group.
//! *Locking*: none; every cell is a relaxed atomic. *Context*: written on the fault path.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets of a [`Histogram`]: four for each power of two.
pub const NR_BUCKETS: usize = 256;

/// Durations in time stamp counter ticks, in buckets a quarter octave wide.
#[derive(Debug)]
#[repr(C)]
pub struct Histogram {
    /// How many durations fell into each bucket.
    pub buckets: [AtomicU64; NR_BUCKETS],
    /// The longest, in ticks.
    pub max: AtomicU64,
}

impl Histogram {
    /// Bucket of a duration.
    #[inline]
    #[must_use]
    pub fn bucket(ticks: u64) -> usize {
        if ticks < 4 {
            return usize::try_from(ticks).unwrap_or(0);
        }
        let octave = ticks.ilog2();
        let quarter = (ticks >> (octave - 2)) & 3;
        ((octave as usize) * 4 + usize::try_from(quarter).unwrap_or(0)).min(NR_BUCKETS - 1)
    }

    /// Smallest duration that falls into bucket `index`, in ticks: the inverse of
    /// [`Histogram::bucket`].
    #[must_use]
    pub fn lower_bound(index: usize) -> u64 {
        if index < 8 {
            return index.min(3) as u64;
        }
        let octave = index / 4;
        (4 + (index % 4) as u64) << (octave - 2)
    }

    /// Takes over what `from` has counted, which begins anew.
    pub(crate) fn fold(&self, from: &Histogram) {
        for (to, from) in self.buckets.iter().zip(&from.buckets) {
            to.fetch_add(from.swap(0, Relaxed), Relaxed);
        }
        self.max.fetch_max(from.max.swap(0, Relaxed), Relaxed);
    }

    /// Counts one duration.
    #[inline]
    pub fn record(&self, ticks: u64) {
        if let Some(bucket) = self.buckets.get(Self::bucket(ticks)) {
            bucket.fetch_add(1, Relaxed);
        }
        if ticks > self.max.load(Relaxed) {
            self.max.fetch_max(ticks, Relaxed);
        }
    }
}
