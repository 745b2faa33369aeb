//! The suite `store`: memory reclaimed in folios of 4 KiB, 64 KiB and 2 MiB.
//!
//! *What*: two processes write twice the memory that they have, in order, as vm-scalability's `usemem -O -w` does, then again. What is
//! compared is uzswap with itself: how much a store and the whole gain where folios are stored whole.
//! *Invariants*: the sizes take turns within each round.
//! *Locking*: none.
//! *Context*: the bench command.

use anyhow::Result;

use crate::compare::{Goal, Measured, Run};
use crate::sides::{Room, Side, Sides};
use crate::work::{self, Tasks};

const FOLIOS: [&str; 3] = ["4K", "64K", "2M"];
const CODECS: [&str; 2] = ["lz4", "zstd:1"];
/// What the kernel's series reported for zstd: the size, and its throughput as a multiple of that of 4 KiB.
const GOALS: [(&str, f64); 2] = [("64K", 1.20), ("2M", 1.13)];

/// Measures, with `mib` MiB of data.
///
/// # Errors
/// If uzswap cannot run the work, or no round was completed.
pub fn measure(sides: &Sides, mib: u64, rounds: usize) -> Result<Measured> {
    work::check_memory(mib)?;
    let ram_mib = mib / 2;
    let pair = |of: &str| (of.to_owned(), "4K".to_owned());
    let mut measured = Measured {
        title: "Large folios".into(),
        notes: vec![format!(
            "Two processes write {mib} MiB in order, twice, with {ram_mib} MiB of memory for both. µs of a page stored: all of the time spent reclaiming."
        )],
        sides: FOLIOS
            .map(|folio| (folio.to_owned(), format!("{folio} folios")))
            .to_vec(),
        figures: work::storing_figures(),
        ratios: GOALS.map(|(folio, _)| pair(folio)).to_vec(),
        goals: GOALS
            .map(|(folio, bound)| Goal {
                figure: "mb_per_s".into(),
                job: Some("zstd:1".into()),
                ratio: pair(folio),
                bound,
            })
            .to_vec(),
        ..Measured::default()
    };
    measured.fill(rounds, FOLIOS.len() * CODECS.len(), |round, progress| {
        let mut runs = Vec::new();
        for codec in CODECS {
            let mut sides = sides.clone();
            sides.compressor = codec.into();
            for folio in FOLIOS {
                progress.at(&format!("round {}, {codec}, {folio}", round + 1));
                let tasks = Tasks {
                    each_mib: mib / 2,
                    processes: 2,
                    repeat: 2,
                    random: false,
                    same_filled: false,
                };
                let mut job = tasks.job(&sides.uzswap);
                job.options = vec!["--folio".into(), folio.into()];
                let room = Room {
                    limit_mib: ram_mib,
                    pool_mib: None,
                    swap_mib: mib * 2,
                };
                let Some(ran) = sides.run(Side::Uzswap, room, &job, progress)? else {
                    continue;
                };
                runs.push(Run {
                    round,
                    job: codec.into(),
                    side: folio.into(),
                    values: work::storing_values(&ran)?,
                });
            }
        }
        Ok(runs)
    })?;
    Ok(measured)
}
