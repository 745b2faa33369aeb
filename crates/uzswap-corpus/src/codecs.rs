//! Codecs measured on pages of real programs: ratio and time.
//!
//! *What*: every codec at every block size on every program's pages, in interleaved rounds.
//! *Invariants*: all codecs and block sizes see the same bytes: same-filled pages are left out
//! first, then consecutive pages make blocks. Each codec's output at each block size is
//! decompressed and compared once for each program.
//! *Locking*: none, one thread. Times are that thread's processor time, which other work disturbs
//! less.
//! *Context*: the bench and analyze commands.

mod blocks;
mod contestant;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use uzswap_compress::Codec;

use crate::Dump;
use crate::interrupt;
use crate::progress::Progress;
use crate::rounds::{Calibration, Round};
pub use blocks::Pages;
pub use contestant::{Contestant, Implementation, Objects, processor_time};

/// Codecs that the suite `codecs` measures by default.
pub const CODECS: [&str; 12] = [
    "lz4",
    "pz:1",
    "pz:2",
    "pz:3",
    "zstd:-5",
    "zstd:-1",
    "zstd:1",
    "zstd:3",
    "zstd:5",
    "zstd:6",
    "deflate:1",
    "deflate:6",
];
/// Block sizes, bytes.
pub const BLOCKS: [usize; 3] = [4 << 10, 16 << 10, 64 << 10];

/// The result of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The programs and their pages.
    pub programs: Vec<Program>,
    /// The rounds.
    pub rounds: Vec<Round>,
    /// One for each codec, block size and program, in the order measured.
    pub cells: Vec<Cell>,
}

/// One program of the corpus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Pages that were compressed.
    pub pages: usize,
    /// Same-filled pages, which were left out.
    pub same_filled: usize,
}

/// One codec at one block size on one program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Name of the codec.
    pub codec: String,
    /// Bytes of a block.
    pub block: usize,
    /// Name of the program.
    pub program: String,
    /// Uncompressed size of all blocks, bytes.
    pub bytes: usize,
    /// Compressed size, bytes; a block that does not shrink is kept raw.
    pub compressed: usize,
    /// The same with each object rounded up to a size class.
    pub packed: usize,
    /// Processor time to compress 4 KiB in each round, µs.
    pub compress_us: Vec<f64>,
    /// Processor time to decompress 4 KiB in each round, µs.
    pub decompress_us: Vec<f64>,
}

/// Measures `codecs` and the kernel's on `dumps`; ends early, with complete rounds, when
/// interrupted.
///
/// # Errors
/// If a codec does not restore its input, or no round was completed.
pub fn measure(codecs: &[Codec], dumps: Vec<Dump>, rounds: usize) -> Result<Measured> {
    let all: Vec<Pages> = dumps.into_iter().map(Pages::of).collect();
    let mut measured = Measured {
        programs: all
            .iter()
            .map(|pages| Program {
                name: pages.name.clone(),
                pages: pages.len(),
                same_filled: pages.same_filled,
            })
            .collect(),
        rounds: Vec::new(),
        cells: Vec::new(),
    };
    let mut contestants = contestants(codecs)?;
    let mut objects = Objects::default();
    let progress = Progress::new(rounds * all.len() * contestants.len(), "passes");
    let mut calibration = Calibration::start();
    for round in 0..rounds {
        let mut cells = Vec::new();
        for pages in &all {
            progress.at(&format!("round {} of {rounds}, {}", round + 1, pages.name));
            for contestant in &mut contestants {
                if interrupt::happened() {
                    ensure!(
                        !measured.rounds.is_empty(),
                        "interrupted before a round was complete"
                    );
                    return Ok(measured);
                }
                cells.push(cell(contestant, pages, &mut objects, round == 0)?);
                progress.step();
            }
        }
        measured.rounds.push(calibration.round());
        add(&mut measured.cells, cells);
    }
    Ok(measured)
}

/// The number of pages of `dump`, same-filled ones apart, that `codec` leaves larger than `max`
/// bytes.
///
/// # Errors
/// If the codec does not restore its input.
pub fn nr_poor_pages(dump: Dump, codec: Codec, max: usize) -> Result<usize> {
    let mut objects = Objects::default();
    let mut contestant = Contestant::new(Implementation::Ours(codec), BLOCKS[0])?;
    contestant.pass(&Pages::of(dump), &mut objects)?;
    Ok(objects
        .lengths()
        .filter(|len| len.is_none_or(|len| len > max))
        .count())
}

/// Each of `codecs` at every block size, and the kernel's at the page size.
fn contestants(codecs: &[Codec]) -> Result<Vec<Contestant>> {
    let kernels =
        [Implementation::KernelLz4, Implementation::KernelZstd].map(|which| (which, BLOCKS[0]));
    let ours = BLOCKS
        .into_iter()
        .flat_map(|block| codecs.iter().map(move |&codec| (codec, block)))
        .map(|(codec, block)| (Implementation::Ours(codec), block));
    kernels
        .into_iter()
        .chain(ours)
        .map(|(which, block)| Contestant::new(which, block))
        .collect()
}

/// One pass over a program's pages.
fn cell(
    contestant: &mut Contestant,
    pages: &Pages,
    objects: &mut Objects,
    verify: bool,
) -> Result<Cell> {
    let pass = contestant.pass(pages, objects)?;
    if verify {
        contestant.verify(pages, objects)?;
    }
    let per_page = |seconds: f64| seconds * 1e6 / (pass.bytes as f64 / 4096.0);
    Ok(Cell {
        codec: contestant.name(),
        block: contestant.block(),
        program: pages.name.clone(),
        bytes: pass.bytes,
        compressed: pass.compressed,
        packed: pass.packed,
        compress_us: vec![per_page(pass.compress_s)],
        decompress_us: vec![per_page(pass.decompress_s)],
    })
}

/// Adds a round, whose cells are in the same order every time.
fn add(all: &mut Vec<Cell>, round: Vec<Cell>) {
    if all.is_empty() {
        *all = round;
        return;
    }
    for (cell, new) in all.iter_mut().zip(round) {
        cell.compress_us.extend(new.compress_us);
        cell.decompress_us.extend(new.decompress_us);
    }
}
