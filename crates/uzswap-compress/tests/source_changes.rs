//! Other threads write a block while it is compressed: the result is worthless, but nothing outside
//! is read or written, and the next block is right.
#![cfg(not(miri))]
#![allow(clippy::cast_possible_truncation, reason = "test data")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use uzswap_compress::same_filled;
use uzswap_sys::mem;

mod owned;
mod pages;

/// Stops the writer on drop, also after a failed assertion: the scope waits for it.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Source in the middle of unreadable memory, so that a read one byte outside is a crash; output
/// with guards on both sides.
#[test]
fn nothing_strays_while_the_source_changes() {
    const LEN: usize = 16384;
    const GUARD: usize = 4096;
    let flags = mem::MAP_PRIVATE | mem::MAP_ANONYMOUS;
    let fence =
        // SAFETY: a fresh mapping where the kernel likes.
        unsafe { mem::mmap(0, LEN + 2 * GUARD, mem::PROT_NONE, flags, -1, 0) }.expect("map");
    let addr = fence + GUARD;
    // SAFETY: within that mapping.
    unsafe { mem::mprotect(addr, LEN, mem::PROT_READ | mem::PROT_WRITE) }.expect("mprotect");
    // SAFETY: readable and writable until the end of this test; all sides but the codecs use
    // atomics, and what the codecs do about a source that changes is what is tested.
    let words = unsafe {
        std::slice::from_raw_parts(
            std::ptr::with_exposed_provenance::<AtomicU64>(addr),
            LEN / size_of::<AtomicU64>(),
        )
    };
    let seed = 0xfeed;
    println!("seed {seed:#x}");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            let mut rng = pages::Rng(seed);
            while !stop.load(Relaxed) {
                // Runs of equal words, so that matches appear and break while they are extended.
                let at = rng.below(words.len() as u64) as usize;
                let value = if rng.below(2) == 0 { 0 } else { rng.next() };
                for word in words.iter().skip(at).take(rng.below(64) as usize) {
                    word.store(value, Relaxed);
                }
            }
        });
        for codec in owned::codecs("lz4 zstd:1 zstd:3 deflate:1 deflate:6 pz:1 pz:3") {
            let mut w = owned::Owned::new(codec, LEN);
            let good = pages::block("records", LEN, 9);
            let (mut out, mut back) = (vec![0xeeu8; LEN + 128], vec![0u8; LEN]);
            let src = std::ptr::with_exposed_provenance::<u8>(addr);
            for round in 0..2000 {
                let capacity = if round % 2 == 0 { LEN } else { LEN / 4 };
                out[capacity..].fill(0xee);
                // SAFETY: the source is mapped, aligned to a page, and may change.
                if let Ok(n) = unsafe { w.compressor.compress(src, LEN, &mut out[..capacity]) } {
                    // It is an object, of contents that may never have been.
                    assert_eq!(
                        w.decompressor.decompress(codec.id(), &out[..n], &mut back),
                        Ok(()),
                        "{codec}"
                    );
                }
                assert!(
                    out[capacity..].iter().all(|&b| b == 0xee),
                    "{codec} wrote past the end"
                );
                // SAFETY: as above.
                let _ = unsafe { same_filled(src, LEN) };
            }
            // SAFETY: a block of that length, aligned to 64.
            let n = unsafe { w.compressor.compress(good.as_ptr(), LEN, &mut out[..LEN]) }
                .expect("compresses");
            w.assert_decodes(&out[..n], &good, "records");
        }
    });
    // SAFETY: nobody uses it any more.
    unsafe { mem::munmap(fence, LEN + 2 * GUARD) }.expect("munmap");
}
