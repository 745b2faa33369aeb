//! Our LZ4 against the C library, which is the reference for the format: each reads what the other
//! writes. Also with unmapped memory before or after the buffers.
#![cfg(not(miri))]
#![allow(clippy::cast_possible_truncation, reason = "test data")]
#![allow(clippy::cast_possible_wrap, reason = "lengths of at most 64 KiB")]
#![allow(clippy::cast_sign_loss, reason = "lengths of at most 64 KiB")]

use uzswap_compress::{Codec, CodecId, CompressError, DecompressError, MAX_BLOCK};
use uzswap_sys::mem;

mod owned;
mod pages;
use owned::Owned;
use pages::{KINDS, Rng, block};

fn c_compress(src: &[u8]) -> Vec<u8> {
    let mut out = vec![0u8; src.len() + src.len() / 255 + 16];
    // SAFETY: both buffers are as long as is said.
    let n = unsafe {
        lz4_sys::LZ4_compress_default(
            src.as_ptr().cast(),
            out.as_mut_ptr().cast(),
            src.len() as i32,
            out.len() as i32,
        )
    };
    out.truncate(n as usize);
    out
}

/// `None` if the C library refuses it.
fn c_decompress(object: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = vec![0u8; len];
    // SAFETY: both buffers are as long as is said.
    let n = unsafe {
        lz4_sys::LZ4_decompress_safe(
            object.as_ptr().cast(),
            out.as_mut_ptr().cast(),
            object.len() as i32,
            len as i32,
        )
    };
    (n == len as i32).then_some(out)
}

struct Ours(Owned);

impl Ours {
    fn new() -> Ours {
        Ours(Owned::new(Codec::Lz4, MAX_BLOCK))
    }

    fn compress(&mut self, src: &[u8], capacity: usize) -> Result<Vec<u8>, CompressError> {
        let mut out = vec![0u8; capacity];
        let n = self.0.compressor.compress_stable(src, &mut out)?;
        out.truncate(n);
        Ok(out)
    }

    fn decompress(&mut self, object: &[u8], dst: &mut [u8]) -> Result<(), DecompressError> {
        self.0.decompressor.decompress(CodecId::Lz4, object, dst)
    }
}

fn check_both_ways(ours: &mut Ours, src: &[u8]) {
    let object = ours
        .compress(src, src.len() + src.len() / 255 + 32)
        .expect("room for all");
    assert!(c_decompress(&object, src.len()).expect("ours is LZ4") == src);
    let mut back = vec![0xee; src.len()];
    assert_eq!(ours.decompress(&object, &mut back), Ok(()));
    assert!(back == src);
    back.fill(0xee);
    assert_eq!(ours.decompress(&c_compress(src), &mut back), Ok(()));
    assert!(back == src);
}

#[test]
fn each_reads_what_the_other_writes() {
    let mut ours = Ours::new();
    for kind in KINDS {
        for len in [
            1, 2, 12, 13, 14, 31, 64, 100, 4095, 4096, 5000, 16384, 65535, 65536,
        ] {
            let source = block(kind, len, len as u64);
            check_both_ways(&mut ours, &source);
        }
    }
}

/// Runs of every period and length, between other bytes: the overlapping copies.
#[test]
fn runs_of_every_period_and_length_come_back() {
    let mut ours = Ours::new();
    let mut rng = Rng(99);
    for period in 1..70 {
        for len in (1..100).chain([255, 256, 270, 271, 1000, 3000]) {
            for tail in [0, 5, 12, 40] {
                let unit: Vec<u8> = (0..period).map(|_| rng.next() as u8).collect();
                let mut src: Vec<u8> = (0..20).map(|_| rng.next() as u8).collect();
                src.extend(unit.iter().cycle().take(period + len));
                src.extend((0..tail).map(|_| rng.next() as u8));
                check_both_ways(&mut ours, &src);
            }
        }
    }
}

/// Records of every length with unique first bytes, some with a byte changed, at any offset of the
/// block, and blocks of other contents between.
#[test]
fn records_of_one_shape_come_back_whatever_comes_between() {
    let seed = 0x7ec0;
    println!("seed {seed:#x}");
    let mut rng = Rng(seed);
    let mut ours = Ours::new();
    for record in (5..80).chain([128, 300, 2000]) {
        for own in [1, 3, record / 4, record / 2, record - 4] {
            let shared: Vec<u8> = (0..record).map(|_| rng.next() as u8).collect();
            for round in 0..4 {
                let len = if round == 3 { MAX_BLOCK } else { 4096 };
                let mut src: Vec<u8> = shared.iter().copied().cycle().take(len).collect();
                for one in src.chunks_mut(record) {
                    let own = own.min(one.len());
                    one[..own].fill_with(|| rng.next() as u8);
                }
                for _ in 0..rng.below(4) {
                    src[rng.below(len as u64) as usize] ^= 1;
                }
                src.rotate_left(rng.below(2) as usize * rng.below(record as u64) as usize);
                check_both_ways(&mut ours, &src);
            }
            let kind = KINDS[rng.below(KINDS.len() as u64) as usize];
            check_both_ways(&mut ours, &block(kind, 4096, rng.next()));
        }
    }
}

#[test]
fn the_ratio_is_that_of_the_reference() {
    let mut ours = Ours::new();
    for kind in KINDS.into_iter().filter(|&kind| kind != "random") {
        let (mut mine, mut theirs) = (0, 0);
        for seed in 0..20 {
            let src = block(kind, 4096, seed);
            mine += ours.compress(&src, 8192).expect("fits").len();
            theirs += c_compress(&src).len();
        }
        println!("{kind}: {mine} bytes, the C library {theirs}");
        assert!(mine * 100 <= theirs * 106, "{kind}: {mine} {theirs}");
    }
}

/// A buffer of any length with unmapped pages around: `at_end` tells which end touches.
struct Fenced {
    fence: usize,
    len: usize,
}

impl Fenced {
    const MAX: usize = 2 * MAX_BLOCK;

    fn new() -> Fenced {
        let flags = mem::MAP_PRIVATE | mem::MAP_ANONYMOUS;
        let len = Self::MAX + 8192;
        // SAFETY: a fresh mapping where the kernel likes.
        let fence = unsafe { mem::mmap(0, len, mem::PROT_NONE, flags, -1, 0) }.expect("mmap");
        let access = mem::PROT_READ | mem::PROT_WRITE;
        // SAFETY: within the mapping made above.
        unsafe { mem::mprotect(fence + 4096, Self::MAX, access) }.expect("mprotect");
        Fenced { fence, len }
    }

    fn buffer(&mut self, len: usize, at_end: bool) -> &mut [u8] {
        let start = if at_end {
            self.fence + 4096 + Self::MAX - len
        } else {
            self.fence + 4096
        };
        // SAFETY: `len` bytes of the middle of the mapping, which is readable and writable, and
        // borrowed by `self`.
        unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(start), len) }
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no buffer of it is borrowed any more.
        let _ = unsafe { mem::munmap(self.fence, self.len) };
    }
}

#[test]
fn nothing_is_touched_beyond_the_buffers() {
    let seed = 0x5eed;
    println!("seed {seed:#x}");
    let mut rng = Rng(seed);
    let mut ours = Ours::new();
    let (mut from, mut to) = (Fenced::new(), Fenced::new());
    for kind in KINDS {
        for len in [1, 13, 40, 500, 4096, 16384] {
            let src = block(kind, len, 77);
            let full = ours.compress(&src, 2 * len + 64).expect("room for all");
            for at_end in [false, true] {
                let source = from.buffer(len, at_end);
                source.copy_from_slice(&src);
                for _ in 0..20 {
                    let capacity = rng.below(full.len() as u64 + 40) as usize;
                    let out = to.buffer(capacity, at_end);
                    if let Ok(n) = ours.0.compressor.compress_stable(source, out) {
                        assert!(c_decompress(&out[..n], len).expect("ours is LZ4") == src[..]);
                    }
                }
                for round in 0..200 {
                    let object = from.buffer(full.len(), at_end);
                    object.copy_from_slice(&full);
                    if round % 10 == 9 {
                        object.fill_with(|| rng.next() as u8);
                    } else if round > 0 {
                        for _ in 0..=rng.below(4) {
                            object[rng.below(full.len() as u64) as usize] = rng.next() as u8;
                        }
                    }
                    let want = match rng.below(4) {
                        0 => 1 + rng.below(2 * len as u64) as usize,
                        _ => len,
                    };
                    let dst = to.buffer(want, at_end);
                    let result = ours.decompress(object, dst);
                    // The reference agrees about what is damaged, and about what damage decodes to.
                    let reference = c_decompress(object, want);
                    match (&result, &reference) {
                        (Ok(()), Some(bytes)) => assert!(dst == &bytes[..], "{kind} {len}"),
                        (Err(_), None) => {}
                        // The C library lets a distance of 0 pass, and is stricter about where the
                        // last match may end. What was not damaged, both must take.
                        (Ok(()), None) | (Err(_), Some(_)) => assert!(round > 0 || want != len),
                    }
                }
            }
        }
    }
}
