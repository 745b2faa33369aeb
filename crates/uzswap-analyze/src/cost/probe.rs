//! A short run under uzswap that tells what bringing a page in and putting another out cost here.
//!
//! *What*: memory filled with pages of the program that is analyzed, of which half fits, accessed at random.
//! *Invariants*: nearly every second access is a fault; the order is the same every time.
//! *Locking*: none.
//! *Context*: [`work`] runs in a process of its own, under uzswap.

use std::io::Read;

use anyhow::{Result, ensure};
use uzswap_compress::Codec;

use super::Machine;
use crate::contents::Contents;
use crate::process::own_cpu_time;

const PAGE: usize = 4096;
/// Memory to access.
const PAGES: usize = 12_288;
const ACCESSES: usize = 24_000;
/// What uzswap and the process itself take.
const OWN: f64 = 6.0 * 1_048_576.0;
/// With contents that take more than this, there would be hardly a fault.
const POOR: f64 = 0.8;

/// The limit for the run; `None` if the contents compress too badly for it.
#[must_use]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tens of MiB"
)]
pub fn ram(contents: &Contents) -> Option<u64> {
    let stored = contents
        .stored(Codec::Lz4)
        .filter(|&stored| stored < POOR)?;
    let all = (PAGES * PAGE) as f64;
    // The sample itself is cold, too.
    let cold = all / 2.0 + (contents.pages * PAGE) as f64;
    Some((OWN + all / 2.0 + cold * stored) as u64)
}

/// Reads pages, fills memory with them, accesses it; returns the processor time of the accesses in seconds.
///
/// # Errors
/// If there is not a page to read.
pub fn work(mut from: impl Read) -> Result<f64> {
    let mut sample = Vec::new();
    from.read_to_end(&mut sample)?;
    let given = sample.len() / PAGE;
    ensure!(given > 0, "no pages");
    let mut memory = Vec::with_capacity(PAGES * PAGE);
    for number in 0..PAGES {
        let at = number % given * PAGE;
        memory.extend_from_slice(&sample[at..at + PAGE]);
    }
    let mut seed = 1_usize;
    let begin = own_cpu_time();
    for _ in 0..ACCESSES {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let page = (seed >> 33) % PAGES;
        memory[page * PAGE + 8] ^= 1;
    }
    let end = own_cpu_time();
    std::hint::black_box(&memory);
    Ok((end - begin).as_secs_f64())
}

/// What the run tells: processor time in seconds of the accesses, and faults on evicted pages.
#[must_use]
pub fn machine(contents: &Contents, cpu_s: f64, refaults: u64) -> Option<Machine> {
    // Fewer than this and something else than faults took the time.
    if refaults < ACCESSES as u64 / 8 {
        return None;
    }
    let cell = contents.by_page(Codec::Lz4)?;
    let first = |rounds: &[f64]| rounds.first().copied().unwrap_or(0.0);
    let codec_us =
        (first(&cell.compress_us) + first(&cell.decompress_us)) * (1.0 - contents.same_filled);
    Some(Machine::of_run(cpu_s * 1e6 / refaults as f64, codec_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_can_be_done_without_a_limit() {
        let cpu_s = work(&vec![7_u8; 3 * PAGE][..]).unwrap();
        assert!(cpu_s > 0.0);
        assert!(work(&[0_u8; 100][..]).is_err());
    }
}
