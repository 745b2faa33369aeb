//! The suites `apps`, `build` and `saving`: real programs.
//!
//! *What*: each program natively, under the kernel's zswap and under uzswap, with the same total
//! memory. The kernel has a quarter of what the program takes natively, beside its pool; uzswap has
//! that plus the peak of the pool in the run before, or, without the kernel, about what that would
//! be. A program that a side cannot run in that little memory is noted as skipped there.
//! *Invariants*: sides take turns within each round. A program must print the same on all sides.
//! *Locking*: none.
//! *Context*: the bench command; the kernel's sides need root.

mod program;
mod saving;

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use uzswap_corpus::progress::Progress;
use uzswap_corpus::{Scratch, refused};

use crate::compare::{self, CurrentRound, Figure, Measured, Values};
use crate::sides::{Completed, Job, Limits, NATIVE_FIRST, Side, Sides};
pub use program::{Program, Size, build, chosen};
pub use saving::measure as saving;

/// Peers by default.
pub const DEFAULT_PEERS: [Side; 2] = [Side::Native, Side::KernelZswap];

/// Measures those of `programs` that are installed.
///
/// # Errors
/// If none is, one prints something else than natively, or no round was completed.
pub fn measure(
    title: &str,
    sides: &mut Sides,
    programs: &[Program],
    size: Size,
    rounds: usize,
) -> Result<Measured> {
    let scratch = Scratch::new()?;
    let installed = prepare(programs, size, &scratch, &mut sides.skipped)?;
    let mut measured = Measured {
        title: title.into(),
        notes: vec![
            "The kernel's zswap and zram have a quarter of what the program takes natively as their \
             limit, beside their pool; uzswap and plain swap have that limit plus zswap's pool, which \
             row RAM shows. Natively that row shows the peak of anonymous memory of all processes."
                .into(),
        ],
        sides: sides.columns(),
        figures: vec![
            Figure::new("wall_s", "time", "s").in_chart("Time"),
            Figure::new("cpu_s", "processor time", "CPU s").in_chart("Processor time"),
            Figure::new("ram_mib", "RAM", "MiB").in_chart("RAM"),
        ],
        ratios: ratios(),
        ..Measured::default()
    };
    let mut native = NativeRuns::default();
    measured.fill(rounds, installed.len() * NATIVE_FIRST.len(), |round| {
        for program in &installed {
            measure_program(sides, program, &mut native, round)?;
        }
        Ok(())
    })?;
    Ok(measured)
}

/// With the native run, too: the cost of less memory is what users ask for.
fn ratios() -> Vec<(String, String)> {
    let mut ratios = Sides::ratios();
    ratios.push(("uzswap".into(), "native".into()));
    ratios
}

/// The first native run of each program.
type NativeRuns = BTreeMap<&'static str, Completed>;

fn measure_program(
    sides: &mut Sides,
    program: &Installed,
    native: &mut NativeRuns,
    round: &mut CurrentRound<'_>,
) -> Result<()> {
    let mut total_mib = None;
    for side in NATIVE_FIRST {
        round.at(program.name, side.key());
        // One native run is needed even if `native` is no peer.
        let only_for_limits = side == Side::Native && !sides.takes_part(side);
        if only_for_limits && native.contains_key(program.name) {
            round.progress.step();
            continue;
        }
        let known = native.get(program.name);
        let run = run_on(sides, side, program, known, total_mib, round.progress)?;
        let Some(run) = run else { continue };
        if side == Side::KernelZswap {
            total_mib = run.ram_mib;
        }
        if !only_for_limits {
            round.add(program.name, side.key(), values(&run));
        }
        if side == Side::Native {
            native.insert(program.name, run);
        }
    }
    Ok(())
}

/// One run, if it succeeds, given the native run and what zswap took in this round.
fn run_on(
    sides: &mut Sides,
    side: Side,
    program: &Installed,
    native: Option<&Completed>,
    total_mib: Option<u64>,
    progress: &Progress,
) -> Result<Option<Completed>> {
    let Some(native) = native.filter(|_| side != Side::Native) else {
        return sides.natively(&program.job, progress);
    };
    let limit = if matches!(side, Side::KernelZswap | Side::Zram) {
        native.anon_mib / 4
    } else {
        // About what zswap's pool would take, if it is not measured.
        total_mib.unwrap_or(native.anon_mib / 4 + native.anon_mib * 3 / 16)
    };
    let run = sides.run(side, limits(limit, native), &program.job, progress);
    let failure = match run {
        Ok(Some(run)) if run.stdout == native.stdout => return Ok(Some(run)),
        Ok(None) => return Ok(None),
        Ok(Some(_)) => bail!(
            "{} prints something else under {} than natively",
            program.name,
            side.key()
        ),
        Err(failure) => failure,
    };
    // That a program needs more memory is a result, too.
    let line = format!("{} under {}: {failure:#}", program.name, sides.name(side));
    progress.say(&format!("SKIPPED {line}"));
    if !sides.skipped.contains(&line) {
        sides.skipped.push(line);
    }
    Ok(None)
}

/// Limits for a program whose native run is known.
fn limits(ram_mib: u64, native: &Completed) -> Limits {
    Limits {
        ram_mib: ram_mib.max(MIN_RAM_MIB),
        pool_mib: None,
        swap_mib: native.anon_mib * 2 + 64,
    }
}

/// No program starts in less memory.
const MIN_RAM_MIB: u64 = 24;

fn values(run: &Completed) -> Values {
    let ram_mib = run.ram_mib.unwrap_or(run.anon_mib) as f64;
    compare::values([
        ("wall_s", run.wall_s),
        ("cpu_s", run.cpu_s),
        ("ram_mib", ram_mib),
    ])
}

/// A program whose input is written.
struct Installed {
    name: &'static str,
    job: Job,
}

/// Writes the programs' input; those not installed are noted in `skipped`.
fn prepare(
    programs: &[Program],
    size: Size,
    scratch: &Scratch,
    skipped: &mut Vec<String>,
) -> Result<Vec<Installed>> {
    let mut installed = Vec::new();
    for program in programs {
        match program.job(scratch.path(), size) {
            Ok(job) => installed.push(Installed {
                name: program.name,
                job,
            }),
            Err(why) => {
                let line = format!("{}: {why:#}", program.name);
                eprintln!("SKIPPED {line}");
                skipped.push(line);
            }
        }
    }
    if installed.is_empty() {
        return Err(refused("none of the programs is installed"));
    }
    Ok(installed)
}
