//! The suite `batch`: pages handed to an accelerator's workers in batches, and compressed in software.
//!
//! *What*: a process writes twice the memory that it has, in order, twice. The accelerator is two
//! threads: what hardware would gain does not show.
//! *Invariants*: the ways take turns within each round.
//! *Locking*: none.
//! *Context*: the bench command.

use anyhow::Result;

use crate::compare::{Figure, Measured, Run};
use crate::sides::{Room, Side, Sides};
use crate::work::{self, Tasks};

/// The ways, with the options of `uzswap run` that make them.
const WAYS: [(&str, &str, &[&str]); 2] = [
    ("software", "in software", &[]),
    ("batch", "engines:2, in batches", &["--accel", "engines:2"]),
];
const CODECS: [&str; 3] = ["lz4", "zstd:1", "deflate:1"];

/// Measures, with `mib` MiB of data.
///
/// # Errors
/// If uzswap cannot run the work, or no round was completed.
pub fn measure(sides: &Sides, mib: u64, rounds: usize) -> Result<Measured> {
    work::check_memory(mib)?;
    let mut figures = work::storing_figures();
    figures.extend([
        Figure::new("accel_compressed", "by devices", "pages"),
        Figure::new(
            "accel_fallback",
            "by software though there are devices",
            "pages",
        ),
    ]);
    let mut measured = Measured {
        title: "Batches".into(),
        notes: vec![format!(
            "A process writes {mib} MiB in order, twice, with {} MiB of memory. µs of a page stored: all of the time spent reclaiming.",
            mib / 2
        )],
        sides: WAYS
            .map(|(key, name, _)| (key.to_owned(), name.to_owned()))
            .to_vec(),
        figures,
        ratios: vec![("batch".to_owned(), "software".to_owned())],
        ..Measured::default()
    };
    measured.fill(rounds, WAYS.len() * CODECS.len(), |round, progress| {
        let mut runs = Vec::new();
        for codec in CODECS {
            let mut sides = sides.clone();
            sides.compressor = codec.into();
            for (key, name, options) in WAYS {
                progress.at(&format!("round {}, {codec}, {name}", round + 1));
                let tasks = Tasks {
                    each_mib: mib,
                    processes: 1,
                    repeat: 2,
                    random: false,
                    same_filled: false,
                };
                let mut job = tasks.job(&sides.uzswap);
                job.options = options.iter().map(Into::into).collect();
                let room = Room {
                    limit_mib: mib / 2,
                    pool_mib: None,
                    swap_mib: mib * 2,
                };
                let Some(ran) = sides.run(Side::Uzswap, room, &job, progress)? else {
                    continue;
                };
                let mut values = work::storing_values(&ran)?;
                for counter in ["accel_compressed", "accel_fallback"] {
                    let value = ran.stats[counter].as_f64();
                    values.extend(value.map(|value| (counter.to_owned(), value)));
                }
                runs.push(Run {
                    round,
                    job: codec.into(),
                    side: key.into(),
                    values,
                });
            }
        }
        Ok(runs)
    })?;
    Ok(measured)
}
