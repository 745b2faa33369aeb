//! *What*: how much the pool holds, and how well it packs.
//!
//! *Invariants*: figures of a running pool are read one after the other: each is right, the sum
//! of two may be a moment off.
//! *Locking*: none, but [`Pool::idle_pages`] takes each window's lock for a moment.
//! *Context*: signal, worker.

use crate::Pool;
use crate::class::{self, ClassId, HUGE};
use uzswap_sync::primitive::Ordering;

/// A class's size and use, for tests and statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassStat {
    /// Bytes that an object takes, its owner included.
    pub size: u32,
    /// Pages in a zspage.
    pub chain: u32,
    /// Objects that fit into a zspage.
    pub objects_per_zspage: u16,
    /// Zspages.
    pub nr_zspages: u64,
    /// Objects in use.
    pub nr_objects: u64,
}

impl ClassStat {
    /// Zspages whose memory perfect compaction would free.
    pub const fn freeable_zspages(&self) -> u64 {
        let slots = self.nr_zspages * self.objects_per_zspage as u64;
        match slots
            .saturating_sub(self.nr_objects)
            .checked_div(self.objects_per_zspage as u64)
        {
            Some(nr) => nr,
            None => 0,
        }
    }
}

impl Pool {
    /// Pages that the pool has charged: zspages, empty ones included, and
    /// descriptors.
    pub fn total_pages(&self) -> u64 {
        self.held.pages.load(Ordering::Relaxed) + self.metadata_pages()
    }

    /// Of [`Pool::total_pages`], those that hold descriptors.
    pub fn metadata_pages(&self) -> u64 {
        self.held.metadata.load(Ordering::Relaxed)
    }

    /// Of [`Pool::total_pages`], those in empty zspages: what [`Pool::trim`] would
    /// give back.
    pub fn idle_pages(&self) -> u64 {
        self.windows
            .iter()
            .enumerate()
            .map(|(at, window)| window.idle_pages(&self.area(at)))
            .sum()
    }

    /// Objects in use.
    pub fn nr_objects(&self) -> u64 {
        self.class_stats().map(|stat| stat.nr_objects).sum()
    }

    /// Pages that perfect compaction would free. Takes no lock.
    pub fn fragmentation(&self) -> u64 {
        self.class_stats()
            .map(|stat| stat.freeable_zspages() * u64::from(stat.chain))
            .sum()
    }

    /// Every class, the smallest first. Figures of one class are read one after
    /// the other, so they may be a moment apart.
    pub fn class_stats(&self) -> impl Iterator<Item = ClassStat> + '_ {
        (1..=HUGE)
            .map(|id| self.class_stat(id))
            .filter(|stat| stat.size > 0)
    }

    pub(crate) fn class_stat(&self, id: ClassId) -> ClassStat {
        let shape = class::class(id);
        let (nr_zspages, nr_objects) = if shape.size == 0 {
            (0, 0)
        } else {
            let class = self.class(id);
            (
                class.nr_zspages.load(Ordering::Relaxed),
                class.nr_objects.load(Ordering::Relaxed),
            )
        };
        ClassStat {
            size: shape.size,
            chain: shape.chain,
            objects_per_zspage: shape.objects,
            nr_zspages,
            nr_objects,
        }
    }
}
