//! *What*: filters: reversible transforms of a page's words, after which numbers compress better;
//! and the choice of a block's filter.
//!
//! Two are worth it (docs/notes/codecs.md). *Planes*: the first bytes of all 64-bit words, then the
//! second ones, and so on: pointers, small integers and floating-point numbers have planes that
//! repeat one byte. *Differences*: each word minus the one before: counted or sorted data.
//!
//! *Invariants*: every filter can be undone, page by page. A filter's number is stored in objects
//! and never changes meaning.
//! *Locking*: none. *Context*: any.

use crate::PAGE;
use crate::error::{CompressError, DecompressError};
use core::arch::x86_64::{
    __m128i, _mm_loadu_si128, _mm_setzero_si128, _mm_storeu_si128, _mm_unpackhi_epi8,
    _mm_unpacklo_epi8,
};

/// Holds a page for [`Filter::undo`].
pub(crate) type Scratch = [u8; PAGE];
/// Bytes that [`riffle`] works on.
const GROUP: usize = 128;
const WORD: usize = size_of::<u64>();

/// A way of writing the words of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Filter {
    /// Unchanged.
    Plain = 0,
    /// In planes of bytes.
    Planes = 1,
    /// As differences of words.
    Differences = 2,
}

impl Filter {
    /// All but [`Filter::Plain`].
    pub(crate) const ALL: [Filter; 2] = [Filter::Planes, Filter::Differences];

    pub(crate) const fn from_u8(number: u8) -> Option<Filter> {
        match number {
            0 => Some(Filter::Plain),
            1 => Some(Filter::Planes),
            2 => Some(Filter::Differences),
            _ => None,
        }
    }

    /// Writes `from`, filtered in parts of `part` bytes, to `to`. Both lengths are equal and a
    /// multiple of `part`, which is a multiple of 128.
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

    /// Undoes [`Filter::apply`] by parts of a page.
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

/// A codec that filters blocks of several pages.
pub(crate) trait Filtered {
    /// The smallest block that is filtered, in bytes.
    const MIN_LEN: usize;
    /// Bytes of a block that its filter is chosen by.
    const SAMPLE: usize;
    /// Bytes of each part of the sample.
    const PART: usize;
    /// A filter must make the sample smaller by this fraction of it: 1/N.
    const MIN_GAIN_DIVISOR: usize;

    /// Compressed size of the sample, in bytes. `scratch` is as long as the sample.
    fn size_of(&mut self, sample: &[u8], scratch: &mut [u8]) -> usize;

    /// Compresses a block, filtered or not.
    fn compress(&mut self, block: &[u8], dst: &mut [u8]) -> Result<usize, CompressError>;
}

/// Compresses a block of several pages, after a byte that names its filter: the one that makes a
/// sample smallest. `room` is for the filtered block; if it does not fit, there is no filter.
pub(crate) fn compress<C: Filtered>(
    codec: &mut C,
    room: &mut [u8],
    src: &[u8],
    dst: &mut [u8],
) -> Result<usize, CompressError> {
    let (name, dst) = dst.split_first_mut().ok_or(CompressError::Poor)?;
    let whole = src.len() >= C::MIN_LEN && src.len().is_multiple_of(PAGE);
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
        // From the middle: the beginning is often unlike the rest.
        let middle = (every - C::PART) / 2 / WORD * WORD;
        if let Some(from) = from.get(middle..).and_then(|from| from.get(..C::PART)) {
            part.copy_from_slice(from);
        }
    }
    let plain = codec.size_of(sample, scratch);
    let mut best = (plain - plain / C::MIN_GAIN_DIVISOR, Filter::Plain);
    for filter in Filter::ALL {
        filter.apply(C::PART, sample, filtered);
        let size = codec.size_of(filtered, scratch);
        if size < best.0 {
            best = (size, filter);
        }
    }
    best.1
}

/// Decompresses what [`compress`] made, with `decode`, and undoes the filter in the `first` bytes.
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

/// Interleaves the bytes of the two halves of 128 bytes: a byte's seven-bit index is rotated left
/// by one. Four times make eight planes of sixteen words, three times more make words again.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "indices below 8, of arrays of 8")]
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

/// Offsets of each group's lines in words, and in planes.
fn groups(len: usize) -> impl Iterator<Item = ([usize; 8], [usize; 8])> {
    (0..len / GROUP).map(move |group| {
        let in_words = core::array::from_fn(|i| group * GROUP + i * size_of::<__m128i>());
        let in_planes = core::array::from_fn(|i| i * (len / WORD) + group * size_of::<__m128i>());
        (in_words, in_planes)
    })
}

/// Moves lines from offsets `at` in `from` to offsets `then` in `to`, riffled `times` times.
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
