//! *What*: the knobs that `uzswap set` changes while processes run. The shared cells, the options
//! of `uzswap run`, and what `uzswap set` takes and shows are made from this list, so a new knob is
//! one entry here.
//! *Invariants*: a cell holds a value within the bounds of its knob from before the group is
//! published. Each decision reads the cell anew; no copy is kept.
//! *Locking*: none; every cell is a relaxed atomic. *Context*: read by the engine anywhere, written
//! by `uzswap run` and `uzswap set`.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use uzswap_compress::Codec;

/// What values a knob takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// [`ON`] or [`OFF`].
    Switch,
    /// 1 to 100.
    Percent,
    /// 0, which is off, to 100.
    Share,
    /// A compressor and its level, as [`Codec::to_bits`] has them, or [`CODEC_AUTO`].
    Codec,
    /// log2 of 1, 4 or 16 pages, or [`BLOCK_AUTO`].
    Block,
    /// Bytes; decided when the group is made.
    Size,
    /// Bytes, or 0: there is no such limit.
    Limit,
    /// How many workers, up to [`MAX_WORKERS`]; with [`MAPPED`] each CPU submits to one of them.
    Accel,
    /// [`SHOW_NATIVE`], [`SHOW_LIMIT`], or bytes from [`MIN_SHOWN`] to [`MAX_SHOWN`].
    Shown,
}

/// The default of a knob that is decided when the group is made.
pub const UNDECIDED: u64 = u64::MAX;
/// [`Values::Accel`]: most workers of a process.
pub const MAX_WORKERS: u64 = 8;
/// [`Values::Accel`]: a flag beside the number.
pub const MAPPED: u64 = 1 << 8;

/// [`Values::Codec`]: lz4, or a denser codec while that saves time on the swap device.
pub const CODEC_AUTO: u64 = 0;
/// [`Values::Block`]: decided by how pages are faulted back in.
pub const BLOCK_AUTO: u64 = 15;

/// [`Values::Shown`]: what the machine and its cgroups say.
pub const SHOW_NATIVE: u64 = 0;
/// [`Values::Shown`]: the knob `ram`.
pub const SHOW_LIMIT: u64 = 1;
/// [`Values::Shown`]: the least size, bytes.
pub const MIN_SHOWN: u64 = 1 << 20;
/// [`Values::Shown`]: the largest size, bytes. Programs add and multiply in signed words.
pub const MAX_SHOWN: u64 = 1 << 50;

/// [`Values::Switch`]: off.
pub const OFF: u64 = 0;
/// [`Values::Switch`]: on.
pub const ON: u64 = 1;

/// One knob.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// The kernel's name where it has one.
    pub name: &'static str,
    /// What it takes.
    pub values: Values,
    /// What it is unless an option says otherwise.
    pub default: u64,
    /// What it is for, in one line.
    pub meaning: &'static str,
}

macro_rules! knobs {
    ($(#[doc = $doc:literal] $name:ident: $values:ident = $default:expr,)+) => {
        /// The group's knobs, in shared memory.
        #[derive(Debug)]
        #[repr(C)]
        pub struct Knobs { $(#[doc = $doc] pub $name: AtomicU64,)+ }

        impl Knobs {
            /// Every knob, in the order of [`Knobs::cells`].
            pub const ALL: &'static [Knob] = &[$(Knob {
                name: stringify!($name),
                values: Values::$values,
                default: $default,
                meaning: $doc.trim_ascii(),
            },)+];
            /// Every cell, in the order of [`Knobs::ALL`].
            pub fn cells(&self) -> [&AtomicU64; Self::ALL.len()] { [$(&self.$name,)+] }
        }
    };
}

knobs! {
    /// Limit of all processes together: resident memory, compressed memory and metadata, and what is outside
    ram: Size = UNDECIDED,
    /// Limit of each process alone
    ram_per_process: Limit = 0,
    /// What each process keeps of its memory, however much the others need
    ram_min: Limit = 0,
    /// Compressor of new pages: auto (whichever costs least time in all), lz4, zstd[:N], deflate[:N] or pz[:N]
    compressor: Codec = CODEC_AUTO,
    /// Unit of compression: larger blocks take less room, single pages come back faster
    block: Block = 0,
    /// Worker threads that compress in batches beside the program
    accel: Accel = 0,
    /// Share of --ram that the pool may take before its coldest pages go to swap, in percent
    max_pool_percent: Percent = 75,
    /// Share of that limit down to which the pool is then written back, in percent
    accept_threshold_percent: Percent = 98,
    /// Whether compressed pages may be written to swap
    writeback: Switch = ON,
    /// Whether pages that have been cold for long go to swap before the pool is full
    shrinker_enabled: Switch = OFF,
    /// Whether a page that repeats one word is stored as that word
    same_filled_pages_enabled: Switch = ON,
    /// Whether stored pages have a checksum: a damaged one ends in SIGBUS, never in wrong data
    checksum: Switch = OFF,
    /// Share of one CPU that recompresses cold pages more densely, in percent; 0: off
    densify: Share = 0,
    /// Whether compressed data is decoded and compared before it is kept
    verify_compress: Switch = OFF,
    /// Total memory that programs see: native (the machine's), limit (that of --ram) or a size
    show_memory: Shown = SHOW_NATIVE,
}

impl Knobs {
    /// Sets all of them to their defaults.
    pub fn reset(&self) {
        for (cell, knob) in self.cells().into_iter().zip(Self::ALL) {
            cell.store(knob.default, Relaxed);
        }
    }

    /// The compressor of new pages; for [`CODEC_AUTO`] the one that it begins with. `None`: the
    /// cell holds no codec.
    #[must_use]
    pub fn codec(&self) -> Option<Codec> {
        codec_of(self.compressor.load(Relaxed))
    }

    /// Bytes of memory that programs are to see; `None`: what there is.
    #[must_use]
    pub fn shown_total(&self) -> Option<u64> {
        match self.show_memory.load(Relaxed) {
            SHOW_NATIVE => None,
            SHOW_LIMIT => Some(self.ram.load(Relaxed)),
            bytes => Some(bytes),
        }
    }

    /// The codecs that [`CODEC_AUTO`] chooses from beside lz4, by density: for single pages the
    /// levels of pz, which is denser and faster than zstd; for blocks zstd, which adapts its codes
    /// to them.
    #[must_use]
    pub fn denser_codecs(&self) -> &'static [Codec] {
        match self.block.load(Relaxed) {
            0 => &DENSER_FOR_PAGES,
            _ => &[Codec::ZSTD_DEFAULT],
        }
    }
}

/// The most that [`Knobs::denser_codecs`] are.
pub const MAX_DENSER_CODECS: usize = DENSER_FOR_PAGES.len();

const DENSER_FOR_PAGES: [Codec; 3] = [
    Codec::Pz { level: 1 },
    Codec::Pz { level: 2 },
    Codec::PZ_DEFAULT,
];

/// The codec that a value of [`Values::Codec`] names; for [`CODEC_AUTO`] the one that it begins
/// with.
#[must_use]
pub fn codec_of(value: u64) -> Option<Codec> {
    if value == CODEC_AUTO {
        return Some(Codec::Lz4);
    }
    Codec::from_bits(u32::try_from(value).ok()?)
}

/// Whether a switch is on.
#[inline]
pub fn is_on(cell: &AtomicU64) -> bool {
    cell.load(Relaxed) != OFF
}

/// So many percent of `of`.
#[inline]
pub fn percent(of: u64, cell: &AtomicU64) -> u64 {
    of.saturating_mul(cell.load(Relaxed)) / 100
}
