//! Makes `src/tables.rs` from dumps of memory: `cargo run --release -p uzswap-pz --example train -- DIR... > tables.rs`.
//!
//! Each DIR holds files of pages, a file a program. Every program counts the same. The pages' histograms are clustered by what
//! they would cost in each other's code (k-means), and each cluster gets its best code of bounded length
//! (package-merge). The same pages give the same tables.

use std::error::Error;
use uzswap_pz::{Level, PAGE, Workspace};

const NR_CODES: usize = 8;
const MAX_BITS: usize = 10;
const PAGES: usize = 600;
const ROUNDS: usize = 20;

type Histogram = [f64; 256];

fn main() -> Result<(), Box<dyn Error>> {
    let mut histograms: [Vec<Histogram>; 3] = Default::default();
    for dir in std::env::args().skip(1) {
        let mut files: Vec<_> = std::fs::read_dir(dir)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        files.sort();
        for file in files {
            collect(&std::fs::read(file)?, &mut histograms);
        }
    }
    println!(
        "//! What: the static codes: for each stream, for each table, the length of each symbol's code."
    );
    println!(
        "//! Invariants: part of the format: a change is a new version. Made by `examples/train.rs`."
    );
    println!("//! Locking: none.");
    println!("//! Context: any.");
    println!();
    println!("use crate::format::NR_STREAMS;");
    println!();
    println!("/// Tables for each stream.");
    println!("pub(crate) const NR_CODES: usize = {NR_CODES};");
    println!();
    println!("/// A digit for each symbol, `a` for ten.");
    println!("#[rustfmt::skip]");
    println!("pub(crate) const LENGTHS: [[&[u8; 256]; NR_CODES]; NR_STREAMS] = [");
    for (stream, name) in histograms.iter().zip(["tokens", "extras", "literals"]) {
        println!("    // {name}");
        println!("    [");
        for cluster in clusters(stream) {
            let lengths = code_lengths(&cluster);
            println!("        b\"\\");
            for (i, line) in lengths.chunks(64).enumerate() {
                let digits: String = line
                    .iter()
                    .filter_map(|&bits| char::from_digit(bits, 16))
                    .collect();
                println!("{digits}{}", if i == 3 { "\"," } else { "\\" });
            }
        }
        println!("    ],");
    }
    println!("];");
    Ok(())
}

fn collect(dump: &[u8], histograms: &mut [Vec<Histogram>; 3]) {
    let mut workspace = Box::new(Workspace::new());
    let pages: Vec<&[u8; PAGE]> = dump
        .chunks_exact(PAGE)
        .filter_map(<[u8]>::first_chunk)
        .filter(|page| page[8..] != page[..PAGE - 8])
        .collect();
    for page in pages.iter().step_by(pages.len().div_ceil(PAGES).max(1)) {
        for (stream, histograms) in workspace
            .take_apart(Level::Balanced, page)
            .into_iter()
            .zip(histograms.iter_mut())
        {
            let mut histogram = [0.0; 256];
            for &symbol in stream {
                histogram[usize::from(symbol)] += 1.0;
            }
            histograms.push(histogram);
        }
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

fn clusters(pages: &[Histogram]) -> Vec<Histogram> {
    let mut mean = [0.0; 256];
    for page in pages {
        add(&mut mean, page, 1.0 / pages.len() as f64);
    }
    let seed = |i: usize| {
        let mut cluster = pages[(i * 2 + 1) * pages.len() / (2 * NR_CODES)];
        add(&mut cluster, &mean, 0.2);
        cluster
    };
    let mut clusters: Vec<Histogram> = (0..NR_CODES).map(seed).collect();
    for _ in 0..ROUNDS {
        let costs: Vec<Histogram> = clusters.iter().map(costs).collect();
        // Rare symbols must stay cheap enough: each cluster knows a little of all.
        let mut next = vec![mean.map(|n| n * 0.01); NR_CODES];
        for page in pages {
            let cost =
                |code: &Histogram| -> f64 { page.iter().zip(code).map(|(n, bits)| n * bits).sum() };
            let best = (0..NR_CODES).min_by(|&a, &b| cost(&costs[a]).total_cmp(&cost(&costs[b])));
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
