//! What: the trainer of dictionaries: those pieces of some pages that most of what other pages have in common is in.
//!
//! It is shown the pages twice. First the words at every byte of them are counted, words of 8 bytes by a hash. Then the
//! pages come again in [`PIECES`] parts, and of each part the one piece is taken whose words, each once, were
//! counted most often: their counts are zero from then on, so that no other piece is taken for the same. (That is zstd's "fast
//! cover" in memory that the caller owns; a page of dictionary, of pieces and hashes of that size, is as good as four.)
//!
//! Invariants: the same pages make the same dictionary; it consists of pieces of them, and zeroes where they were too few.
//! Locking: none; `&mut self`.
//! Context: any.

use core::ptr::NonNull;

/// Bytes of a dictionary.
pub const DICTIONARY_LEN: usize = 4096;
/// Parts that the pages are to be shown in the second time.
pub const PIECES: usize = 16;
/// Bytes of a piece.
const PIECE: usize = DICTIONARY_LEN / PIECES;
/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// Words in a piece, one at each byte as far as whole.
const WORDS: usize = PIECE - WORD + 1;
/// log2 of the words that are told apart.
const BITS: u32 = 14;
/// A prime near 2^64 divided by the golden ratio, whose products' high bits are well mixed.
const MIX: u64 = 0xcf1b_bcdc_b7a5_6463;
/// What zstd would take for a dictionary with tables before it.
const MAGIC: [u8; 4] = 0xec30_a437_u32.to_le_bytes();

const _: () = assert!(WORDS <= u8::MAX as usize);

/// Makes one dictionary. Zeroed memory is one that has seen nothing.
#[derive(Debug)]
pub struct Trainer {
    counts: [u16; 1 << BITS],
    /// How often each word is in the piece that is looked at.
    within: [u8; 1 << BITS],
    content: [u8; DICTIONARY_LEN],
    /// Pieces in it, from its end.
    taken: usize,
    /// The best piece of this part, and the sum of its words' counts.
    best: [u8; PIECE],
    score: u64,
}

/// The hashes of the words at each byte of `bytes`.
fn words(bytes: &[u8]) -> impl Iterator<Item = usize> + Clone {
    bytes.windows(WORD).map(|word| {
        let word = word
            .first_chunk()
            .map_or(0, |word| u64::from_le_bytes(*word));
        (word.wrapping_mul(MIX) >> (u64::BITS - BITS)) as usize
    })
}

impl Trainer {
    /// Makes one in place.
    ///
    /// # Safety
    /// `memory` is writable for a [`Trainer`], aligned to 8, and used by nobody else as long as this is.
    pub unsafe fn init<'a>(memory: NonNull<u8>) -> &'a mut Trainer {
        // SAFETY: the caller's promise; all zeroes are a valid one.
        unsafe {
            let trainer = memory.cast::<Trainer>();
            trainer.write_bytes(0, 1);
            &mut *trainer.as_ptr()
        }
    }

    /// Counts the words of a page: the first time that it is shown.
    pub fn count(&mut self, page: &[u8]) {
        for word in words(page) {
            if let Some(count) = self.counts.get_mut(word) {
                *count = count.saturating_add(1);
            }
        }
    }

    /// Looks for the best piece in a page: the second time that it is shown.
    pub fn look(&mut self, page: &[u8]) {
        let mut score = 0;
        let leaving = words(page).map(Some);
        let leaving = core::iter::repeat_n(None, WORDS).chain(leaving);
        for (end, (entering, leaving)) in words(page).zip(leaving).enumerate() {
            if let Some(word) = leaving {
                score -= self.leave(word);
            }
            score += self.enter(entering);
            if end + 1 >= WORDS && score > self.score {
                let start = end + 1 - WORDS;
                if let Some(piece) = page.get(start..start + PIECE) {
                    self.best.copy_from_slice(piece);
                    self.score = score;
                }
            }
        }
        self.within.fill(0);
    }

    /// The piece has a word more: what its score gains.
    fn enter(&mut self, word: usize) -> u64 {
        let Some(within) = self.within.get_mut(word) else {
            return 0;
        };
        *within += 1;
        match *within {
            1 => self.counts.get(word).copied().unwrap_or(0).into(),
            _ => 0,
        }
    }

    /// The piece has a word less: what its score loses.
    fn leave(&mut self, word: usize) -> u64 {
        let Some(within) = self.within.get_mut(word) else {
            return 0;
        };
        *within -= 1;
        match *within {
            0 => self.counts.get(word).copied().unwrap_or(0).into(),
            _ => 0,
        }
    }

    /// Ends a part: takes its best piece, if it has one that earlier ones do not stand for.
    pub fn take(&mut self) {
        if self.score == 0 || self.taken == PIECES {
            return;
        }
        self.taken += 1;
        let at = DICTIONARY_LEN - self.taken * PIECE;
        if let Some(place) = self.content.get_mut(at..at + PIECE) {
            place.copy_from_slice(&self.best);
        }
        for word in words(&self.best) {
            if let Some(count) = self.counts.get_mut(word) {
                *count = 0;
            }
        }
        self.score = 0;
    }

    /// The dictionary.
    #[must_use]
    pub fn finish(&mut self) -> &[u8; DICTIONARY_LEN] {
        if self.content.starts_with(&MAGIC) {
            self.content[0] = 0;
        }
        &self.content
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "test data")]
mod tests {
    use super::*;

    fn random(x: &mut u64) -> u64 {
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        *x
    }

    /// A dictionary of the pages.
    fn train(pages: &[Vec<u8>]) -> Vec<u8> {
        let mut memory = vec![!0_u64; size_of::<Trainer>() / 8 + 1];
        // SAFETY: that much memory, aligned to 8, used by nobody else.
        let trainer = unsafe { Trainer::init(NonNull::new(memory.as_mut_ptr().cast()).unwrap()) };
        pages.iter().for_each(|page| trainer.count(page));
        for part in pages.chunks(pages.len().div_ceil(PIECES).max(1)) {
            part.iter().for_each(|page| trainer.look(page));
            trainer.take();
        }
        trainer.finish().to_vec()
    }

    fn noise(x: &mut u64, len: usize) -> Vec<u8> {
        (0..len).map(|_| random(x) as u8).collect()
    }

    /// Pages of noise in which some of `common` records lie here and there.
    fn pages(x: &mut u64, common: &[Vec<u8>], nr: usize) -> Vec<Vec<u8>> {
        let page = |_| {
            let mut page = noise(x, 4096);
            for _ in 0..4 {
                let record = &common[random(x) as usize % common.len()];
                let at = random(x) as usize % (4096 - record.len());
                page[at..at + record.len()].copy_from_slice(record);
            }
            page
        };
        (0..nr).map(page).collect()
    }

    #[test]
    fn what_pages_have_in_common_is_in_it_and_always_the_same() {
        for seed in 1..=8_u64 {
            let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            println!("seed {seed:#x}");
            let mut x = seed;
            let common: Vec<_> = (0..6).map(|_| noise(&mut x, 200)).collect();
            let pages = pages(&mut x, &common, if cfg!(miri) { 32 } else { 128 });
            let made = train(&pages);
            assert_eq!(made, train(&pages), "the same pages, another dictionary");
            let there: std::collections::HashSet<_> = words(&made).collect();
            for (nr, record) in common.iter().enumerate() {
                // Where two lie close together a piece may have parts of both.
                let missing = words(record).filter(|word| !there.contains(word)).count();
                assert!(missing < 40, "record {nr}: {missing} words are missing");
            }
            for piece in made.chunks(PIECE) {
                let of_a_page = pages
                    .iter()
                    .any(|page| page.windows(PIECE).any(|at| at == piece));
                assert!(of_a_page || piece.iter().all(|&byte| byte == 0));
            }
        }
    }

    #[test]
    fn few_pages_or_none_make_one_too() {
        assert_eq!(train(&[]), [0; DICTIONARY_LEN]);
        let mut x = 7;
        let page = noise(&mut x, 4096);
        let made = train(std::slice::from_ref(&page));
        assert!(made.starts_with(&[0; DICTIONARY_LEN - PIECE]));
        assert!(page.windows(PIECE).any(|piece| made.ends_with(piece)));
        // One word everywhere, counted more often than a count holds.
        assert_eq!(train(&vec![vec![0; 4096]; 40]), [0; DICTIONARY_LEN]);
    }

    #[test]
    fn it_never_looks_as_if_tables_came_first() {
        let mut page = vec![0; 4096];
        for at in page.chunks_mut(4) {
            at.copy_from_slice(&MAGIC);
        }
        let pages: Vec<_> = (0..PIECES)
            .map(|nr| {
                let mut page = page.clone();
                // Each has a piece of its own.
                for word in page.chunks_mut(PIECE) {
                    word[8] = nr as u8;
                }
                page
            })
            .collect();
        assert!(!train(&pages).starts_with(&MAGIC));
    }
}
