//! Makes `src/page_code_lengths.txt` from memory dumps, or, with `blocks` for `pages`,
//! `src/block_code_lengths.txt`: a line for each table of tokens, then of extras, then of literals.
//! `cargo run --release -p uzswap-pz --example train -- pages DIR... > page_code_lengths.txt`
//!
//! Each DIR holds files of pages, a file a program. Every program counts the same. The histograms
//! of pages or blocks are clustered by what they would cost in each other's code (k-means), and
//! each cluster gets its best code of bounded length (package-merge). The same dumps give the same
//! tables.

use std::error::Error;
use uzswap_pz::{BlockWorkspace, Level, MAX_BLOCK, PAGE, Workspace, compress};

const MAX_BITS: usize = 10;
/// Of each program.
const PAGES: usize = 600;
const BLOCKS: usize = 100;
const ROUNDS: usize = 20;

type Histogram = [f64; 256];
/// Adds the histograms of pages to those of tokens, extras and literals.
type Collect = fn(&[u8], &mut [Vec<Histogram>; 3]);

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (collect, nr_codes) = match args.next().as_deref() {
        Some("pages") => (collect_pages as Collect, 8),
        Some("blocks") => (collect_blocks as Collect, 15),
        _ => return Err("usage: train pages|blocks DIR...".into()),
    };
    let mut histograms: [Vec<Histogram>; 3] = Default::default();
    for dir in args {
        let mut files: Vec<_> = std::fs::read_dir(dir)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        files.sort();
        for file in files {
            collect(&pages_of(&std::fs::read(file)?), &mut histograms);
        }
    }
    for stream in &histograms {
        for cluster in clusters(stream, nr_codes) {
            let lengths = code_lengths(&cluster).into_iter();
            let digits: String = lengths
                .filter_map(|bits| char::from_digit(bits, 16))
                .collect();
            println!("{digits}");
        }
    }
    Ok(())
}

/// Pages that are not same-filled, one after the other.
fn pages_of(dump: &[u8]) -> Vec<u8> {
    let pages = dump.chunks_exact(PAGE);
    pages
        .filter(|page| page[8..] != page[..PAGE - 8])
        .flatten()
        .copied()
        .collect()
}

fn collect_pages(pages: &[u8], histograms: &mut [Vec<Histogram>; 3]) {
    let mut workspace = Box::new(Workspace::new());
    let nr = pages.len() / PAGE;
    for page in pages.chunks_exact(PAGE).step_by(nr.div_ceil(PAGES).max(1)) {
        add_streams(workspace.take_apart(Level::Balanced, page), histograms);
    }
}

/// Blocks of 16 and 64 KiB, each in the way of writing its words in which it becomes smallest, as
/// `uzswap-compress` does.
fn collect_blocks(pages: &[u8], histograms: &mut [Vec<Histogram>; 3]) {
    let mut workspace = Box::new(BlockWorkspace::new());
    for len in [MAX_BLOCK / 4, MAX_BLOCK] {
        let nr = pages.len() / len;
        for block in pages.chunks_exact(len).step_by(nr.div_ceil(BLOCKS).max(1)) {
            let ways = [block.to_vec(), planes(block), differences(block)];
            let mut object = vec![0; 2 * len];
            let best = ways.iter().min_by_key(|block| {
                compress(&mut workspace, Level::Dense, block, &mut object).unwrap_or(len)
            });
            if let Some(block) = best {
                add_streams(workspace.take_apart(Level::Dense, block), histograms);
            }
        }
    }
}

/// The bytes of each page by their place in a word.
fn planes(block: &[u8]) -> Vec<u8> {
    let of = |page: &[u8]| -> Vec<u8> {
        (0..PAGE)
            .map(|i| page[i % (PAGE / 8) * 8 + i / (PAGE / 8)])
            .collect()
    };
    block.chunks_exact(PAGE).flat_map(of).collect()
}

/// Each word of a page less the one before.
fn differences(block: &[u8]) -> Vec<u8> {
    let of = |page: &[u8]| -> Vec<u8> {
        let words: Vec<u64> = page
            .chunks_exact(8)
            .filter_map(|word| word.try_into().ok().map(u64::from_le_bytes))
            .collect();
        let before = [0].into_iter().chain(words.iter().copied());
        let differences = words
            .iter()
            .zip(before)
            .map(|(word, before)| word.wrapping_sub(before));
        differences.flat_map(u64::to_le_bytes).collect()
    };
    block.chunks_exact(PAGE).flat_map(of).collect()
}

fn add_streams(streams: [&[u8]; 3], histograms: &mut [Vec<Histogram>; 3]) {
    for (stream, histograms) in streams.into_iter().zip(histograms.iter_mut()) {
        let mut histogram = [0.0; 256];
        for &symbol in stream {
            histogram[usize::from(symbol)] += 1.0;
        }
        histograms.push(histogram);
    }
}

fn add(to: &mut Histogram, other: &Histogram, scale: f64) {
    for (to, other) in to.iter_mut().zip(other) {
        *to += other * scale;
    }
}

/// What a symbol costs in the code of a histogram, before rounding.
fn costs(histogram: &Histogram) -> Histogram {
    let total: f64 = histogram.iter().sum();
    histogram.map(|n| -((n + total * 2e-4 + 1e-3) / (total * 1.0512 + 0.256)).log2())
}

fn clusters(pages: &[Histogram], nr_codes: usize) -> Vec<Histogram> {
    let mut mean = [0.0; 256];
    for page in pages {
        add(&mut mean, page, 1.0 / pages.len() as f64);
    }
    let seed = |i: usize| {
        let mut cluster = pages[(i * 2 + 1) * pages.len() / (2 * nr_codes)];
        add(&mut cluster, &mean, 0.2);
        cluster
    };
    let mut clusters: Vec<Histogram> = (0..nr_codes).map(seed).collect();
    for _ in 0..ROUNDS {
        let costs: Vec<Histogram> = clusters.iter().map(costs).collect();
        // Rare symbols must stay cheap enough: each cluster knows a little of all.
        let mut next = vec![mean.map(|n| n * 0.01); nr_codes];
        for page in pages {
            let cost =
                |code: &Histogram| -> f64 { page.iter().zip(code).map(|(n, bits)| n * bits).sum() };
            let best = (0..nr_codes).min_by(|&a, &b| cost(&costs[a]).total_cmp(&cost(&costs[b])));
            add(&mut next[best.unwrap_or(0)], page, 1.0);
        }
        clusters = next;
    }
    clusters
}

/// The best prefix code with lengths up to [`MAX_BITS`]: package-merge.
fn code_lengths(histogram: &Histogram) -> Vec<u32> {
    let total: f64 = histogram.iter().sum();
    let mut coins: Vec<(f64, Vec<usize>)> = histogram
        .iter()
        .enumerate()
        .map(|(symbol, n)| (n + total * 1e-6, vec![symbol]))
        .collect();
    coins.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut packages = coins.clone();
    for _ in 1..MAX_BITS {
        let pairs = packages.chunks_exact(2).map(|pair| {
            let mut symbols = pair[0].1.clone();
            symbols.extend(&pair[1].1);
            (pair[0].0 + pair[1].0, symbols)
        });
        packages = coins.iter().cloned().chain(pairs).collect();
        packages.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let mut lengths = vec![0; 256];
    for (_, symbols) in packages.iter().take(2 * 256 - 2) {
        for &symbol in symbols {
            lengths[symbol] += 1;
        }
    }
    lengths
}
