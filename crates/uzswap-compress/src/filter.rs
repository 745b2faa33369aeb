//! What: filters: other ways to write the words of a page, in which zstd finds more where those are numbers.
//! Invariants: every filter can be undone, page by page; what a filter's number says never changes, objects have it.
//! Locking: none.
//! Context: any.
//!
//! Two are worth it (docs/notes/codecs.md). *Planes*: all first bytes of the words of 64 bits, then all second ones, and so on: of
//! pointers, small integers and floating-point numbers some planes repeat one byte. *Differences*: each word less the one before:
//! of what is counted or sorted.

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
