//! What: the memory that compressing and decompressing work in, and the assembly of an object from its parts.
//! Invariants: any content of a [`Workspace`] is a valid one; nothing is carried from one page to the next.
//! Locking: `&mut`: one thread at a time, by the owner.
//! Context: any.

use crate::code::{Lanes, Reader, choose};
use crate::expand::expand;
use crate::format::{COUNT_END, EXTRAS, HEADER, Header, LITERALS, NR_STREAMS, TOKENS};
use crate::parse::{self, MAX_LIMIT, Search, Table, parse};
use crate::streams::{CAPACITIES, Streams};
use crate::{Level, PAGE};

/// What [`crate::compress`] and [`crate::decompress`] work in: some 20 KiB. All zeros are a valid one.
#[repr(C, align(64))]
pub struct Workspace {
    table: Table,
    streams: Streams,
    lanes: Lanes,
}

const _: () = assert!(size_of::<Workspace>() <= 20 << 10);

impl Default for Workspace {
    fn default() -> Self {
        Self::new()
    }
}

impl core::fmt::Debug for Workspace {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Workspace").finish_non_exhaustive()
    }
}

struct FastSearch;
impl Search for FastSearch {
    const HASHED: u32 = 7;
    const SKIP: u32 = 2;
    const BACK: bool = false;
    const LAZY: bool = false;
}

struct DenseSearch;
impl Search for DenseSearch {
    const HASHED: u32 = 6;
    const SKIP: u32 = 2;
    const BACK: bool = false;
    const LAZY: bool = false;
}

struct BalancedSearch;
impl Search for BalancedSearch {
    const HASHED: u32 = 5;
    const SKIP: u32 = 6;
    const BACK: bool = true;
    const LAZY: bool = true;
}

impl Workspace {
    /// A new one: for a static or a box. It is large for a stack; in raw memory that is all zeros one can be taken
    /// to be there.
    #[must_use]
    pub const fn new() -> Workspace {
        Workspace {
            table: parse::EMPTY,
            streams: Streams::new(),
            lanes: Lanes::new(),
        }
    }

    pub(crate) fn compress(
        &mut self,
        level: Level,
        page: &[u8; PAGE],
        object: &mut [u8],
    ) -> Option<usize> {
        let room = object.len().checked_sub(HEADER)?;
        self.parse(level, page, room)?;
        let streams = self.streams.filled();
        let mut header = Header {
            split: 0,
            counts: streams.map(<[u8]>::len),
            codes: [0; NR_STREAMS],
        };
        if header.counts[EXTRAS] >= COUNT_END {
            return None;
        }
        for (number, stream) in streams.iter().enumerate() {
            let coded = match level {
                Level::Fast => false,
                Level::Dense => number == LITERALS,
                Level::Balanced => true,
            };
            if coded {
                header.codes[number] = choose(number, stream);
            }
        }
        let mut at = HEADER;
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
        *object.first_chunk_mut()? = header.to_bytes();
        Some(at)
    }

    fn parse(&mut self, level: Level, page: &[u8; PAGE], room: usize) -> Option<()> {
        let (table, streams) = (&mut self.table, &mut self.streams);
        match level {
            Level::Fast => parse::<FastSearch>(table, streams, page, room.min(MAX_LIMIT)),
            Level::Dense => parse::<DenseSearch>(table, streams, page, MAX_LIMIT),
            Level::Balanced => parse::<BalancedSearch>(table, streams, page, MAX_LIMIT),
        }
    }

    pub(crate) fn decompress(&mut self, object: &[u8], page: &mut [u8; PAGE]) -> Option<()> {
        let header = Header::from_bytes(*object.first_chunk()?)?;
        let mut rest = object.get(HEADER..)?;
        let mut plain: [&[u8]; NR_STREAMS] = [&[]; NR_STREAMS];
        for (stream, plain) in plain.iter_mut().enumerate() {
            if header.codes[stream] == 0 {
                (*plain, rest) = rest.split_at_checked(header.counts[stream])?;
            }
        }
        if header.codes == [0; NR_STREAMS] {
            let [tokens, extras, literals] = plain;
            return (rest.is_empty() && header.split == 0)
                .then(|| expand(tokens, extras, literals, page))?;
        }
        let mut reader = Reader::new(rest, header.split)?;
        for stream in [TOKENS, EXTRAS, LITERALS] {
            let (code, count) = (header.codes[stream], header.counts[stream]);
            if code != 0 {
                if count > CAPACITIES[stream] {
                    return None;
                }
                reader.read(stream, code, self.streams.buffer(stream).get_mut(..count)?)?;
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
        expand(tokens, extras, literals, page)
    }

    /// The tokens, extras and literals of a page, to make code tables from.
    #[doc(hidden)]
    pub fn take_apart(&mut self, level: Level, page: &[u8; PAGE]) -> [&[u8]; NR_STREAMS] {
        match self.parse(level, page, MAX_LIMIT) {
            Some(()) => self.streams.filled(),
            None => [&[]; NR_STREAMS],
        }
    }
}
