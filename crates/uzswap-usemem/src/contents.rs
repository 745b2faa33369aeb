//! What the pages of the memory hold, beside number and stamp: one word, made-up records, or pages of real programs.
//!
//! *Invariants*: what a page holds follows from its number, the same for as long as the program runs.
//! *Locking*: none; nothing changes after [`Contents::of`]. *Context*: worker threads.

use crate::corpus::Corpus;
use crate::options::Options;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Words of a page.
pub const PAGE_WORDS: usize = PAGE / 8;
/// Enough that neighbours differ, few enough to stay in the processor's cache.
const NR_TEMPLATES: usize = 64;
/// Made-up pages are made of records of this many bytes.
const RECORD: usize = 64;

/// What all pages hold.
#[derive(Debug)]
pub enum Contents {
    /// Each repeats one word.
    OneWord,
    /// Records, as many pages of them as there are templates.
    Templates(Vec<u64>),
    /// What real programs have in memory.
    Corpus(Corpus),
}

/// What one page holds.
#[derive(Debug)]
pub enum Page<'a> {
    /// One word, over and over.
    OneWord,
    /// Records.
    Template(&'a [u64]),
    /// What a real program has in memory.
    Real(Real<'a>),
}

/// A page of a real program.
#[derive(Clone, Copy, Debug)]
pub struct Real<'a> {
    /// All of it; number and stamp take the place of the first word.
    pub bytes: &'a [u8],
    /// What the rest is known by.
    pub sum: u32,
}

impl Real<'_> {
    /// What all but the first word of a page is known by.
    pub fn sum_of(page: &[u8]) -> u32 {
        crc32fast::hash(&page[8..])
    }
}

impl Contents {
    /// What is asked for.
    ///
    /// # Errors
    /// With one line for the user, if that is a corpus that cannot be had.
    pub fn of(options: &Options) -> Result<Self, String> {
        Ok(match &options.corpus {
            Some(dir) => Self::Corpus(Corpus::open(dir, options.seed)?),
            None if options.same_filled => Self::OneWord,
            None => Self::Templates(templates(options)),
        })
    }

    /// What `page` holds.
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

/// Scatters its argument, as splitmix64 does.
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Random bytes at the start of each record, so that lz4 comes near `compressibility`: it spends
/// about five bytes more on a record, for the match with the one before.
fn random_bytes(compressibility: f64) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and 64"
    )]
    let bytes = (64.0 / compressibility - 5.0).clamp(1.0, 64.0) as usize;
    bytes
}

/// Template pages: structured records, each with some bytes that are its own.
fn templates(options: &Options) -> Vec<u64> {
    let random = random_bytes(options.compressibility);
    let mut words = Vec::new();
    for page in 0..NR_TEMPLATES as u64 {
        let mut rng = mix(options.seed << 8 ^ page);
        let structure: [u8; RECORD] =
            std::array::from_fn(|i| mix(rng ^ (i as u64 / 8)).to_le_bytes()[i % 8]);
        for _ in 0..PAGE / RECORD {
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
