//! The suite `saving`: the least memory at which a program keeps 95 % of its speed.
//!
//! *What*: for each program and side, bisection over the limit. A probe is one run, compared with
//! the median of the native runs, one of which is made beside each probe. A probe that is too slow
//! is ended as soon as that is known.
//! *Invariants*: memory saved is what the program takes natively less all memory of the side, pool
//! included.
//! *Locking*: none.
//! *Context*: the bench command; takes many minutes.

use std::time::Duration;

use anyhow::{Result, bail};
use uzswap_corpus::Scratch;
use uzswap_corpus::progress::Progress;
use uzswap_corpus::rounds::median;

use super::{Installed, MIN_RAM_MIB, Program, Size, limits, prepare};
use crate::compare::{CurrentRound, Figure, Goal, Measured, Outcome, Values, pair};
use crate::sides::{Job, Side, Sides};

/// Share of its speed that a program must keep.
const MIN_SPEED: f64 = 0.95;
/// Probes of a bisection: the answer is within 1/64 of what the program takes natively.
const PROBES: usize = 6;
/// The same with `--quick`: within 1/16.
const QUICK_PROBES: usize = 4;
/// Job name of the sum over all programs.
const ALL: &str = "all together";
/// The project's goal for memory saved, as a multiple of what the kernel's zswap saves.
const GOAL: f64 = 1.3;

/// Measures those of `programs` that are installed.
///
/// # Errors
/// If none is, one fails, or no round was completed.
pub fn measure(
    sides: &mut Sides,
    programs: &[Program],
    size: Size,
    rounds: usize,
) -> Result<Measured> {
    let probes = size.choose(QUICK_PROBES, PROBES);
    let scratch = Scratch::new()?;
    let installed = prepare(programs, size, &scratch, &mut sides.skipped)?;
    let ratio = ("uzswap", "kernel-zswap");
    let mut measured = Measured {
        title: "Memory saved at 95 % of the speed".into(),
        notes: vec![format!(
            "For each program the least memory, pool included, at which it takes at most 1/{MIN_SPEED} of \
             its native time, by bisection in {probes} probes with a native run beside each. Native: what \
             the program takes."
        )],
        sides: sides.columns(),
        figures: vec![
            Figure::new("ram_mib", "least memory", "MiB").in_chart("Least memory"),
            Figure::new("saved_mib", "saved", "MiB")
                .more_is_better()
                .in_chart("Saved"),
            Figure::new("saved_percent", "saved", "%").more_is_better(),
        ],
        ratios: vec![pair(ratio)],
        goals: vec![Goal::new("saved_mib", Some(ALL), ratio, GOAL)],
        ..Measured::default()
    };
    let searched: Vec<Side> = [Side::KernelZswap, Side::Uzswap]
        .into_iter()
        .filter(|&side| sides.takes_part(side))
        .collect();
    let steps = installed.len() * (1 + searched.len() * probes * 2);
    measured.fill(rounds, steps, |round| {
        for program in &installed {
            let Some(mut search) = Search::start(sides, program, round.progress)? else {
                break;
            };
            search.add(round, Side::Native, search.peak_mib);
            for &side in &searched {
                round.at(program.name, side.key());
                let min = search.min_ram_mib(sides, side, probes, round.progress)?;
                if let Some(ram_mib) = min {
                    search.add(round, side, ram_mib);
                }
            }
        }
        let outcomes = round.outcomes();
        let is_complete = |side: &Side| {
            let of_side = outcomes.iter().filter(|run| run.side == side.key());
            of_side.count() == installed.len()
        };
        let sums: Vec<(Side, Values)> = [Side::Native]
            .into_iter()
            .chain(searched.iter().copied())
            .filter(is_complete)
            .map(|side| (side, sum(outcomes, side)))
            .collect();
        for (side, values) in sums {
            round.add(ALL, side.key(), values);
        }
        Ok(())
    })?;
    Ok(measured)
}

/// One program's search.
struct Search<'a> {
    program: &'a Installed,
    peak_mib: u64,
    /// Seconds of the native runs so far.
    native_s: Vec<f64>,
}

impl<'a> Search<'a> {
    fn start(
        sides: &mut Sides,
        program: &'a Installed,
        progress: &Progress,
    ) -> Result<Option<Self>> {
        let native = sides.natively(&program.job, progress)?;
        Ok(native.map(|native| Self {
            program,
            peak_mib: native.anon_mib,
            native_s: vec![native.wall_s],
        }))
    }

    /// The least RAM, MiB, that keeps the speed; the native peak if no less does.
    fn min_ram_mib(
        &mut self,
        sides: &mut Sides,
        side: Side,
        probes: usize,
        progress: &Progress,
    ) -> Result<Option<u64>> {
        // The search is over limits; the kernel's pool comes on top.
        let (mut low, mut high) = (MIN_RAM_MIB.min(self.peak_mib), self.peak_mib);
        let mut min = self.peak_mib;
        for _ in 0..probes {
            let middle = low.midpoint(high);
            let Some(native) = sides.natively(&self.program.job, progress)? else {
                return Ok(None);
            };
            self.native_s.push(native.wall_s);
            let allowed = median(self.native_s.iter().copied()).unwrap_or(0.0) / MIN_SPEED;
            let job = Job {
                timeout: Some(Duration::from_secs_f64(allowed)),
                ..self.program.job.clone()
            };
            match sides.run(side, limits(middle, &native), &job, progress) {
                Ok(Some(run)) if run.stdout != native.stdout => bail!(
                    "{} prints something else under {} than natively",
                    self.program.name,
                    side.key()
                ),
                Ok(Some(run)) => {
                    high = middle;
                    min = min.min(run.ram_mib.unwrap_or(middle));
                }
                Ok(None) => return Ok(None),
                // It took too long, or cannot run in so little memory.
                Err(_) => low = middle,
            }
        }
        Ok(Some(min))
    }

    fn add(&self, round: &mut CurrentRound<'_>, side: Side, ram_mib: u64) {
        let values = values(side, ram_mib as f64, self.peak_mib as f64);
        round.add(self.program.name, side.key(), values);
    }
}

/// The figures of a program that needs `ram_mib` on `side` and takes `peak_mib` natively.
fn values(side: Side, ram_mib: f64, peak_mib: f64) -> Values {
    let saved = (peak_mib - ram_mib).max(0.0);
    let mut values = Values::from([("ram_mib".to_owned(), ram_mib)]);
    if side != Side::Native {
        values.insert("saved_mib".to_owned(), saved);
        values.insert("saved_percent".to_owned(), saved * 100.0 / peak_mib);
    }
    values
}

/// The figures of all programs of a round together.
fn sum(outcomes: &[Outcome], side: Side) -> Values {
    let sum = |side: Side| -> f64 {
        let of_side = outcomes.iter().filter(|run| run.side == side.key());
        of_side.filter_map(|run| run.values.get("ram_mib")).sum()
    };
    values(side, sum(side), sum(Side::Native))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_added_up_with_what_they_take_natively() {
        let outcome = |job: &str, side: Side, ram_mib, peak_mib| Outcome {
            round: 0,
            job: job.into(),
            side: side.key().into(),
            values: values(side, ram_mib, peak_mib),
        };
        let outcomes = [
            outcome("one", Side::Native, 300.0, 300.0),
            outcome("one", Side::Uzswap, 240.0, 300.0),
            outcome("two", Side::Native, 100.0, 100.0),
            outcome("two", Side::Uzswap, 100.0, 100.0),
        ];
        let together = sum(&outcomes, Side::Uzswap);
        assert_eq!(together["saved_mib"], 60.0);
        assert_eq!(together["saved_percent"], 15.0);
        let natively = sum(&outcomes, Side::Native);
        assert_eq!(natively["ram_mib"], 400.0);
        assert!(!natively.contains_key("saved_mib"));
    }
}
