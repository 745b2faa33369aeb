//! *What*: prefix codes from static tables, and the four bit streams (lanes) of coded symbols.
//!
//! Decoding a symbol waits for the length of the one before. Four lanes, of which symbol i uses the
//! one with number i modulo 4, let the processor work on four symbols at a time. Lanes 0 and 2 are
//! read forwards from the start of their part, lanes 1 and 3 backwards from its end, so that one
//! number, the split, locates all four.
//!
//! *Invariants*: each code is complete: its lengths are 1 to [`MAX_BITS`] and fill the code space
//! exactly, so any bits decode (checked at compile time). Reads past the end give zeros.
//! *Locking*: none. *Context*: any.

use crate::format::{EXTRAS, NR_STREAMS};
use crate::streams::capacities;

/// Bits of the longest code.
const MAX_BITS: u32 = 10;
/// Bit streams.
const LANES: usize = 4;
/// Symbols of a lane for one refill: 56 bits are always there after one.
const ROUNDS: usize = 5;
const BLOCK: usize = LANES * ROUNDS;
/// Bytes that one lane writes for a page, at most.
const LANE_BYTES: usize = 1280;
/// Every Nth symbol is counted to choose a table: 0.1 % of the ratio is lost.
const fn sampled(pages: usize) -> usize {
    if pages == 1 { 7 } else { 12 }
}

/// By the next [`MAX_BITS`] bits: the symbol, and the length of its code above it.
type Decoder = [u16; 1 << MAX_BITS];
/// By symbol: the code in the uppermost bits, its length in the lowest, to append it quickly.
type Encoder = [u64; 256];

/// The codes of a format version, `NR` for each stream. Aligned, so that no row of `costs` crosses
/// a cache line: 1 % of the time.
#[repr(align(64))]
struct Codes<const NR: usize> {
    decoders: [[Decoder; NR]; NR_STREAMS],
    encoders: [[Encoder; NR]; NR_STREAMS],
    /// By symbol: the length of its code in each table, to be summed for all tables at a time.
    costs: [[[u16; NR]; 256]; NR_STREAMS],
}

// The lengths are part of the format: a change is a new version. Made by `examples/train.rs`.
static OF_PAGES: Codes<8> = Codes::made(include_bytes!("page_code_lengths.txt"));
static OF_BLOCKS: Codes<15> = Codes::made(include_bytes!("block_code_lengths.txt"));

impl<const NR: usize> Codes<NR> {
    /// From a line of 256 code lengths for each table, those of the first stream first.
    const fn made(lengths: &[u8]) -> Self {
        let mut codes = Codes {
            decoders: [[[0; 1 << MAX_BITS]; NR]; NR_STREAMS],
            encoders: [[[0; 256]; NR]; NR_STREAMS],
            costs: [[[0; NR]; 256]; NR_STREAMS],
        };
        assert!(lengths.len() == NR_STREAMS * NR * 257);
        let mut i = 0;
        while i < NR_STREAMS * NR {
            let (stream, code) = (i / NR, i % NR);
            let Some(lengths) = lengths.split_at(i * 257).1.first_chunk() else {
                return codes;
            };
            codes.decoders[stream][code] = decoder(lengths);
            codes.encoders[stream][code] = encoder(lengths);
            let mut symbol = 0;
            while symbol < 256 {
                codes.costs[stream][symbol][code] = length(lengths, symbol);
                symbol += 1;
            }
            i += 1;
        }
        codes
    }

    /// See [`choose`].
    #[inline(always)]
    fn choose(&self, stream: usize, symbols: &[u8], step: usize) -> usize {
        let Some(costs) = self.costs.get(stream) else {
            return 0;
        };
        // Few symbols of 10 bits at most: no sum overflows, which `choose` asserts.
        let mut sums = [0_u16; NR];
        for &symbol in symbols.iter().step_by(step) {
            for (sum, cost) in sums.iter_mut().zip(&costs[usize::from(symbol)]) {
                *sum = sum.wrapping_add(*cost);
            }
        }
        let mut best = (0, symbols.len().div_ceil(step) * 8);
        for (i, &sum) in sums.iter().enumerate() {
            if usize::from(sum) < best.1 {
                best = (i + 1, usize::from(sum));
            }
        }
        best.0
    }
}

/// The table of a stream that the header names `code`; `None` if there is none.
#[inline(always)]
fn table_of<const PAGES: usize, T>(
    of_pages: &'static [[T; 8]; NR_STREAMS],
    of_blocks: &'static [[T; 15]; NR_STREAMS],
    stream: usize,
    code: usize,
) -> Option<&'static T> {
    let code = code.checked_sub(1)?;
    if PAGES == 1 {
        of_pages.get(stream)?.get(code)
    } else {
        of_blocks.get(stream)?.get(code)
    }
}

/// The length of a symbol's code: a digit, `a` for ten.
const fn length(lengths: &[u8; 256], symbol: usize) -> u16 {
    let digit = lengths[symbol];
    let bits = if digit == b'a' {
        10
    } else {
        digit.wrapping_sub(b'0') as u16
    };
    assert!(bits >= 1 && bits as u32 <= MAX_BITS);
    bits
}

/// The canonical code: ordered by length, then by symbol; its first bit is the lowest.
const fn encoder(lengths: &[u8; 256]) -> Encoder {
    let mut encoder = [0; 256];
    let mut next = 0_u32;
    let mut bits = 1;
    while bits <= MAX_BITS {
        let mut symbol = 0;
        while symbol < 256 {
            if length(lengths, symbol) as u32 == bits {
                let code = next.reverse_bits() >> (32 - bits);
                encoder[symbol] = (code as u64) << (64 - bits) | bits as u64;
                next += 1;
            }
            symbol += 1;
        }
        next <<= 1;
        bits += 1;
    }
    assert!(next == 2 << MAX_BITS, "a code that is not complete");
    encoder
}

#[expect(clippy::cast_possible_truncation, reason = "a symbol is a byte")]
const fn decoder(lengths: &[u8; 256]) -> Decoder {
    let encoder = encoder(lengths);
    let mut decoder = [0; 1 << MAX_BITS];
    let mut symbol = 0;
    while symbol < 256 {
        let bits = encoder[symbol] as u16 & 15;
        let code = (encoder[symbol] >> (64 - bits)) as usize;
        let mut at = code;
        while at < 1 << MAX_BITS {
            decoder[at] = symbol as u16 | bits << 8;
            at += 1 << bits;
        }
        symbol += 1;
    }
    decoder
}

/// The table that codes `symbols` of a stream best, as the header names it; 0: plain bytes.
#[inline]
pub(crate) fn choose<const PAGES: usize>(stream: usize, symbols: &[u8]) -> usize {
    const { assert!(capacities(PAGES)[EXTRAS] / sampled(PAGES) * MAX_BITS as usize <= 0xffff) };
    if PAGES == 1 {
        OF_PAGES.choose(stream, symbols, sampled(PAGES))
    } else {
        OF_BLOCKS.choose(stream, symbols, sampled(PAGES))
    }
}

/// What one lane has written: forwards from the start of its bytes if its number is even, backwards
/// from their end if it is odd.
#[derive(Clone, Copy)]
struct Lane<const PAGES: usize> {
    bytes: [[u8; LANE_BYTES]; PAGES],
    len: usize,
    /// Its uppermost `nr_pending` bits are not written yet: at most 7 after a flush, 57 before.
    pending: u64,
    nr_pending: u32,
}

/// Writes coded symbols.
pub(crate) struct Lanes<const PAGES: usize>([Lane<PAGES>; LANES]);

impl<const PAGES: usize> Lane<PAGES> {
    /// Appends a code of an [`Encoder`]. Its length stays in the bits below the pending ones.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the length is in the lowest bits"
    )]
    fn put(&mut self, code: u64) {
        self.pending = self.pending.wrapping_shr(code as u32) | code;
        self.nr_pending += code as u32;
    }

    /// Writes the whole bytes of `pending`. `None` if there is no room.
    #[inline(always)]
    fn flush(&mut self, number: usize) -> Option<()> {
        let nr = self.nr_pending;
        let word = self.pending.wrapping_shr(64 - nr);
        let bytes = self.bytes.as_flattened_mut();
        if number.is_multiple_of(2) {
            let to = bytes.get_mut(self.len..)?.first_chunk_mut()?;
            *to = word.to_le_bytes();
        } else {
            let end = bytes.len().checked_sub(self.len)?;
            let to = bytes.get_mut(..end)?.last_chunk_mut()?;
            *to = word.to_be_bytes();
        }
        self.len += (nr / 8) as usize;
        self.nr_pending = nr % 8;
        Some(())
    }

    /// The bytes, including the last, padded one.
    fn finish(&mut self, number: usize) -> Option<&[u8]> {
        let padding = self.nr_pending.next_multiple_of(8) - self.nr_pending;
        self.put(u64::from(padding));
        self.flush(number)?;
        let bytes = self.bytes.as_flattened();
        if number.is_multiple_of(2) {
            bytes.get(..self.len)
        } else {
            bytes.get(bytes.len().checked_sub(self.len)?..)
        }
    }
}

impl<const PAGES: usize> Lanes<PAGES> {
    pub(crate) const fn new() -> Self {
        Lanes(
            [Lane {
                bytes: [[0; LANE_BYTES]; PAGES],
                len: 0,
                pending: 0,
                nr_pending: 0,
            }; LANES],
        )
    }

    /// Empties all lanes.
    pub(crate) fn clear(&mut self) {
        for lane in &mut self.0 {
            (lane.len, lane.pending, lane.nr_pending) = (0, 0, 0);
        }
    }

    /// Writes `symbols` in the code of that name. `None` if a lane is full.
    #[inline]
    pub(crate) fn write(&mut self, stream: usize, code: usize, symbols: &[u8]) -> Option<()> {
        let encoder = table_of::<PAGES, _>(&OF_PAGES.encoders, &OF_BLOCKS.encoders, stream, code)?;
        let mut blocks = symbols.chunks_exact(BLOCK);
        for block in &mut blocks {
            for (number, lane) in self.0.iter_mut().enumerate() {
                for round in 0..ROUNDS {
                    lane.put(encoder[usize::from(block[round * LANES + number])]);
                }
                lane.flush(number)?;
            }
        }
        for (i, &symbol) in blocks.remainder().iter().enumerate() {
            self.0[i % LANES].put(encoder[usize::from(symbol)]);
        }
        for (number, lane) in self.0.iter_mut().enumerate() {
            lane.flush(number)?;
        }
        Some(())
    }

    /// Copies the lanes to the start of `to`. Returns the split and the length; `None` if it does
    /// not fit.
    pub(crate) fn finish(&mut self, to: &mut [u8]) -> Option<(usize, usize)> {
        let mut at = 0;
        let mut split = 0;
        for (number, lane) in self.0.iter_mut().enumerate() {
            let from = lane.finish(number)?;
            to.get_mut(at..at + from.len())?.copy_from_slice(from);
            at += from.len();
            if number == 1 {
                split = at;
            }
        }
        Some((split, at))
    }
}

/// Reads what [`Lanes`] wrote.
pub(crate) struct Reader<'a> {
    coded: &'a [u8],
    split: usize,
    /// Bits that each lane has read.
    bits: [usize; LANES],
}

impl<'a> Reader<'a> {
    /// `None` if the split is outside.
    pub(crate) fn new(coded: &'a [u8], split: usize) -> Option<Reader<'a>> {
        (split <= coded.len()).then_some(Reader {
            coded,
            split,
            bits: [0; LANES],
        })
    }

    /// The next bits of a lane, at least 57; zeros past the end.
    #[inline(always)]
    fn refill(&self, lane: usize) -> u64 {
        let bytes = self.bits[lane] / 8;
        let word = if lane.is_multiple_of(2) {
            let start = if lane == 0 { 0 } else { self.split } + bytes;
            match self.coded.get(start..).and_then(<[u8]>::first_chunk) {
                Some(word) => u64::from_le_bytes(*word),
                None => padded(self.coded.get(start..).unwrap_or(&[]).iter()),
            }
        } else {
            let end = if lane == 1 {
                self.split
            } else {
                self.coded.len()
            }
            .wrapping_sub(bytes);
            match self.coded.get(..end).and_then(<[u8]>::last_chunk) {
                Some(word) => u64::from_be_bytes(*word),
                None => padded(self.coded.get(..end).unwrap_or(&[]).iter().rev()),
            }
        };
        word >> (self.bits[lane] % 8)
    }

    /// Reads `symbols.len()` symbols of the code of that name. `None` if there is no such.
    #[inline]
    pub(crate) fn read<const PAGES: usize>(
        &mut self,
        stream: usize,
        code: usize,
        symbols: &mut [u8],
    ) -> Option<()> {
        let decoder = table_of::<PAGES, _>(&OF_PAGES.decoders, &OF_BLOCKS.decoders, stream, code)?;
        let mut blocks = symbols.chunks_exact_mut(BLOCK);
        for block in &mut blocks {
            self.rounds(decoder, block, ROUNDS);
        }
        let rest = blocks.into_remainder();
        let nr_rounds = rest.len() / LANES;
        self.rounds(decoder, rest, nr_rounds);
        for (lane, symbol) in rest.iter_mut().skip(nr_rounds * LANES).enumerate() {
            let mut word = self.refill(lane);
            *symbol = next(decoder, &mut word, &mut self.bits[lane]);
        }
        Some(())
    }

    /// Reads `nr` symbols from each lane, at most [`ROUNDS`].
    #[inline(always)]
    fn rounds(&mut self, decoder: &Decoder, block: &mut [u8], nr: usize) {
        let mut words = [
            self.refill(0),
            self.refill(1),
            self.refill(2),
            self.refill(3),
        ];
        let mut bits = self.bits;
        for symbols in block.chunks_exact_mut(LANES).take(nr) {
            for (lane, symbol) in symbols.iter_mut().enumerate() {
                *symbol = next(decoder, &mut words[lane], &mut bits[lane]);
            }
        }
        self.bits = bits;
    }

    /// Whether exactly everything was read.
    pub(crate) fn finished(&self) -> bool {
        let bytes = self.bits.map(|bits| bits.div_ceil(8));
        bytes[0] + bytes[1] == self.split && bytes[2] + bytes[3] == self.coded.len() - self.split
    }
}

/// Up to eight bytes as a little-endian word.
#[cold]
fn padded<'a>(bytes: impl Iterator<Item = &'a u8>) -> u64 {
    bytes
        .take(8)
        .enumerate()
        .fold(0, |word, (i, &byte)| word | u64::from(byte) << (8 * i))
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low byte is meant")]
fn next(decoder: &Decoder, word: &mut u64, bits: &mut usize) -> u8 {
    let entry = decoder[*word as usize & ((1 << MAX_BITS) - 1)];
    *word >>= entry >> 8;
    *bits += usize::from(entry >> 8);
    entry as u8
}
