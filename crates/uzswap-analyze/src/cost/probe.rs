//! A short run under uzswap that measures what a page in and a page out cost here.
//!
//! *What*: random accesses to memory filled with pages of the analyzed program, half of which fits.
//! *Invariants*: nearly every second access faults; the order is the same every time.
//! *Locking*: none.
//! *Context*: [`work`] runs in a process of its own, under uzswap.

use std::io::Read;

use anyhow::{Result, ensure};
use uzswap_compress::Codec;
use uzswap_corpus::PAGE;

use super::Machine;
use crate::contents::Contents;
use crate::process::own_cpu_time;

/// Pages to access.
const NR_PAGES: usize = 12_288;
const NR_ACCESSES: usize = 24_000;
/// Memory of uzswap and of the process itself, bytes.
const OWN_BYTES: f64 = 6.0 * 1_048_576.0;
/// Share in the pool above which there would hardly be a fault.
const MAX_STORED: f64 = 0.8;

/// The limit for the run; `None` if the contents compress too badly.
#[must_use]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tens of MiB"
)]
pub fn ram(contents: &Contents) -> Option<u64> {
    let stored = contents
        .stored(Codec::Lz4)
        .filter(|&stored| stored < MAX_STORED)?;
    let all = (NR_PAGES * PAGE) as f64;
    // The sample itself is in memory, and cold.
    let cold = all / 2.0 + (contents.pages * PAGE) as f64;
    Some((OWN_BYTES + all / 2.0 + cold * stored) as u64)
}

/// Fills memory with the pages read from `from` and accesses it; returns the processor time of the
/// accesses, seconds.
///
/// # Errors
/// If there is no page to read.
pub fn work(mut from: impl Read) -> Result<f64> {
    let mut sample = Vec::new();
    from.read_to_end(&mut sample)?;
    let given = sample.len() / PAGE;
    ensure!(given > 0, "no pages");
    let mut memory = Vec::with_capacity(NR_PAGES * PAGE);
    for number in 0..NR_PAGES {
        let at = number % given * PAGE;
        memory.extend_from_slice(&sample[at..at + PAGE]);
    }
    let mut seed = 1_usize;
    let begin = own_cpu_time();
    for _ in 0..NR_ACCESSES {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let page = (seed >> 33) % NR_PAGES;
        memory[page * PAGE + 8] ^= 1;
    }
    let end = own_cpu_time();
    std::hint::black_box(&memory);
    Ok((end - begin).as_secs_f64())
}

/// The machine's costs, from the seconds of processor time of the accesses and the refaults.
#[must_use]
pub fn machine(contents: &Contents, cpu_s: f64, refaults: u64) -> Option<Machine> {
    // With fewer refaults something else took the time.
    if refaults < NR_ACCESSES as u64 / 8 {
        return None;
    }
    let codec_us = contents.codec_us(Codec::Lz4)?.iter().sum();
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
