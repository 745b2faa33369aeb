//! The suites `store` and `batch`: what it takes to store pages, by kinds of storing.
//!
//! *What*: processes write twice the memory that they have, sequentially, as vm-scalability's
//! `usemem -O -w` does, then again. uzswap is compared with itself: with folios of several sizes,
//! and with pages compressed in software or handed in batches to an accelerator's workers, which
//! here are two threads.
//! *Invariants*: the variants take turns within each round.
//! *Locking*: none.
//! *Context*: the bench command.

use anyhow::Result;

use crate::compare::{Figure, Goal, Measured, pair};
use crate::sides::{Limits, Side, Sides};
use crate::work::{self, Tasks};

/// A variant: key, name and options of `uzswap run`.
type Variant = (&'static str, &'static str, &'static [&'static str]);

const FOLIOS: [Variant; 3] = [
    ("4K", "4K folios", &["--folio", "4K"]),
    ("64K", "64K folios", &["--folio", "64K"]),
    ("2M", "2M folios", &["--folio", "2M"]),
];
/// Throughput that the kernel's series reported for zstd, as a multiple of that of 4 KiB.
const FOLIO_GOALS: [(&str, f64); 2] = [("64K", 1.20), ("2M", 1.13)];
const BATCHES: [Variant; 2] = [
    ("software", "in software", &[]),
    ("batch", "engines:2, in batches", &["--accel", "engines:2"]),
];
/// Counters of accelerators, which `batch` shows, too.
const BATCH_COUNTERS: [(&str, &str); 2] = [
    ("accel_compressed", "by workers"),
    ("accel_fallback", "by software despite workers"),
];

/// Measures folio sizes, with `mib` MiB of data.
///
/// # Errors
/// If uzswap cannot run the work, or no round was completed.
pub fn folios(sides: &Sides, mib: u64, rounds: usize) -> Result<Measured> {
    let measured = Measured {
        title: "Large folios".into(),
        notes: vec![format!(
            "Two processes write {mib} MiB sequentially, twice, with {} MiB of memory for both. µs per \
             stored page: all of the time spent reclaiming.",
            mib / 2
        )],
        figures: work::storing_figures(),
        ratios: FOLIO_GOALS.map(|(folio, _)| pair((folio, "4K"))).to_vec(),
        goals: FOLIO_GOALS
            .map(|(folio, bound)| Goal::new("mb_per_s", Some("zstd:1"), (folio, "4K"), bound))
            .to_vec(),
        ..Measured::default()
    };
    compare(measured, sides, &FOLIOS, &["lz4", "zstd:1"], 2, mib, rounds)
}

/// Measures an accelerator, with `mib` MiB of data.
///
/// # Errors
/// If uzswap cannot run the work, or no round was completed.
pub fn batches(sides: &Sides, mib: u64, rounds: usize) -> Result<Measured> {
    let mut figures = work::storing_figures();
    figures.extend(BATCH_COUNTERS.map(|(key, name)| Figure::new(key, name, "pages")));
    let measured = Measured {
        title: "Batches".into(),
        notes: vec![format!(
            "A process writes {mib} MiB sequentially, twice, with {} MiB of memory. µs per stored page: \
             all of the time spent reclaiming.",
            mib / 2
        )],
        figures,
        ratios: vec![pair(("batch", "software"))],
        ..Measured::default()
    };
    let codecs = ["lz4", "zstd:1", "deflate:1"];
    compare(measured, sides, &BATCHES, &codecs, 1, mib, rounds)
}

/// Fills `measured` with each variant by each codec, by `processes` processes.
fn compare(
    mut measured: Measured,
    sides: &Sides,
    variants: &[Variant],
    codecs: &[&str],
    processes: u64,
    mib: u64,
    rounds: usize,
) -> Result<Measured> {
    work::check_memory(mib)?;
    let named = |&(key, name, _): &Variant| pair((key, name));
    measured.sides = variants.iter().map(named).collect();
    let limits = Limits {
        ram_mib: mib / 2,
        pool_mib: None,
        swap_mib: mib * 2,
    };
    let tasks = Tasks {
        each_mib: mib / processes,
        processes,
        ..Tasks::default()
    };
    measured.fill(rounds, variants.len() * codecs.len(), |round| {
        for &codec in codecs {
            let mut sides = sides.clone();
            sides.compressor = codec.into();
            for &(key, name, options) in variants {
                round.at(codec, name);
                let mut job = tasks.job(&sides.uzswap);
                job.options = options.iter().map(Into::into).collect();
                let Some(run) = sides.run(Side::Uzswap, limits, &job, round.progress)? else {
                    continue;
                };
                let mut values = work::storing_values(&run)?;
                for (counter, _) in BATCH_COUNTERS {
                    let value = run.stats[counter].as_f64();
                    values.extend(value.map(|value| (counter.to_owned(), value)));
                }
                round.add(codec, key, values);
            }
        }
        Ok(())
    })?;
    Ok(measured)
}
