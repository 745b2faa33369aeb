//! *What*: a bitmap in memory that the caller reserves.
//!
//! *Invariants*: bits are only ever set. *Locking*: none; each word is atomic. *Context*: any.

use uzswap_sync::primitive::{AtomicU64, Ordering};

/// A bitmap whose bits are only ever set.
#[derive(Debug)]
pub struct Bitmap {
    words: *const AtomicU64,
}

impl Bitmap {
    /// Bytes for `nr` bits.
    #[must_use]
    pub const fn len_for(nr: usize) -> usize {
        nr.div_ceil(64) * size_of::<u64>()
    }

    /// A bitmap on zero-filled memory.
    ///
    /// # Safety
    /// `words` is 8-byte aligned, zero-filled, long enough for every bit that is accessed, and used
    /// by nothing else while the bitmap lives.
    #[must_use]
    pub const unsafe fn new(words: *mut u8) -> Self {
        Self {
            words: words.cast(),
        }
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: the caller of `new` promised memory for every bit that is accessed.
        unsafe { &*self.words.add(index) }
    }

    /// Whether bit `nr` is set.
    #[inline]
    #[must_use]
    pub fn get(&self, nr: usize) -> bool {
        self.word(nr / 64).load(Ordering::Relaxed) >> (nr % 64) & 1 != 0
    }

    /// Sets bit `nr`; `true` if it was clear.
    pub fn set(&self, nr: usize) -> bool {
        let bit = 1 << (nr % 64);
        self.word(nr / 64).fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// The first set bit at or after `from` and below `end`.
    #[must_use]
    pub fn next_set(&self, from: usize, end: usize) -> Option<usize> {
        let mut at = from;
        while at < end {
            let rest = self.word(at / 64).load(Ordering::Relaxed) >> (at % 64);
            if rest != 0 {
                let found = at + rest.trailing_zeros() as usize;
                return (found < end).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn finds_the_next_set_bit_and_no_other() {
        let mut memory = vec![0_u64; Bitmap::len_for(300) / 8];
        // SAFETY: 300 bits of zeroed memory that outlive the bitmap.
        let bits = unsafe { Bitmap::new(memory.as_mut_ptr().cast()) };
        assert!(bits.set(5) && !bits.set(5) && bits.set(64) && bits.set(299));
        assert_eq!(bits.next_set(0, 300), Some(5));
        assert_eq!(bits.next_set(6, 300), Some(64));
        assert_eq!(bits.next_set(65, 300), Some(299));
        assert_eq!(bits.next_set(65, 299), None);
        assert!(bits.get(64) && !bits.get(63));
    }
}
