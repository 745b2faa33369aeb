//! What a dictionary gains on memory dumps: `cargo bench -p uzswap-compress --bench dictionaries -- LEVEL FILE...`
//!
//! Trained on pages spread over half of each dump, tried on the other half (32 pages by turns), page by page, same-filled ones left out: ratio, and
//! microseconds a page to compress and to decompress, without and with one; the best of five rounds, by turns.

use std::path::Path;
use std::time::Instant;
use uzswap_compress::{Codec, same_filled};

#[path = "../tests/dictionary/mod.rs"]
mod dictionary;
#[path = "../tests/pages/mod.rs"]
mod pages;

use dictionary::{codec, digest, train};

const PAGE: usize = 4096;
/// Pages that are trained on, as in the engine.
const SAMPLE: usize = 128;
const ROUNDS: usize = 5;

/// Ratio, and microseconds a page to compress and to decompress.
#[derive(Clone, Copy)]
struct Row([f64; 3]);

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let level = args.next().and_then(|level| level.parse().ok());
    let Some(name) = level.map(|level| Codec::Zstd { level }) else {
        // As part of all benches there is nothing to do.
        println!("dictionaries: give a level of zstd, and memory dumps (uzswap bench corpus)");
        return;
    };
    println!("{:<16} {:>24} {:>24}", "", "without", "by a dictionary");
    let mut rows = Vec::new();
    for file in args {
        let dump = std::fs::read(&file).expect("a readable file");
        let row = measure(name, &dump);
        let stem = Path::new(&file).file_stem().unwrap_or_default();
        show(&stem.to_string_lossy(), row);
        rows.push(row);
    }
    let mean = |which: usize| {
        let of = |at: usize| rows.iter().map(|row| row[which].0[at]).sum::<f64>();
        Row([0, 1, 2].map(|at| of(at) / rows.len().max(1) as f64))
    };
    show("mean", [mean(0), mean(1)]);
}

fn show(name: &str, rows: [Row; 2]) {
    let [without, with] = rows.map(|Row([ratio, compress, decompress])| {
        format!("{ratio:.3} {compress:.2} / {decompress:.2}")
    });
    println!("{name:<16} {without:>24} {with:>24}");
}

fn measure(name: Codec, dump: &[u8]) -> [Row; 2] {
    let mut halves = [Vec::new(), Vec::new()];
    for (nr, bytes) in dump.chunks_exact(PAGE).enumerate() {
        let mut page = pages::Memory::new(PAGE);
        page.copy_from_slice(bytes);
        // SAFETY: a page, aligned to 64.
        if unsafe { same_filled(page.as_ptr(), PAGE) }.is_none() {
            halves[nr / 32 % 2].push(page);
        }
    }
    let [shown, others] = halves;
    let every = (shown.len() / SAMPLE).max(1);
    let sample: Vec<_> = shown.into_iter().step_by(every).take(SAMPLE).collect();
    let bytes = train(&sample);
    let (mut compressor, mut decompressor, _memory) = codec(name);
    let (digest, _tables) = digest(name, &bytes);
    let mut best = [Row([0.0, f64::MAX, f64::MAX]); 2];
    for _ in 0..ROUNDS {
        for (which, Row(best)) in best.iter_mut().enumerate() {
            let digest = (which == 1).then_some(&digest);
            let mut objects = vec![0; others.len() * PAGE];
            let mut sizes = Vec::with_capacity(others.len());
            let began = Instant::now();
            for (page, out) in others.iter().zip(objects.chunks_mut(PAGE)) {
                let made = compressor.compress_stable_by(digest, page, &mut out[..PAGE - 64]);
                sizes.push(made.unwrap_or(PAGE));
            }
            let each = |began: Instant| began.elapsed().as_secs_f64() * 1e6 / others.len() as f64;
            best[1] = best[1].min(each(began));
            let mut back = vec![0; PAGE];
            let began = Instant::now();
            for (object, &size) in objects.chunks(PAGE).zip(&sizes) {
                if size == PAGE {
                    continue;
                }
                match which {
                    1 => decompressor.decompress_by(&bytes, &object[..size], &mut back),
                    _ => decompressor.decompress(name.id(), &object[..size], &mut back),
                }
                .expect("its own object");
            }
            best[2] = best[2].min(each(began));
            best[0] = (others.len() * PAGE) as f64 / sizes.iter().sum::<usize>() as f64;
        }
    }
    best
}
