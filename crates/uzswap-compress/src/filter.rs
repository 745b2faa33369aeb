//! What: filters: other ways to write the words of a page, in which codecs find more where those are numbers; and which of them a block is
//! compressed in.
//! Invariants: every filter can be undone, page by page; what a filter's number says never changes, objects have it.
//! Locking: none.
//! Context: any.
//!
//! Two are worth it (docs/notes/codecs.md). *Planes*: all first bytes of the words of 64 bits, then all second ones, and so on: of
//! pointers, small integers and floating-point numbers some planes repeat one byte. *Differences*: each word less the one before:
//! of what is counted or sorted.

use crate::error::{CompressError, DecompressError};
use core::arch::x86_64::{
    __m128i, _mm_loadu_si128, _mm_setzero_si128, _mm_storeu_si128, _mm_unpackhi_epi8,
    _mm_unpacklo_epi8,
};

/// Bytes that [`Filter::apply`] goes by at a time, at most.
pub(crate) const PAGE: usize = 4096;
/// Where [`Filter::undo`] puts a page aside.
pub(crate) type Scratch = [u8; PAGE];
/// Words that [`riffle`] works on, in bytes.
const GROUP: usize = 128;
const WORD: usize = size_of::<u64>();

/// How the words of a page are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Filter {
    /// As they are.
    Plain = 0,
    /// By the place of a byte in its word.
    Planes = 1,
    /// As differences.
    Differences = 2,
}

impl Filter {
    /// All that change anything.
    pub(crate) const ALL: [Filter; 2] = [Filter::Planes, Filter::Differences];

    pub(crate) const fn from_u8(number: u8) -> Option<Filter> {
        match number {
            0 => Some(Filter::Plain),
            1 => Some(Filter::Planes),
            2 => Some(Filter::Differences),
            _ => None,
        }
    }

    /// Writes `from` to `to`, which is as long, in parts of `part` bytes: a multiple of 128, as the lengths are of it.
    pub(crate) fn apply(self, part: usize, from: &[u8], to: &mut [u8]) {
        for (from, to) in from.chunks_exact(part).zip(to.chunks_exact_mut(part)) {
            match self {
                Filter::Plain => to.copy_from_slice(from),
                Filter::Planes => split(from, to),
                Filter::Differences => {
                    let mut last = 0;
                    for (from, to) in words(from).zip(to.chunks_exact_mut(WORD)) {
                        to.copy_from_slice(&from.wrapping_sub(last).to_le_bytes());
                        last = from;
                    }
                }
            }
        }
    }

    /// Makes the pages of `pages` what they were before [`Filter::apply`], in parts of a page.
    pub(crate) fn undo(self, pages: &mut [u8], scratch: &mut Scratch) {
        for page in pages.chunks_exact_mut(PAGE) {
            match self {
                Filter::Plain => {}
                Filter::Planes => {
                    scratch.copy_from_slice(page);
                    join(scratch, page);
                }
                Filter::Differences => {
                    let mut sum = 0_u64;
                    for word in page.chunks_exact_mut(WORD) {
                        let bytes = word.first_chunk().copied().unwrap_or_default();
                        sum = sum.wrapping_add(u64::from_le_bytes(bytes));
                        word.copy_from_slice(&sum.to_le_bytes());
                    }
                }
            }
        }
    }
}

/// A codec whose blocks of several pages are filtered.
pub(crate) trait Filtered {
    /// The smallest block that is: in smaller ones the choice takes too much of the time.
    const LEAST: usize;
    /// What a filter is chosen by: so much of a block, in so many bytes at each place.
    const SAMPLE: usize;
    const PART: usize;
    /// A filter must make the sample smaller by this part of it.
    const LEAST_GAIN: usize;

    /// What the sample would become, in bytes. `scratch` has as many bytes.
    fn size_of(&mut self, sample: &[u8], scratch: &mut [u8]) -> usize;

    /// Compresses what may be filtered.
    fn compress(&mut self, block: &[u8], dst: &mut [u8]) -> Result<usize, CompressError>;
}

/// Compresses a block of several pages behind a byte that names its filter: the one that seems to make it smallest. `room` is for the
/// filtered block; if that does not fit, there is no filter.
pub(crate) fn compress<C: Filtered>(
    codec: &mut C,
    room: &mut [u8],
    src: &[u8],
    dst: &mut [u8],
) -> Result<usize, CompressError> {
    let (name, dst) = dst.split_first_mut().ok_or(CompressError::Poor)?;
    let whole = src.len() >= C::LEAST && src.len().is_multiple_of(PAGE);
    let filter = if whole && room.len() >= src.len() {
        choose(codec, room, src)
    } else {
        Filter::Plain
    };
    *name = filter as u8;
    let filtered = match (filter, room.get_mut(..src.len())) {
        (Filter::Plain, _) | (_, None) => src,
        (_, Some(room)) => {
            filter.apply(PAGE, src, room);
            room
        }
    };
    codec.compress(filtered, dst).map(|size| size + 1)
}

/// The filter that makes a sample of `src` smallest.
fn choose<C: Filtered>(codec: &mut C, room: &mut [u8], src: &[u8]) -> Filter {
    let Some((sample, rest)) = room.split_at_mut_checked(C::SAMPLE) else {
        return Filter::Plain;
    };
    let Some((filtered, scratch)) = rest.split_at_mut_checked(C::SAMPLE) else {
        return Filter::Plain;
    };
    let every = src.len() / (C::SAMPLE / C::PART);
    for (part, from) in sample.chunks_exact_mut(C::PART).zip(src.chunks(every)) {
        // From the middle: objects often begin with what is not like the rest.
        let middle = (every - C::PART) / 2 / WORD * WORD;
        if let Some(from) = from.get(middle..).and_then(|from| from.get(..C::PART)) {
            part.copy_from_slice(from);
        }
    }
    let plain = codec.size_of(sample, scratch);
    let mut best = (plain - plain / C::LEAST_GAIN, Filter::Plain);
    for filter in Filter::ALL {
        filter.apply(C::PART, sample, filtered);
        let size = codec.size_of(filtered, scratch);
        if size < best.0 {
            best = (size, filter);
        }
    }
    best.1
}

/// Decompresses with `decode` what [`compress`] made of a block, of which `first` bytes are wanted as they were before it was filtered.
pub(crate) fn decompress(
    decode: impl FnOnce(&[u8], &mut [u8]) -> Result<(), DecompressError>,
    scratch: &mut Scratch,
    src: &[u8],
    first: usize,
    dst: &mut [u8],
) -> Result<(), DecompressError> {
    let (&name, src) = src.split_first().ok_or(DecompressError::Corrupt)?;
    let filter = Filter::from_u8(name).ok_or(DecompressError::Corrupt)?;
    if filter != Filter::Plain && !dst.len().is_multiple_of(PAGE) {
        return Err(DecompressError::Corrupt);
    }
    decode(src, dst)?;
    let first = first.next_multiple_of(PAGE).min(dst.len());
    filter.undo(
        dst.get_mut(..first).ok_or(DecompressError::Corrupt)?,
        scratch,
    );
    Ok(())
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|&word| u64::from_le_bytes(word))
}

type Lines = [__m128i; 8];

/// Takes the two halves of 128 bytes, and a byte of each in turns. As the number of a byte has seven bits, it goes where that says
/// when its highest bit has become the lowest: four times, and what was sixteen words is eight planes; three times more, and
/// it is words again.
#[inline(always)]
fn riffle(lines: Lines) -> Lines {
    let mut out = lines;
    for i in 0..4 {
        // SAFETY: SSE2 is part of x86-64.
        unsafe {
            out[2 * i] = _mm_unpacklo_epi8(lines[i], lines[i + 4]);
            out[2 * i + 1] = _mm_unpackhi_epi8(lines[i], lines[i + 4]);
        }
    }
    out
}

/// Where the lines of each group are in words, and where in planes.
fn groups(len: usize) -> impl Iterator<Item = ([usize; 8], [usize; 8])> {
    (0..len / GROUP).map(move |group| {
        let in_words = core::array::from_fn(|i| group * GROUP + i * size_of::<__m128i>());
        let in_planes = core::array::from_fn(|i| i * (len / WORD) + group * size_of::<__m128i>());
        (in_words, in_planes)
    })
}

/// Moves lines from their places `at` in `from` to those `then` in `to`, with `times` riffles between.
#[inline(always)]
fn move_lines(from: &[u8], at: [usize; 8], times: usize, to: &mut [u8], then: [usize; 8]) {
    // SAFETY: SSE2 is part of x86-64.
    let mut lines = [unsafe { _mm_setzero_si128() }; 8];
    for (line, at) in lines.iter_mut().zip(at) {
        if let Some(bytes) = from.get(at..).and_then(<[u8]>::first_chunk::<16>) {
            // SAFETY: sixteen bytes.
            *line = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
        }
    }
    for _ in 0..times {
        lines = riffle(lines);
    }
    for (line, at) in lines.into_iter().zip(then) {
        if let Some(bytes) = to.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<16>) {
            // SAFETY: sixteen bytes.
            unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), line) };
        }
    }
}

fn split(words: &[u8], planes: &mut [u8]) {
    for (in_words, in_planes) in groups(words.len()) {
        move_lines(words, in_words, 4, planes, in_planes);
    }
}

fn join(planes: &[u8], words: &mut [u8]) {
    for (in_words, in_planes) in groups(planes.len()) {
        move_lines(planes, in_planes, 3, words, in_words);
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "test data")]
mod tests {
    use super::*;

    #[test]
    fn planes_are_the_bytes_of_words_by_their_place() {
        for len in [128, 1024, PAGE] {
            let words: Vec<u8> = (0..len).map(|i| (i * 7 + i / 256) as u8).collect();
            let mut planes = vec![0; len];
            Filter::Planes.apply(len, &words, &mut planes);
            for (i, &byte) in words.iter().enumerate() {
                assert_eq!(
                    planes[i % WORD * (len / WORD) + i / WORD],
                    byte,
                    "{i} of {len}"
                );
            }
        }
    }

    #[test]
    fn a_filter_is_undone_whatever_the_words() {
        let mut x = 0x5eed_u64;
        let pages: Vec<u8> = (0..3 * PAGE)
            .map(|i| {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if i % 3 == 0 { (x >> 33) as u8 } else { 0xff }
            })
            .collect();
        for filter in Filter::ALL.into_iter().chain([Filter::Plain]) {
            assert_eq!(Filter::from_u8(filter as u8), Some(filter));
            let mut filtered = vec![0; pages.len()];
            filter.apply(PAGE, &pages, &mut filtered);
            assert_eq!(filtered == pages, filter == Filter::Plain);
            filter.undo(&mut filtered, &mut [0; PAGE]);
            assert!(filtered == pages, "{filter:?}");
        }
        assert_eq!(Filter::from_u8(3), None);
    }
}
