//! What: prefix codes from static tables, and the four bit streams that coded symbols are dealt to.
//! Invariants: each of [`tables`]'s codes is complete: its lengths are 1 to [`MAX_BITS`] and fill the code space exactly, so that
//! any bits decode to something (checked when this is compiled). Reading past the end gives zeros.
//! Locking: none.
//! Context: any.
//!
//! Decoding one symbol waits for the length of the one before. Four streams, of which symbol i takes the
//! one with number i modulo 4, let the processor work on four at once. The first and the third are read forwards from the start of their
//! part, the second and the fourth backwards from its end: so one number, the split, places all four.

use crate::format::NR_STREAMS;
use crate::tables::{LENGTHS, NR_CODES};

/// The longest code.
const MAX_BITS: u32 = 10;
/// Bit streams.
const LANES: usize = 4;
/// Symbols of a lane for one refill: 56 bits are always there after one.
const ROUNDS: usize = 5;
const BLOCK: usize = LANES * ROUNDS;
/// One symbol of so many is looked at to choose a table: none of the ratio is lost.
const SAMPLED: usize = 3;
/// Room for what one lane writes.
const LANE_BYTES: usize = 1280;

/// By the next [`MAX_BITS`] bits: the symbol, and the length of its code above it.
type Decoder = [u16; 1 << MAX_BITS];
/// By symbol: the code, and its length above it.
type Encoder = [u16; 256];

static DECODERS: [[Decoder; NR_CODES]; NR_STREAMS] = {
    let mut decoders = [[[0; 1 << MAX_BITS]; NR_CODES]; NR_STREAMS];
    let mut i = 0;
    while i < NR_STREAMS * NR_CODES {
        decoders[i / NR_CODES][i % NR_CODES] = decoder(LENGTHS[i / NR_CODES][i % NR_CODES]);
        i += 1;
    }
    decoders
};

static ENCODERS: [[Encoder; NR_CODES]; NR_STREAMS] = {
    let mut encoders = [[[0; 256]; NR_CODES]; NR_STREAMS];
    let mut i = 0;
    while i < NR_STREAMS * NR_CODES {
        encoders[i / NR_CODES][i % NR_CODES] = encoder(LENGTHS[i / NR_CODES][i % NR_CODES]);
        i += 1;
    }
    encoders
};

/// By symbol: the length of its code in each table, to sum up for all tables at once.
static COSTS: [[[u16; NR_CODES]; 256]; NR_STREAMS] = {
    let mut costs = [[[0; NR_CODES]; 256]; NR_STREAMS];
    let mut stream = 0;
    while stream < NR_STREAMS {
        let mut symbol = 0;
        while symbol < 256 {
            let mut code = 0;
            while code < NR_CODES {
                costs[stream][symbol][code] = length(LENGTHS[stream][code], symbol);
                code += 1;
            }
            symbol += 1;
        }
        stream += 1;
    }
    costs
};

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

/// The canonical code: shorter before longer, then by symbol; its first bit is the lowest.
#[expect(
    clippy::cast_possible_truncation,
    reason = "10 bits of code, 4 of length"
)]
const fn encoder(lengths: &[u8; 256]) -> Encoder {
    let mut encoder = [0; 256];
    let mut next = 0_u32;
    let mut bits = 1;
    while bits <= MAX_BITS {
        let mut symbol = 0;
        while symbol < 256 {
            if length(lengths, symbol) as u32 == bits {
                let code = next.reverse_bits() >> (32 - bits);
                encoder[symbol] = (code | bits << MAX_BITS) as u16;
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
        let code = (encoder[symbol] & ((1 << MAX_BITS) - 1)) as usize;
        let bits = encoder[symbol] >> MAX_BITS;
        let mut at = code;
        while at < 1 << MAX_BITS {
            decoder[at] = symbol as u16 | bits << 8;
            at += 1 << bits;
        }
        symbol += 1;
    }
    decoder
}

/// The table that codes `symbols` of a stream best, as the header names it. Zero is none of them: bytes as they are.
#[inline]
pub(crate) fn choose(stream: usize, symbols: &[u8]) -> usize {
    let Some(costs) = COSTS.get(stream) else {
        return 0;
    };
    // Of `len / SAMPLED` symbols, each 10 bits at most: far from overflow.
    let mut sums = [0_u16; NR_CODES];
    for &symbol in symbols.iter().step_by(SAMPLED) {
        for (sum, cost) in sums.iter_mut().zip(&costs[usize::from(symbol)]) {
            *sum = sum.wrapping_add(*cost);
        }
    }
    let mut best = (0, symbols.len().div_ceil(SAMPLED) * 8);
    for (i, &sum) in sums.iter().enumerate() {
        if usize::from(sum) < best.1 {
            best = (i + 1, usize::from(sum));
        }
    }
    best.0
}

/// What one lane has written.
#[derive(Clone, Copy)]
struct Lane {
    bytes: [u8; LANE_BYTES],
    len: usize,
    /// Bits not written yet, at most 7 between refills, and their number.
    pending: u64,
    nr_pending: u32,
}

/// Writes coded symbols.
pub(crate) struct Lanes([Lane; LANES]);

impl Lane {
    #[inline(always)]
    fn put(&mut self, code: u16) {
        self.pending |= u64::from(code & ((1 << MAX_BITS) - 1)) << self.nr_pending;
        self.nr_pending += u32::from(code >> MAX_BITS);
    }

    /// Writes whole bytes out. `None` if there is no room.
    #[inline(always)]
    fn flush(&mut self) -> Option<()> {
        let to = self.bytes.get_mut(self.len..self.len + 8)?;
        to.copy_from_slice(&self.pending.to_le_bytes());
        self.len += (self.nr_pending / 8) as usize;
        self.pending >>= self.nr_pending & !7;
        self.nr_pending &= 7;
        Some(())
    }

    /// The bytes, with the last bits in one more.
    fn finish(&mut self) -> Option<&[u8]> {
        self.nr_pending = self.nr_pending.next_multiple_of(8);
        self.flush()?;
        self.bytes.get(..self.len)
    }
}

impl Lanes {
    pub(crate) const fn new() -> Lanes {
        Lanes(
            [Lane {
                bytes: [0; LANE_BYTES],
                len: 0,
                pending: 0,
                nr_pending: 0,
            }; LANES],
        )
    }

    /// Forgets what was written.
    pub(crate) fn clear(&mut self) {
        for lane in &mut self.0 {
            (lane.len, lane.pending, lane.nr_pending) = (0, 0, 0);
        }
    }

    /// Writes `symbols` in the code of that name. `None` if a lane is full.
    #[inline]
    pub(crate) fn write(&mut self, stream: usize, code: usize, symbols: &[u8]) -> Option<()> {
        let encoder = ENCODERS.get(stream)?.get(code.checked_sub(1)?)?;
        let mut blocks = symbols.chunks_exact(BLOCK);
        for block in &mut blocks {
            for (number, lane) in self.0.iter_mut().enumerate() {
                for round in 0..ROUNDS {
                    lane.put(encoder[usize::from(block[round * LANES + number])]);
                }
                lane.flush()?;
            }
        }
        for (i, &symbol) in blocks.remainder().iter().enumerate() {
            self.0[i % LANES].put(encoder[usize::from(symbol)]);
        }
        for lane in &mut self.0 {
            lane.flush()?;
        }
        Some(())
    }

    /// Puts the lanes into the start of `to`. Returns the split and the length, `None` if it does not fit.
    pub(crate) fn finish(&mut self, to: &mut [u8]) -> Option<(usize, usize)> {
        let mut at = 0;
        let mut split = 0;
        for (number, lane) in self.0.iter_mut().enumerate() {
            let from = lane.finish()?;
            let to = to.get_mut(at..at + from.len())?;
            if number.is_multiple_of(2) {
                to.copy_from_slice(from);
            } else {
                for (to, from) in to.iter_mut().zip(from.iter().rev()) {
                    *to = *from;
                }
            }
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
    /// `None` if the split is not inside.
    pub(crate) fn new(coded: &'a [u8], split: usize) -> Option<Reader<'a>> {
        (split <= coded.len()).then_some(Reader {
            coded,
            split,
            bits: [0; LANES],
        })
    }

    /// The next bits of a lane: 57 at least, zeros beyond the end.
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
    pub(crate) fn read(&mut self, stream: usize, code: usize, symbols: &mut [u8]) -> Option<()> {
        let decoder = DECODERS.get(stream)?.get(code.checked_sub(1)?)?;
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

    /// Reads `nr` symbols, five at most, from each lane.
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

    /// Whether everything was read, and no more.
    pub(crate) fn finished(&self) -> bool {
        let bytes = self.bits.map(|bits| bits.div_ceil(8));
        bytes[0] + bytes[1] == self.split && bytes[2] + bytes[3] == self.coded.len() - self.split
    }
}

/// Up to eight bytes as a word, the first one lowest.
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
