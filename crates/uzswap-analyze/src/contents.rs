//! The contents of a process's memory, and how well they compress.
//!
//! *What*: an even choice of extents, read while the process runs; the shares of zero, same-filled
//! and incompressible pages; every codec at every block size on the rest.
//! *Invariants*: a sample is at most [`SAMPLE_BYTES`] and never written to a file.
//! *Locking*: none. A page written while it is read comes half old and half new, and compresses
//! like either.

use anyhow::{Result, ensure};
use serde::Serialize;
use uzswap_compress::Codec;
use uzswap_corpus::codecs::{self, Cell};
use uzswap_corpus::{Dump, PAGE, sample};

use crate::heap;

/// Maximum size of a sample.
pub const SAMPLE_BYTES: usize = 8 << 20;
/// Compressed size above which a page counts as incompressible: four fifths.
const MAX_COMPRESSED: usize = PAGE / 5 * 4;
/// The codecs to choose from, at the levels that are worth their time.
pub const CODECS: [Codec; 6] = [
    Codec::Lz4,
    Codec::Pz { level: 1 },
    Codec::Pz { level: 3 },
    Codec::Zstd { level: 1 },
    Codec::Zstd { level: 3 },
    Codec::Deflate { level: 1 },
];

/// Pages of a process at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Anonymous pages of the process then.
    pub anon: u64,
    /// Factor by which memory grows if every folio with a touched page comes in whole, as under
    /// uzswap.
    folios: f64,
    bytes: Vec<u8>,
}

impl Sample {
    /// Reads process `pid`, which has `anon` anonymous pages.
    ///
    /// # Errors
    /// If it is gone or may not be read.
    pub fn take(pid: u32, anon: u64) -> Result<Self> {
        let mut bytes = Vec::new();
        let taken = sample(pid, SAMPLE_BYTES, &mut bytes)?;
        Ok(Self {
            anon,
            folios: taken.spanned as f64 / taken.present.max(1) as f64,
            bytes,
        })
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes needed under uzswap, with its malloc and whole folios, per byte now.
    #[must_use]
    pub fn need(&self) -> f64 {
        heap::need(&self.bytes) * self.folios
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// What a sample holds.
#[derive(Clone, Debug, Serialize)]
pub struct Contents {
    /// Pages in the sample.
    pub pages: usize,
    /// Anonymous pages of the process when it was sampled.
    pub anon: u64,
    /// Share of zero pages.
    pub zero: f64,
    /// Share of same-filled pages, zero ones included: they take no room.
    pub same_filled: f64,
    /// Share of pages that lz4 leaves larger than four fifths.
    pub incompressible: f64,
    /// Bytes needed under uzswap per byte now.
    pub need: f64,
    /// Every codec at every block size on the other pages, with the kernel's codecs.
    pub codecs: Vec<Cell>,
    /// Whether other work took the processors away during the measurement.
    pub disturbed: bool,
}

impl Contents {
    /// Analyzes a sample.
    ///
    /// # Errors
    /// If it is empty, or a codec fails.
    pub fn of(sample: &Sample) -> Result<Self> {
        ensure!(!sample.is_empty(), "an empty sample");
        let pages = sample.len() / PAGE;
        let share = |n: usize| n as f64 / pages as f64;
        let zero = sample
            .bytes
            .chunks_exact(PAGE)
            .filter(|page| page.iter().all(|&byte| byte == 0))
            .count();
        let dump = || Dump {
            name: String::new(),
            bytes: sample.bytes.clone(),
        };
        let incompressible = codecs::nr_poor_pages(dump(), Codec::Lz4, MAX_COMPRESSED)?;
        let measured = codecs::measure(&CODECS, vec![dump()], 1)?;
        let same_filled = measured.programs.iter().map(|p| p.same_filled).sum();
        Ok(Self {
            pages,
            anon: sample.anon,
            zero: share(zero),
            same_filled: share(same_filled),
            incompressible: share(incompressible),
            need: sample.need(),
            disturbed: measured.rounds.iter().any(|round| round.disturbed),
            codecs: measured.cells,
        })
    }

    /// The measurement of `codec` on single pages, as the engine stores them.
    #[must_use]
    pub fn by_page(&self, codec: Codec) -> Option<&Cell> {
        let name = codec.to_string();
        self.codecs
            .iter()
            .find(|cell| cell.codec == name && cell.block == PAGE)
    }

    /// µs to compress and to decompress a page by `codec`, same-filled pages averaged in.
    #[must_use]
    pub fn codec_us(&self, codec: Codec) -> Option<[f64; 2]> {
        let cell = self.by_page(codec)?;
        let [compress, decompress] = [&cell.compress_us, &cell.decompress_us].map(|us| first(us));
        Some([compress, decompress].map(|us| us * (1.0 - self.same_filled)))
    }

    /// Bytes in the pool per byte of memory.
    #[must_use]
    pub fn stored(&self, codec: Codec) -> Option<f64> {
        let cell = self.by_page(codec)?;
        // A sample of same-filled pages has no block.
        let packed = cell.packed as f64 / cell.bytes.max(1) as f64;
        Some(packed.min(1.0) * (1.0 - self.same_filled))
    }
}

/// The figure of the only round.
pub(crate) fn first(rounds: &[f64]) -> f64 {
    rounds.first().copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_ratios_of_a_known_sample() {
        let mut seed = 1_u64;
        let mut noise = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed.to_be_bytes()[0]
        };
        let mut bytes = Vec::new();
        for number in 0..160_usize {
            match number % 10 {
                0 => bytes.extend([0; PAGE]),
                1 => bytes.extend([7; PAGE]),
                2 | 3 => bytes.extend((0..PAGE).map(|_| noise())),
                _ => bytes.extend((0..PAGE).map(|i| b"records look alike "[(i + number) % 19])),
            }
        }
        let contents = Contents::of(&Sample {
            anon: 999,
            folios: 1.0,
            bytes,
        })
        .unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(contents.zero, 0.1) && near(contents.same_filled, 0.2));
        assert!(
            near(contents.incompressible, 0.2),
            "{}",
            contents.incompressible
        );
        for codec in CODECS {
            // A quarter of the other pages is noise, the rest takes next to nothing.
            let stored = contents.stored(codec).unwrap();
            assert!((0.2..0.23).contains(&stored), "{codec}: {stored}");
        }
        let blocks = |codec: &str| contents.codecs.iter().filter(|c| c.codec == codec).count();
        assert_eq!(blocks("lz4"), 3, "4, 16 and 64 KiB");
        assert!(
            Contents::of(&Sample {
                anon: 0,
                folios: 1.0,
                bytes: Vec::new()
            })
            .is_err()
        );
    }
}
