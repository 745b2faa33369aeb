//! What is in the memory of a process, and how well it compresses.
//!
//! *What*: an even choice of its extents, read while it runs; shares of pages that are zero, repeat a word or do not compress; every
//! codec at every block size on the rest.
//! *Invariants*: it holds at most [`SAMPLE`] bytes of anybody's memory, and writes none of it to a file.
//! *Locking*: none: a page that is written while it is read comes half old, half new, which compresses like either.

use anyhow::{Result, ensure};
use serde::Serialize;
use uzswap_compress::Codec;
use uzswap_corpus::codecs::{self, Cell};
use uzswap_corpus::{Dump, sample};

use crate::heap;

/// Bytes to look at.
pub const SAMPLE: usize = 8 << 20;
const PAGE: usize = 4096;
/// A page that takes more than this is better kept as it is: four fifths.
const POOR: usize = PAGE / 5 * 4;
/// What is tried: what `--compressor` takes, at the levels that are worth their time.
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
    /// Anonymous pages that it had then.
    pub anon: u64,
    /// How many times its memory it would have if every folio of which it touched a page came whole, as they do under uzswap.
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
        let taken = sample(pid, SAMPLE, &mut bytes)?;
        Ok(Self {
            anon,
            folios: taken.spanned as f64 / taken.present.max(1) as f64,
            bytes,
        })
    }

    /// What was read.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes that were read.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that are needed under uzswap, whose malloc is another one and whose folios come whole, for each byte that is there.
    #[must_use]
    pub fn need(&self) -> f64 {
        heap::need(&self.bytes) * self.folios
    }

    /// Whether nothing was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// What a sample holds.
#[derive(Clone, Debug, Serialize)]
pub struct Contents {
    /// Pages that were looked at.
    pub pages: usize,
    /// Anonymous pages that the process had when they were read.
    pub anon: u64,
    /// Part of them that is zero.
    pub zero: f64,
    /// Part of them that repeats one word, the zero ones among them: they take no room.
    pub same_filled: f64,
    /// Part of them that lz4 does not bring below four fifths.
    pub incompressible: f64,
    /// Bytes that are needed under uzswap for each byte that is there.
    pub need: f64,
    /// Every codec at every block size on the pages that are not same-filled; the kernel's beside them.
    pub codecs: Vec<Cell>,
    /// Whether other work took the processors away while that was measured.
    pub disturbed: bool,
}

impl Contents {
    /// Looks at a sample.
    ///
    /// # Errors
    /// If it is empty, or a codec fails.
    pub fn of(sample: &Sample) -> Result<Self> {
        ensure!(!sample.is_empty(), "an empty sample");
        let pages = sample.len() / PAGE;
        let part = |n: usize| n as f64 / pages as f64;
        let zero = sample
            .bytes
            .chunks_exact(PAGE)
            .filter(|page| page.iter().all(|&byte| byte == 0))
            .count();
        let dump = || Dump {
            name: String::new(),
            bytes: sample.bytes.clone(),
        };
        let poor = codecs::nr_poor_pages(dump(), Codec::Lz4, POOR)?;
        let measured = codecs::measure(&CODECS, vec![dump()], 1)?;
        let same_filled = measured.programs.iter().map(|p| p.same_filled).sum();
        Ok(Self {
            pages,
            anon: sample.anon,
            zero: part(zero),
            same_filled: part(same_filled),
            incompressible: part(poor),
            need: sample.need(),
            disturbed: measured.rounds.iter().any(|round| round.disturbed),
            codecs: measured.cells,
        })
    }

    /// `codec` on single pages, as the engine stores them.
    #[must_use]
    pub fn by_page(&self, codec: Codec) -> Option<&Cell> {
        let name = codec.to_string();
        self.codecs
            .iter()
            .find(|cell| cell.codec == name && cell.block == PAGE)
    }

    /// Bytes that a byte of memory takes in the pool.
    #[must_use]
    pub fn stored(&self, codec: Codec) -> Option<f64> {
        let cell = self.by_page(codec)?;
        // Nothing but same-filled pages is no block at all.
        let packed = cell.packed as f64 / cell.bytes.max(1) as f64;
        Some(packed.min(1.0) * (1.0 - self.same_filled))
    }
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
            // A quarter of what is not same-filled is noise, the rest next to nothing.
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
