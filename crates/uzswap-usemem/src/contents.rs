//! The contents of the pages beside number and stamp: one word, made-up records, or pages of real
//! programs.
//!
//! *Invariants*: a page's contents follow from its number, the same for as long as the program
//! runs.
//! *Locking*: none; nothing changes after [`Contents::of`].
//! *Context*: worker threads.

use crate::corpus::Corpus;
use crate::options::Options;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Words of a page.
pub const PAGE_WORDS: usize = PAGE / 8;
/// Number of template pages: neighbours differ, and all stay in the processor's cache.
const NR_TEMPLATES: usize = 64;
/// TestCorpus-up pages are made of records of this many bytes.
const RECORD_SIZE: usize = 64;

/// The contents of all pages.
#[derive(Debug)]
pub enum Contents {
    /// Each repeats one word.
    OneWord,
    /// Template pages of records.
    Templates(Vec<u64>),
    /// Pages of real programs.
    Corpus(Corpus),
}

/// The contents of one page.
#[derive(Debug)]
pub enum Page<'a> {
    /// One word, repeated.
    OneWord,
    /// Records.
    Template(&'a [u64]),
    /// A page of a real program.
    Real(Real<'a>),
}

/// A page of a real program.
#[derive(Clone, Copy, Debug)]
pub struct Real<'a> {
    /// Its bytes; a seal replaces the first word.
    pub bytes: &'a [u8],
    /// Checksum of the rest.
    pub sum: u32,
}

impl Real<'_> {
    /// Checksum of all but the first word of a page.
    pub fn sum_of(page: &[u8]) -> u32 {
        crc32fast::hash(&page[8..])
    }
}

impl Contents {
    /// The contents that the options ask for.
    ///
    /// # Errors
    /// With one line for the user, if a corpus cannot be read.
    pub fn of(options: &Options) -> Result<Self, String> {
        Ok(match &options.corpus {
            Some(dir) => Self::Corpus(Corpus::open(dir, options.seed)?),
            None if options.same_filled => Self::OneWord,
            None => Self::Templates(templates(options)),
        })
    }

    /// The contents of `page`.
    pub fn page(&self, page: u64) -> Page<'_> {
        let page = usize::try_from(page).expect("64-bit");
        match self {
            Self::OneWord => Page::OneWord,
            Self::Templates(words) => {
                let from = page % NR_TEMPLATES * PAGE_WORDS;
                Page::Template(&words[from..from + PAGE_WORDS])
            }
            Self::Corpus(corpus) => corpus.page(page).map_or(Page::OneWord, Page::Real),
        }
    }
}

/// splitmix64.
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Number of random bytes at the start of each record for lz4 to reach about `compressibility`. It
/// spends five more bytes on a record, for the match with the previous one.
fn random_bytes(compressibility: f64) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and 64"
    )]
    let bytes = (64.0 / compressibility - 5.0).clamp(1.0, 64.0) as usize;
    bytes
}

/// Template pages: records of the same structure, each with some random bytes.
fn templates(options: &Options) -> Vec<u64> {
    let random = random_bytes(options.compressibility);
    let mut words = Vec::new();
    for page in 0..NR_TEMPLATES as u64 {
        let mut rng = mix(options.seed << 8 ^ page);
        let structure: [u8; RECORD_SIZE] =
            std::array::from_fn(|i| mix(rng ^ (i as u64 / 8)).to_le_bytes()[i % 8]);
        for _ in 0..PAGE / RECORD_SIZE {
            let mut record = structure;
            for byte in &mut record[..random] {
                rng = mix(rng);
                *byte = rng.to_le_bytes()[0];
            }
            words.extend(
                record
                    .chunks_exact(8)
                    .map(|c| u64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]])),
            );
        }
    }
    words
}
