//! pz against the C library's lz4 on pages of real programs: `cargo bench -p uzswap-pz -- DIR
//! [PAGES]`.
//!
//! DIR holds memory dumps, one file for each program. PAGES of each are taken, 1024 by default,
//! evenly, without same-filled ones. Two ratios: as compressed, and packed as a pool does (rounded
//! up to 16 bytes; more than 3264 bytes are kept raw). Codecs alternate every 512 pages and each
//! turn's median counts, so that other load hits all alike. Trust the times relative to lz4, not
//! the microseconds.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;
use uzswap_pz::{Level, PAGE, Workspace, compress, decompress};

type Page = [u8; PAGE];

/// Bytes of an object worth storing, at most, as in zswap.
const MAX_OBJECT: usize = 3264;
const ROUNDS: usize = 9;
/// Pages of one turn: more than caches hold and branch prediction learns. With 32 pages pz seems 5
/// % faster relative to lz4.
const TURN: usize = 512;

trait Peer {
    fn name(&self) -> String;
    fn compress(&mut self, page: &Page, object: &mut [u8]) -> Option<usize>;
    fn decompress(&mut self, object: &[u8], page: &mut Page) -> bool;
}

/// The C library's lz4.
struct Lz4;

impl Peer for Lz4 {
    fn name(&self) -> String {
        "lz4 C".into()
    }
    fn compress(&mut self, page: &Page, object: &mut [u8]) -> Option<usize> {
        // SAFETY: both slices with their lengths.
        let len = unsafe {
            lz4_sys::LZ4_compress_default(
                page.as_ptr().cast(),
                object.as_mut_ptr().cast(),
                i32::try_from(PAGE).ok()?,
                i32::try_from(object.len()).ok()?,
            )
        };
        usize::try_from(len).ok().filter(|&len| len != 0)
    }
    fn decompress(&mut self, object: &[u8], page: &mut Page) -> bool {
        let (Ok(len), Ok(room)) = (i32::try_from(object.len()), i32::try_from(PAGE)) else {
            return false;
        };
        // SAFETY: both slices with their lengths.
        let n = unsafe {
            lz4_sys::LZ4_decompress_safe(
                object.as_ptr().cast(),
                page.as_mut_ptr().cast(),
                len,
                room,
            )
        };
        n == room
    }
}

struct Pz(Box<Workspace>, Level);

impl Peer for Pz {
    fn name(&self) -> String {
        format!("pz {:?}", self.1).to_lowercase()
    }
    fn compress(&mut self, page: &Page, object: &mut [u8]) -> Option<usize> {
        compress(&mut self.0, self.1, page, object).ok()
    }
    fn decompress(&mut self, object: &[u8], page: &mut Page) -> bool {
        decompress(&mut self.0, object, page).is_ok()
    }
}

/// Means of one codec, on one program or all.
#[derive(Clone, Default)]
struct Result {
    /// Compressed bytes of one.
    plain: f64,
    packed: f64,
    /// µs a page.
    compress: f64,
    decompress: f64,
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn measure(peers: &mut [Box<dyn Peer>], pages: &[Page]) -> Vec<Result> {
    let mut results = vec![Result::default(); peers.len()];
    let share = 1.0 / pages.len() as f64;
    let mut object = [0; MAX_OBJECT];
    let mut back = [0; PAGE];
    for pages in pages.chunks(TURN) {
        let objects: Vec<Vec<Vec<u8>>> = peers
            .iter_mut()
            .zip(&mut results)
            .map(|(peer, result)| {
                let mut objects = Vec::new();
                for page in pages {
                    let len = peer.compress(page, &mut object);
                    let kept = len.unwrap_or(PAGE);
                    result.plain += kept as f64 / PAGE as f64 * share;
                    result.packed += kept.next_multiple_of(16) as f64 / PAGE as f64 * share;
                    if let Some(len) = len {
                        objects.push(object[..len].to_vec());
                        assert!(peer.decompress(&object[..len], &mut back) && back == *page);
                    }
                }
                objects
            })
            .collect();
        let mut times = vec![(Vec::new(), Vec::new()); peers.len()];
        for _ in 0..ROUNDS {
            for ((peer, objects), times) in peers.iter_mut().zip(&objects).zip(&mut times) {
                let start = Instant::now();
                for page in pages {
                    black_box(peer.compress(page, &mut object));
                }
                times.0.push(start.elapsed().as_secs_f64());
                let start = Instant::now();
                for object in objects {
                    black_box(peer.decompress(object, &mut back));
                }
                times.1.push(start.elapsed().as_secs_f64());
            }
        }
        for ((result, times), objects) in results.iter_mut().zip(&mut times).zip(&objects) {
            result.compress += median(&mut times.0) * 1e6 * share;
            let nr = objects.len().max(1) as f64;
            result.decompress += median(&mut times.1) * 1e6 * share * pages.len() as f64 / nr;
        }
    }
    results
}

fn print(name: &str, peers: &[Box<dyn Peer>], results: &[Result]) {
    for (peer, result) in peers.iter().zip(results) {
        println!(
            "{name:<12} {:<12} {:>6.2} {:>6.2} {:>8.2} {:>6.2}x {:>8.2} {:>6.2}x",
            peer.name(),
            1.0 / result.plain,
            1.0 / result.packed,
            result.compress,
            result.compress / results[0].compress,
            result.decompress,
            result.decompress / results[0].decompress,
        );
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with('-'));
    let dir = args
        .next()
        .ok_or("usage: cargo bench -p uzswap-pz -- DIR [PAGES]")?;
    let nr = args.next().map_or(Ok(1024), |text| text.parse::<usize>())?;
    let mut peers: Vec<Box<dyn Peer>> = vec![Box::new(Lz4)];
    for level in Level::ALL {
        peers.push(Box::new(Pz(Box::new(Workspace::new()), level)));
    }
    let mut files: Vec<_> = std::fs::read_dir(dir)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::result::Result<_, _>>()?;
    files.sort();
    println!(
        "{:<12} {:<12} {:>6} {:>6} {:>8} {:>7} {:>8} {:>7}",
        "program", "codec", "ratio", "packed", "compress", "", "decompr.", ""
    );
    let mut mean = vec![Result::default(); peers.len()];
    let mut ratios = vec![0.0; peers.len()];
    for file in &files {
        let dump = std::fs::read(file)?;
        let pages: Vec<Page> = dump
            .chunks_exact(PAGE)
            .filter_map(<[u8]>::first_chunk)
            .filter(|page| page[8..] != page[..PAGE - 8])
            .copied()
            .collect();
        let pages: Vec<Page> = pages
            .iter()
            .step_by(pages.len().div_ceil(nr).max(1))
            .copied()
            .collect();
        if pages.is_empty() {
            continue;
        }
        let results = measure(&mut peers, &pages);
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        print(&name, &peers, &results);
        for ((mean, ratio), result) in mean.iter_mut().zip(&mut ratios).zip(&results) {
            mean.plain += result.plain / files.len() as f64;
            mean.packed += result.packed / files.len() as f64;
            mean.compress += result.compress / files.len() as f64;
            mean.decompress += result.decompress / files.len() as f64;
            *ratio += 1.0 / result.packed / files.len() as f64;
        }
    }
    print("all together", &peers, &mean);
    for (peer, ratio) in peers.iter().zip(&ratios) {
        println!(
            "{:<12} {:<12} mean of the programs' packed ratios {ratio:.2}",
            "",
            peer.name()
        );
    }
    Ok(())
}
