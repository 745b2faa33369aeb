//! *What*: [`Arena`], the owner of the region map and of the kernel's side of the arena.
//!
//! *Invariants*: as [`super`]. *Locking*: `protecting` → region map. *Context*: any.

use super::hazard::Hazards;
use super::mapping::Mapping;
use super::region::{ENTRY_LEN, RegionMap};
use crate::page::{PAGE_SIZE, PageRange, Partition, wide};
use uzswap_sync::lock::Lock;
use uzswap_sync::primitive::{AtomicU64, Ordering::Relaxed};
use uzswap_sys::Errno;
use uzswap_sys::mem::{self, IoVec, MADV_DONTNEED, SelfMadvise, madvise_vectored_self};
use uzswap_sys::uffd::Uffd;

/// How faults reach the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultMode {
    /// SIGBUS in the faulting thread; faults inside the kernel fail, so system calls are guarded.
    Signal,
    /// A handler thread reads them from the userfaultfd; it serves faults inside the kernel as
    /// well.
    Thread,
    /// As [`FaultMode::Signal`], by SIGSEGV and page protection instead of userfaultfd.
    Segv,
}

impl From<FaultMode> for uzswap_group::group::FaultMode {
    fn from(mode: FaultMode) -> Self {
        match mode {
            FaultMode::Signal => Self::Signal,
            FaultMode::Thread => Self::Thread,
            FaultMode::Segv => Self::Segv,
        }
    }
}

/// The region map, and the means by which the kernel is told of pages.
pub(crate) struct Arena {
    mode: FaultMode,
    partition: Partition,
    pub(super) mapping: Mapping,
    pub(super) regions: RegionMap,
    hazards: &'static Hazards,
    /// [`LOAD_LEN`](crate::op::LOAD_LEN) bytes of zeroes.
    pub(super) zeroes: *const u8,
    how_to_drop: SelfMadvise,
    /// Held while the protection of a range changes in region map and kernel.
    pub(super) protecting: Lock<()>,
    /// Pages of the region map that are charged.
    charged_region_pages: AtomicU64,
}

impl Arena {
    /// An arena with nothing mapped. `zeroes` points to [`LOAD_LEN`](crate::op::LOAD_LEN) zero
    /// bytes.
    pub(crate) fn new(
        mode: FaultMode,
        partition: Partition,
        mapping: Mapping,
        regions: RegionMap,
        hazards: &'static Hazards,
        zeroes: *const u8,
    ) -> Self {
        Arena {
            mode,
            partition,
            mapping,
            regions,
            hazards,
            zeroes,
            how_to_drop: mem::probe_vectored_dontneed(),
            protecting: Lock::new(()),
            charged_region_pages: AtomicU64::new(0),
        }
    }

    /// Registers the whole partition, freshly mapped.
    pub(crate) fn adopt_all(&self) -> Result<(), Errno> {
        self.mapping
            .adopt(self.partition.start(), self.partition.len())
    }

    /// The part of the arena that is this engine's.
    pub(crate) const fn partition(&self) -> Partition {
        self.partition
    }

    /// The fault mode in use.
    pub(crate) const fn mode(&self) -> FaultMode {
        self.mode
    }

    /// The region map.
    #[inline]
    pub(crate) const fn regions(&self) -> &RegionMap {
        &self.regions
    }

    /// Memory that system calls are using.
    #[inline]
    pub(crate) const fn hazards(&self) -> &'static Hazards {
        self.hazards
    }

    /// The descriptor that the program must not close.
    pub(crate) const fn mapping_fd(&self) -> i32 {
        self.mapping.fd()
    }

    /// Where a handler thread reads faults.
    pub(crate) const fn uffd(&self) -> Option<Uffd> {
        self.mapping.uffd()
    }

    /// As [`Mapping::granule`].
    #[inline]
    pub(crate) const fn granule(&self) -> usize {
        self.mapping.granule()
    }

    /// Pages by which the region map has outgrown its charge. They count as charged from now on.
    pub(crate) fn grow_region_pages(&self) -> u64 {
        let pages = wide((self.regions.nr_regions() * ENTRY_LEN).div_ceil(PAGE_SIZE));
        let charged = self.charged_region_pages.fetch_max(pages, Relaxed);
        pages.saturating_sub(charged)
    }

    /// Drops pages of the arena, many ranges with one call.
    ///
    /// # Safety
    /// The contents of the ranges are stored, their entries published, and their folios held.
    pub(crate) unsafe fn drop_ranges(&self, ranges: &[IoVec]) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        unsafe { madvise_vectored_self(self.how_to_drop, ranges, MADV_DONTNEED) }.map(drop)
    }

    /// Drops pages of the arena whose contents the program gives up. The caller holds their folios.
    pub(crate) fn drop_range(&self, range: PageRange) -> Result<(), Errno> {
        // SAFETY: arena memory whose contents the program gives up.
        unsafe { mem::madvise(range.addr(), range.bytes(), MADV_DONTNEED) }
    }
}
