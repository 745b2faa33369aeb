//! Live knobs: what `uzswap set` changes while the processes of a group go on.
//!
//! *What*: one list, from which the shared cells, the options of `uzswap run`, what `uzswap set`
//! takes and shows, and its JSON are made, so that a new knob is one entry here.
//! *Invariants*: a cell holds a value within the bounds of its knob from before the group is
//! published. Who decides something reads it there and then; nothing is kept of it.
//! *Locking*: none; every cell is a relaxed atomic. *Context*: read by the engine anywhere, written by
//! `uzswap run` and `uzswap set`.

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
    /// Bytes; 0 only as a default: decided when the group is made.
    Size,
    /// How many workers, up to [`MAX_WORKERS`]; with [`MAPPED`] each processor has one of them.
    Accel,
}

/// Of a knob that has no default: what it is at the beginning is decided then.
pub const UNDECIDED: u64 = u64::MAX;
/// [`Values::Accel`]: most workers of a process.
pub const MAX_WORKERS: u64 = 8;
/// [`Values::Accel`]: a bit.
pub const MAPPED: u64 = 1 << 8;

/// [`Values::Codec`]: lz4, and a denser one while that saves more time than it takes.
pub const CODEC_AUTO: u64 = 0;
/// [`Values::Block`]: decided by how pages come back.
pub const BLOCK_AUTO: u64 = 15;

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
    /// What it is unless somebody says otherwise.
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
    /// Limit of each process: resident memory, compressed memory and metadata together
    ram: Size = UNDECIDED,
    /// Compressor of new pages: auto (lz4, or a denser one while that saves time), lz4, zstd[:N], deflate[:N] or pz[:N]
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
}

impl Knobs {
    /// Sets all of them to their defaults.
    pub fn reset(&self) {
        for (cell, knob) in self.cells().into_iter().zip(Self::ALL) {
            cell.store(knob.default, Relaxed);
        }
    }

    /// The compressor of new pages, of [`CODEC_AUTO`] the one that it begins with, if the cell holds one.
    #[must_use]
    pub fn codec(&self) -> Option<Codec> {
        codec_of(self.compressor.load(Relaxed))
    }

    /// What [`CODEC_AUTO`] goes over to: for single pages pz, which is denser than zstd, and faster; for blocks zstd, which adapts its codes to them.
    #[must_use]
    pub fn denser_codec(&self) -> Codec {
        match self.block.load(Relaxed) {
            0 => Codec::PZ_DEFAULT,
            _ => Codec::ZSTD_DEFAULT,
        }
    }
}

/// The codec that a value of [`Values::Codec`] names; of [`CODEC_AUTO`] the one that it begins with.
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

/// The part of `of` that a percentage says.
#[inline]
pub fn percent(of: u64, cell: &AtomicU64) -> u64 {
    of.saturating_mul(cell.load(Relaxed)) / 100
}
