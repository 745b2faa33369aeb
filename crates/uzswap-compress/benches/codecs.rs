//! Nanoseconds a block, per codec, block size and kind of content.
//!
//! `cargo bench -p uzswap-compress [-- CODEC [FILE]]`: generated blocks, or those of a memory dump
//! (same-filled ones left out). The best of many rounds over each 256 KiB; ±10 % on a quiet
//! machine.
#![allow(clippy::cast_possible_truncation, reason = "test data")]

use std::hint::black_box;
use std::time::Instant;
use uzswap_compress::{Codec, same_filled};

#[path = "../tests/owned/mod.rs"]
mod owned;
#[path = "../tests/pages/mod.rs"]
mod pages;

/// Sources of one round: more than the first-level cache holds, less than the second.
const ROUND: usize = 256 << 10;

/// ns a block: the best of several rounds over each part of `items`, so that what else the machine
/// does is left out.
fn best_of<T, R>(items: &[T], per_round: usize, mut call: impl FnMut(&T) -> R) -> f64 {
    let mut total = 0.0;
    for part in items.chunks(per_round) {
        let mut best = f64::MAX;
        for _ in 0..15 {
            let start = Instant::now();
            for item in part {
                black_box(call(item));
            }
            best = best.min(start.elapsed().as_nanos() as f64);
        }
        total += best;
    }
    total / items.len().max(1) as f64
}

fn measure(codec: Codec, block: usize, kind: &str, sources: &[pages::Block]) {
    let mut w = owned::Owned::new(codec, block);
    // As zswap does: what does not fit four fifths is kept as it is.
    let mut out = vec![0u8; block * 3264 / 4096];
    let mut back = vec![0u8; block];
    let mut objects = Vec::new();
    let mut bytes = 0;
    for src in sources {
        match w.compressor.compress_stable(src, &mut out) {
            Ok(n) => {
                objects.push(out[..n].to_vec());
                bytes += n.next_multiple_of(16);
            }
            Err(_) => bytes += block,
        }
    }
    let per_round = ROUND / block;
    let copying = best_of(sources, per_round, |src| {
        // SAFETY: every source is a block of that length, aligned to 64.
        unsafe { w.compressor.compress(src.as_ptr(), block, &mut out) }
    });
    let direct = best_of(sources, per_round, |src| {
        w.compressor.compress_stable(src, &mut out)
    });
    let decompress = best_of(&objects, per_round, |object| {
        w.decompressor.decompress(codec.id(), object, &mut back)
    });
    let half = best_of(&objects, per_round, |object| {
        w.decompressor
            .decompress_first(codec.id(), object, block / 2, &mut back)
    });
    println!(
        "{:<10} {:>4} {:<8} {:>6.2} {:>10.0} {:>10.0} {:>10.0} {:>10.0}",
        codec.to_string(),
        block >> 10,
        kind,
        (block * sources.len()) as f64 / bytes as f64,
        copying,
        direct,
        decompress,
        half
    );
}

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with('-'));
    let codecs = match args.next() {
        Some(text) => owned::codecs(&text),
        None => owned::codecs("lz4 pz:1 pz:3 zstd:1 zstd:3 deflate:1"),
    };
    let dump = args
        .next()
        .map(|file| std::fs::read(file).expect("a readable file"));
    println!(
        "{:<10} {:>4} {:<8} {:>6} {:>10} {:>10} {:>10} {:>10}   (ns a block)",
        "codec", "KiB", "content", "packed", "compress", "no copy", "decompress", "of half"
    );
    for block in [4096, 16384, 65536] {
        let sets: Vec<(&str, Vec<pages::Block>)> = match &dump {
            Some(dump) => vec![("dump", dumped(dump, block))],
            None => pages::KINDS
                .iter()
                .map(|&kind| {
                    (
                        kind,
                        (1..=64)
                            .map(|seed| pages::block(kind, block, seed))
                            .collect(),
                    )
                })
                .collect(),
        };
        for (kind, sources) in &sets {
            let filled = best_of(sources, ROUND / block, |src| {
                // SAFETY: every source is a block of that length, aligned to 64.
                unsafe { same_filled(src.as_ptr(), block) }
            });
            println!(
                "{:<10} {:>4} {:<8} {:>17.1}",
                "same",
                block >> 10,
                kind,
                filled
            );
            for &codec in &codecs {
                measure(codec, block, kind, sources);
            }
        }
    }
}

/// The blocks of a dump, at most 8 MiB, that are not same-filled.
fn dumped(dump: &[u8], block: usize) -> Vec<pages::Block> {
    dump.chunks_exact(block)
        .filter(|bytes| bytes.chunks(8).any(|word| word != &bytes[..8]))
        .take((8 << 20) / block)
        .map(|bytes| {
            let mut copy = pages::Memory::new(block);
            copy.copy_from_slice(bytes);
            copy
        })
        .collect()
}
