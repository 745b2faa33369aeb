//! The suite `saving`: the least memory at which a program keeps 95 % of its speed.
//!
//! *What*: for each program and side, by bisection over the limit; a probe is one run, compared with the median of the
//! native runs, one of which is made beside each probe. A probe that is too slow is ended as soon as that is known.
//! *Invariants*: what is saved is what the program takes natively, less all memory of the side, its pool included.
//! *Locking*: none.
//! *Context*: the bench command; takes many minutes.

use std::time::Duration;

use anyhow::{Result, bail};

use super::{Installed, LEAST_MIB, Program, Size, prepare, room};
use crate::compare::{Figure, Goal, Measured, Run};
use crate::sides::{Job, Side, Sides};
use uzswap_corpus::Scratch;
use uzswap_corpus::progress::Progress;
use uzswap_corpus::rounds::median;

/// Share of its speed that a program must keep.
const SPEED: f64 = 0.95;
/// Probes of a bisection: the answer is within 1/64 of what the program takes, or 1/16.
const PROBES: usize = 6;
const QUICK_PROBES: usize = 4;
/// Where all programs are added up.
const TOGETHER: &str = "all together";
/// What the project wants to save, as a multiple of what the kernel's zswap does.
const GOAL: f64 = 1.3;

/// Measures `programs`, as far as they are installed.
///
/// # Errors
/// If none of them is, one fails, or no round was completed.
pub fn measure(
    sides: &mut Sides,
    programs: &[Program],
    size: Size,
    rounds: usize,
) -> Result<Measured> {
    let probes = if size == Size::Quick {
        QUICK_PROBES
    } else {
        PROBES
    };
    let scratch = Scratch::new()?;
    let installed = prepare(programs, size, &scratch, &mut sides.skipped)?;
    let ratio = ("uzswap".to_owned(), "kernel-zswap".to_owned());
    let more = |key: &str, name: &str, unit: &str| Figure {
        more_is_better: true,
        ..Figure::new(key, name, unit)
    };
    let mut measured = Measured {
        title: "Memory saved at 95 % of the speed".into(),
        notes: vec![format!(
            "For each program the least memory, pool included, at which it takes at most 1/{SPEED} of its time natively, by bisection in {probes} probes; a native run \
             beside each. Natively: what it takes."
        )],
        sides: sides.columns(),
        figures: vec![
            Figure::new("ram_mib", "least memory", "MiB").in_chart("Least memory"),
            more("saved_mib", "saved", "MiB").in_chart("Saved"),
            more("saved_percent", "saved", "%"),
        ],
        ratios: vec![ratio.clone()],
        goals: vec![Goal {
            figure: "saved_mib".into(),
            job: Some(TOGETHER.into()),
            ratio,
            bound: GOAL,
        }],
        ..Measured::default()
    };
    let searched: Vec<Side> = [Side::KernelZswap, Side::Uzswap]
        .into_iter()
        .filter(|&side| sides.takes_part(side))
        .collect();
    let steps = installed.len() * (1 + searched.len() * probes * 2);
    measured.fill(rounds, steps, |round, progress| {
        let mut runs = Vec::new();
        for program in &installed {
            let Some(mut search) = Search::start(sides, program, progress)? else {
                break;
            };
            runs.push(search.run(round, Side::Native, search.peak_mib));
            for &side in &searched {
                progress.at(&format!(
                    "round {}, {}, {}",
                    round + 1,
                    program.name,
                    side.key()
                ));
                if let Some(ram_mib) = search.least(sides, side, probes, progress)? {
                    runs.push(search.run(round, side, ram_mib));
                }
            }
        }
        let complete = |side: &Side| {
            let key = side.key();
            runs.iter().filter(|run| run.side == key).count() == installed.len()
        };
        let together: Vec<Run> = [Side::Native]
            .iter()
            .chain(&searched)
            .filter(|side| complete(side))
            .map(|&side| added_up(&runs, round, side))
            .collect();
        runs.extend(together);
        Ok(runs)
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
        let ran = sides.natively(&program.job, progress)?;
        Ok(ran.map(|ran| Self {
            program,
            peak_mib: ran.anon_mib,
            native_s: vec![ran.wall_s],
        }))
    }

    /// Least RAM, MiB; all that it takes natively where no less keeps the speed.
    fn least(
        &mut self,
        sides: &mut Sides,
        side: Side,
        probes: usize,
        progress: &Progress,
    ) -> Result<Option<u64>> {
        // Limits are searched; the kernel's pool comes on top.
        let (mut low, mut high) = (LEAST_MIB.min(self.peak_mib), self.peak_mib);
        let mut least = self.peak_mib;
        for _ in 0..probes {
            let middle = low.midpoint(high);
            let Some(native) = sides.natively(&self.program.job, progress)? else {
                return Ok(None);
            };
            self.native_s.push(native.wall_s);
            let allowed = median(self.native_s.iter().copied()).unwrap_or(0.0) / SPEED;
            let job = Job {
                patience: Some(Duration::from_secs_f64(allowed)),
                ..self.program.job.clone()
            };
            match sides.run(side, room(middle, &native), &job, progress) {
                Ok(Some(ran)) if ran.stdout != native.stdout => bail!(
                    "{} prints something else under {} than natively",
                    self.program.name,
                    side.key()
                ),
                Ok(Some(ran)) => {
                    high = middle;
                    least = least.min(ran.ram_mib.unwrap_or(middle));
                }
                Ok(None) => return Ok(None),
                // What takes too long, or cannot run with so little, does not keep its speed.
                Err(_) => low = middle,
            }
        }
        Ok(Some(least))
    }

    fn run(&self, round: usize, side: Side, ram_mib: u64) -> Run {
        run(
            round,
            self.program.name,
            side,
            ram_mib as f64,
            self.peak_mib as f64,
        )
    }
}

/// What `job` needs at least where natively it takes `peak_mib`.
fn run(round: usize, job: &str, side: Side, ram_mib: f64, peak_mib: f64) -> Run {
    let saved = (peak_mib - ram_mib).max(0.0);
    let mut values = vec![("ram_mib".to_owned(), ram_mib)];
    if side != Side::Native {
        values.push(("saved_mib".to_owned(), saved));
        values.push(("saved_percent".to_owned(), saved * 100.0 / peak_mib));
    }
    Run {
        round,
        job: job.into(),
        side: side.key().into(),
        values: values.into_iter().collect(),
    }
}

/// What all programs of a round need together.
fn added_up(runs: &[Run], round: usize, side: Side) -> Run {
    let sum = |side: Side| -> f64 {
        let of_side = runs.iter().filter(|run| run.side == side.key());
        of_side.filter_map(|run| run.values.get("ram_mib")).sum()
    };
    run(round, TOGETHER, side, sum(side), sum(Side::Native))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_added_up_with_what_they_take_natively() {
        let runs = [
            run(0, "one", Side::Native, 300.0, 300.0),
            run(0, "one", Side::Uzswap, 240.0, 300.0),
            run(0, "two", Side::Native, 100.0, 100.0),
            run(0, "two", Side::Uzswap, 100.0, 100.0),
        ];
        let together = added_up(&runs, 0, Side::Uzswap);
        assert_eq!(together.job, TOGETHER);
        assert_eq!(together.values["saved_mib"], 60.0);
        assert_eq!(together.values["saved_percent"], 15.0);
        let natively = added_up(&runs, 0, Side::Native);
        assert_eq!(natively.values["ram_mib"], 400.0);
        assert!(!natively.values.contains_key("saved_mib"));
    }
}
