//! Dictionaries, and what compresses by them, in memory of a test's own.

use std::ptr::NonNull;

use uzswap_compress::{Codec, Compressor, DICTIONARY_LEN, Decompressor, Digest, Trainer, trainer};

use crate::pages;

const PAGE: usize = 4096;

/// A dictionary of the pages.
pub fn train(pages: &[pages::Block]) -> [u8; DICTIONARY_LEN] {
    let mut memory = pages::Memory::new(size_of::<Trainer>());
    // SAFETY: that much memory, aligned, which outlives the trainer.
    let trainer = unsafe { Trainer::init(NonNull::new(memory.as_mut_ptr()).unwrap()) };
    pages.iter().for_each(|page| trainer.count(page));
    for part in pages.chunks(pages.len().div_ceil(trainer::PIECES)) {
        part.iter().for_each(|page| trainer.look(page));
        trainer.take();
    }
    *trainer.finish()
}

/// A compressor and a decompressor, and the memory that they are in.
pub fn codec(codec: Codec) -> (Compressor, Decompressor, [pages::Memory; 2]) {
    let (one, two) = (
        Compressor::required_size(codec, PAGE),
        Decompressor::required_size(),
    );
    let mut memory = [one, two].map(pages::Memory::new);
    // SAFETY: memory of that length, which is handed out with them.
    unsafe {
        (
            Compressor::init(memory[0].as_mut_ptr(), one, codec, PAGE).unwrap(),
            Decompressor::init(memory[1].as_mut_ptr(), two).unwrap(),
            memory,
        )
    }
}

pub fn digest(codec: Codec, dictionary: &[u8; DICTIONARY_LEN]) -> (Digest, pages::Memory) {
    let len = Digest::required_size(codec).expect("zstd");
    let mut memory = pages::Memory::new(len);
    // SAFETY: that much memory, which is handed out with it; the dictionary outlives both in each test.
    let digest = unsafe { Digest::init(memory.as_mut_ptr(), len, codec, dictionary) };
    (digest.unwrap(), memory)
}
