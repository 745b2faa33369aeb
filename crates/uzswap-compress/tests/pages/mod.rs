//! Generated blocks of the kinds that real memory holds, and aligned memory for workspaces.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::cast_possible_truncation, reason = "test data")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};

/// Bytes aligned to 64.
pub struct Memory {
    ptr: *mut u8,
    len: usize,
}

pub type Block = Memory;

impl Memory {
    pub fn new(len: usize) -> Memory {
        let layout = Layout::from_size_align(len, 64).expect("layout");
        // SAFETY: no test asks for nothing.
        let ptr = unsafe { alloc_zeroed(layout) };
        if ptr.is_null() {
            handle_alloc_error(layout);
        }
        Memory { ptr, len }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let layout = Layout::from_size_align(self.len, 64).expect("layout");
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.ptr, layout) };
    }
}

impl Deref for Memory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `new` allocated that many bytes, initialized, and this value owns them.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.len) }
    }
}

/// xorshift64*.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

pub const KINDS: [&str; 9] = [
    "usemem", "zero", "records", "pointers", "text", "floats", "quarter", "sparse", "random",
];

/// A block of `len` bytes of one of [`KINDS`], the same for the same seed.
pub fn block(kind: &str, len: usize, seed: u64) -> Block {
    let mut block = Memory::new(len);
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    match kind {
        "zero" => {}
        // Records of 64 bytes that share all but their first 11: what `uzswap-usemem` fills with.
        "usemem" => {
            let shared: [u8; 64] = std::array::from_fn(|_| rng.next() as u8);
            for record in block.chunks_mut(64) {
                let n = record.len();
                record.copy_from_slice(&shared[..n]);
                for byte in record.iter_mut().take(11) {
                    *byte = rng.next() as u8;
                }
            }
        }
        // Structures of 48 bytes: a tag, a pointer to one of a few types, counters, a small id.
        "records" => {
            for (i, record) in block.chunks_mut(48).enumerate() {
                let ty = 0x0000_5555_5560_0000 + rng.below(4) * 0x140;
                let words = [
                    1 + rng.below(3),
                    ty,
                    i as u64 + seed,
                    rng.below(1000),
                    0,
                    rng.below(1 << 20),
                ];
                fill_words(record, &words);
            }
        }
        "pointers" => {
            for word in block.chunks_mut(8) {
                fill_words(word, &[0x0000_1000_0000_0000 + rng.below(1 << 28) * 16]);
            }
        }
        "text" => {
            const TEXT: &str = "page fault memory the of compressed swap kernel a in is to cache \
                writeback limit \n";
            let words: Vec<&str> = TEXT.split_inclusive(' ').collect();
            let mut at = 0;
            while at < len {
                let word = words[rng.below(16) as usize].as_bytes();
                let n = word.len().min(len - at);
                block[at..at + n].copy_from_slice(&word[..n]);
                at += n;
            }
        }
        "floats" => {
            let mut value = 100.0f64;
            for word in block.chunks_exact_mut(8) {
                value += (rng.below(1000) as f64 - 500.0) / 100.0;
                word.copy_from_slice(&value.to_le_bytes());
            }
        }
        // A quarter of each page random, the rest zero.
        "quarter" => {
            for page in block.chunks_mut(4096) {
                for byte in page.iter_mut().take(1024) {
                    *byte = rng.next() as u8;
                }
            }
        }
        "sparse" => {
            for _ in 0..len / 256 {
                let at = rng.below(len as u64) as usize;
                block[at] = rng.next() as u8;
            }
        }
        _ => {
            for word in block.chunks_mut(8) {
                fill_words(word, &[rng.next()]);
            }
        }
    }
    block
}

fn fill_words(to: &mut [u8], words: &[u64]) {
    for (chunk, word) in to.chunks_mut(8).zip(words) {
        let bytes = word.to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}
