//! The suite `shrink`: a pool that is over its limit, written back until it is down to what it accepts, or a page at a time.
//!
//! *What*: the work of [`crate::disk`], under uzswap alone. The kernel's worker once wrote one page each time that the pool was found too
//! large; the pool then stays too large, and what is resident has no room. That way is kept for this suite only.
//! *Invariants*: the two ways take turns within each round.
//! *Locking*: none.
//! *Context*: the bench command.

use anyhow::Result;

use crate::compare::{Figure, Measured, Run};
use crate::sides::{Room, Side, Sides};
use crate::work::{self, Data, Work};

/// The two ways, with the options of `uzswap run` that make them.
const WAYS: [(&str, &str, &[&str]); 2] = [
    ("one", "a page at a time", &["--shrink-by-page"]),
    ("threshold", "until it can accept", &[]),
];
/// Counters of `uzswap run --stats` that tell what happened.
const COUNTED: [(&str, &str, &str); 4] = [
    ("written_back_pages", "written back", "pages"),
    ("pool_limit_hit", "no room found", "times"),
    ("refaults", "faults on what was evicted", "faults"),
    ("pswpin", "read from disk", "pages"),
];
/// Data, in multiples of the memory.
const TIMES: u64 = 3;

/// Measures, with `mib` MiB of data.
///
/// # Errors
/// If uzswap cannot run the work, or no round was completed.
pub fn measure(sides: &mut Sides, mib: u64, rounds: usize) -> Result<Measured> {
    work::check_memory(mib)?;
    let room = Room {
        limit_mib: mib / TIMES,
        pool_mib: None,
        swap_mib: mib * 2,
    };
    let mut figures = work::figures();
    figures.extend(COUNTED.map(|(key, name, unit)| Figure::new(key, name, unit)));
    let mut measured = Measured {
        title: "Shrinking the pool".into(),
        notes: vec![format!(
            "{mib} MiB of data that compresses about twofold in {} MiB of memory, with the disk behind it.",
            room.limit_mib
        )],
        sides: WAYS
            .map(|(key, name, _)| (key.to_owned(), name.to_owned()))
            .to_vec(),
        figures,
        ratios: vec![("threshold".to_owned(), "one".to_owned())],
        ..Measured::default()
    };
    measured.fill(rounds, WAYS.len(), |round, progress| {
        let work = Work {
            mib,
            threads: 1,
            seed: round + 1,
            data: Data::Records(2),
            accesses: Some(mib * 256 / 4),
        };
        let mut runs = Vec::new();
        for (key, name, options) in WAYS {
            progress.at(&format!("round {}, {name}", round + 1));
            let mut job = work.job(&sides.uzswap);
            job.options = options.iter().map(Into::into).collect();
            let Some(ran) = sides.run(Side::Uzswap, room, &job, progress)? else {
                continue;
            };
            let mut values = work::values(&ran)?;
            values.extend(COUNTED.iter().filter_map(|(counter, ..)| {
                Some(((*counter).to_owned(), ran.stats[*counter].as_f64()?))
            }));
            runs.push(Run {
                round,
                job: work.name(),
                side: key.into(),
                values,
            });
        }
        Ok(runs)
    })?;
    Ok(measured)
}
