//! *What*: the workspace of compressing and decompressing, and the assembly of an object.
//! *Invariants*: any contents of a [`Workspace`] are valid; nothing carries over from one block to
//! the next.
//! *Locking*: `&mut`: one thread at a time. *Context*: any.

use crate::code::{Lanes, Reader, choose};
use crate::expand::expand;
use crate::format::{EXTRAS, Header, LITERALS, NR_STREAMS, TOKENS, header_len};
use crate::parse::{Search, Table, parse};
use crate::streams::{STEP, Streams, capacities};
use crate::{Level, PAGE};

/// The workspace of [`crate::compress`] and [`crate::decompress`]: [`Workspace`] for single pages,
/// [`BlockWorkspace`] for longer blocks. All zeros are valid.
#[repr(C, align(64))]
pub struct Memory<const PAGES: usize, const HASHES: usize> {
    streams: Streams<PAGES>,
    table: Table<HASHES>,
    lanes: Lanes<PAGES>,
}

/// For single pages: 19 KiB.
pub type Workspace = Memory<1, 2048>;

/// For blocks of more than a page, up to [`crate::MAX_BLOCK`]: 254 KiB, touched as far as the
/// blocks need. Decompressing touches only the first [`BlockWorkspace::TO_DECOMPRESS`] bytes.
pub type BlockWorkspace = Memory<16, 8192>;

/// Entries of the table for samples: those are short, and a small table is cleared faster.
const SAMPLE_HASHES: usize = 512;

const _: () = assert!(size_of::<Workspace>() <= 20 << 10);
const _: () = assert!(size_of::<BlockWorkspace>() <= 260 << 10);
const _: () = assert!(16 * PAGE == crate::MAX_BLOCK);

impl<const PAGES: usize, const HASHES: usize> Default for Memory<PAGES, HASHES> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const PAGES: usize, const HASHES: usize> core::fmt::Debug for Memory<PAGES, HASHES> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Workspace").finish_non_exhaustive()
    }
}

struct FastSearch;
impl Search for FastSearch {
    const HASHED: u32 = 6;
    const REPEAT: u32 = 4;
    const SKIP: usize = 16;
    const THOROUGH: bool = false;
}

struct DenseSearch;
impl Search for DenseSearch {
    const HASHED: u32 = 6;
    const REPEAT: u32 = 3;
    const SKIP: usize = 16;
    const THOROUGH: bool = false;
}

/// Dense, for blocks: there is more to find, so fewer positions are skipped.
struct BlockSearch;
impl Search for BlockSearch {
    const HASHED: u32 = 6;
    const REPEAT: u32 = 3;
    const SKIP: usize = 4;
    const THOROUGH: bool = false;
}

struct BalancedSearch;
impl Search for BalancedSearch {
    const HASHED: u32 = 5;
    const REPEAT: u32 = 3;
    const SKIP: usize = 1;
    const THOROUGH: bool = true;
}

impl<const PAGES: usize, const HASHES: usize> Memory<PAGES, HASHES> {
    /// Bytes from the start that decompressing touches.
    pub const TO_DECOMPRESS: usize = core::mem::offset_of!(Self, table);

    /// A new one, for a static or a box: it is large for a stack. Zeroed memory is one, too.
    #[must_use]
    pub const fn new() -> Self {
        Memory {
            streams: Streams::new(),
            table: [0; HASHES],
            lanes: Lanes::new(),
        }
    }

    /// Whether it takes blocks of that length.
    const fn takes(len: usize) -> bool {
        if PAGES == 1 {
            len == PAGE
        } else {
            len > PAGE && len <= PAGES * PAGE
        }
    }

    pub(crate) fn compress(
        &mut self,
        level: Level,
        block: &[u8],
        object: &mut [u8],
    ) -> Option<usize> {
        self.parse(level, block)?;
        let streams = self.streams.filled();
        let mut header = Header {
            split: 0,
            counts: streams.map(<[u8]>::len),
            codes: [0; NR_STREAMS],
        };
        for (number, stream) in streams.iter().enumerate() {
            let coded = match level {
                Level::Fast => false,
                // A single page's other streams are too short to be worth the time.
                Level::Dense => PAGES > 1 || number == LITERALS,
                Level::Balanced => true,
            };
            if coded {
                header.codes[number] = choose::<PAGES>(number, stream);
            }
        }
        let mut at = header_len(PAGES);
        for (stream, &code) in streams.iter().zip(&header.codes) {
            if code == 0 {
                object
                    .get_mut(at..at + stream.len())?
                    .copy_from_slice(stream);
                at += stream.len();
            }
        }
        if header.codes != [0; NR_STREAMS] {
            self.lanes.clear();
            for (number, (stream, &code)) in streams.iter().zip(&header.codes).enumerate() {
                if code != 0 {
                    self.lanes.write(number, code, stream)?;
                }
            }
            let (split, len) = self.lanes.finish(object.get_mut(at..)?)?;
            header.split = split;
            at += len;
        }
        header.put::<PAGES>(object)?;
        Some(at)
    }

    fn parse(&mut self, level: Level, block: &[u8]) -> Option<()> {
        if !Self::takes(block.len()) {
            return None;
        }
        let (table, streams) = (&mut self.table, &mut self.streams);
        // SAFETY: the length, as just checked.
        unsafe {
            match level {
                Level::Fast => parse::<FastSearch, PAGES, HASHES>(table, streams, block),
                Level::Dense if PAGES == 1 => {
                    parse::<DenseSearch, PAGES, HASHES>(table, streams, block);
                }
                Level::Dense => parse::<BlockSearch, PAGES, HASHES>(table, streams, block),
                Level::Balanced => parse::<BalancedSearch, PAGES, HASHES>(table, streams, block),
            }
        }
        Some(())
    }

    pub(crate) fn decompress(&mut self, object: &[u8], block: &mut [u8]) -> Option<()> {
        if !Self::takes(block.len()) {
            return None;
        }
        let header = Header::get::<PAGES>(object, block.len())?;
        let mut rest = object.get(header_len(PAGES)..)?;
        let mut plain: [&[u8]; NR_STREAMS] = [&[]; NR_STREAMS];
        for (stream, plain) in plain.iter_mut().enumerate() {
            if header.codes[stream] == 0 {
                (*plain, rest) = rest.split_at_checked(header.counts[stream])?;
            }
        }
        if header.codes == [0; NR_STREAMS] {
            let [tokens, extras, literals] = plain;
            return (rest.is_empty() && header.split == 0)
                .then(|| expand::<PAGES>(tokens, extras, literals, block))?;
        }
        let mut reader = Reader::new(rest, header.split)?;
        for stream in [TOKENS, EXTRAS, LITERALS] {
            let (code, count) = (header.codes[stream], header.counts[stream]);
            if code != 0 {
                if count > capacities(PAGES)[stream] {
                    return None;
                }
                let symbols = self.streams.buffer(stream).get_mut(..count)?;
                reader.read::<PAGES>(stream, code, symbols)?;
                self.streams.counts[stream] = count;
            }
        }
        if !reader.finished() {
            return None;
        }
        let coded = self.streams.filled();
        let [tokens, extras, literals] = core::array::from_fn(|stream| {
            if header.codes[stream] == 0 {
                plain[stream]
            } else {
                coded[stream]
            }
        });
        expand::<PAGES>(tokens, extras, literals, block)
    }

    /// The tokens, extras and literals of a block, to make code tables from.
    #[doc(hidden)]
    pub fn take_apart(&mut self, level: Level, block: &[u8]) -> [&[u8]; NR_STREAMS] {
        match self.parse(level, block) {
            Some(()) => self.streams.filled(),
            None => [&[]; NR_STREAMS],
        }
    }
}

impl BlockWorkspace {
    /// Estimates the compressed size of `sample`, of up to [`crate::MAX_BLOCK`] bytes.
    pub fn estimate(&mut self, sample: &[u8]) -> usize {
        let fits = (STEP..=crate::MAX_BLOCK).contains(&sample.len());
        let Some(table) = self
            .table
            .first_chunk_mut::<SAMPLE_HASHES>()
            .filter(|_| fits)
        else {
            return sample.len();
        };
        // SAFETY: the length, as just checked.
        unsafe {
            parse::<BlockSearch, 16, SAMPLE_HASHES>(table, &mut self.streams, sample);
        }
        let [tokens, extras, literals] = self.streams.counts;
        tokens + extras + literals * 4 / 5
    }
}
