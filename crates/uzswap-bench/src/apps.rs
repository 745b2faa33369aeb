//! The suites `apps`, `build` and `saving`: real programs.
//!
//! *What*: each program natively, under the kernel's zswap and under uzswap, with the same total memory: for the kernel a
//! quarter of what the program takes natively beside its pool, for uzswap that and what the pool grew to in the run before;
//! without the kernel about what that would be.
//! A program that does not get on with so little on one side is noted as left out there, and the others go on.
//! *Invariants*: sides take turns within each round. What a program prints must be the same on all sides.
//! *Locking*: none.
//! *Context*: the bench command; the kernel's sides need root.

mod program;
mod saving;

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use crate::compare::{Figure, Measured, Run};
use crate::sides::{Ran, Room, Side, Sides};
pub use program::{Program, Size, build, chosen};
pub use saving::measure as saving;
use uzswap_corpus::Scratch;
use uzswap_corpus::progress::Progress;
use uzswap_corpus::refused;

/// Whom uzswap is compared with unless others are asked for.
pub const USUAL: [Side; 2] = [Side::Native, Side::KernelZswap];
/// Natively first: it tells how much memory that takes; then zswap, which tells what uzswap gets.
const ORDER: [Side; 5] = [
    Side::Native,
    Side::KernelZswap,
    Side::Uzswap,
    Side::KernelSwap,
    Side::Zram,
];

/// Measures `programs`, as far as they are installed.
///
/// # Errors
/// If none of them is, one fails or prints something else than natively, or no round was completed.
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
            "The limit of the kernel's zswap and zram is a quarter of what the program takes natively, beside their pool; uzswap and plain swap get that \
             limit plus zswap's pool, which is in the row RAM. Natively that row has the most anonymous memory of all processes together. \
             --ram holds for each process, so where two run at once each gets half."
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
    let mut peaks = Peaks::default();
    measured.fill(rounds, installed.len() * ORDER.len(), |round, progress| {
        let mut runs = Vec::new();
        for program in &installed {
            runs.extend(one(sides, program, &mut peaks, round, progress)?);
        }
        Ok(runs)
    })?;
    Ok(measured)
}

/// Native comes first: how much slower a program is with less memory is what people ask.
fn ratios() -> Vec<(String, String)> {
    let mut ratios = Sides::ratios();
    ratios.push(("uzswap".into(), "native".into()));
    ratios
}

/// What each program took natively.
type Peaks = BTreeMap<&'static str, Ran>;

fn one(
    sides: &mut Sides,
    program: &Installed,
    peaks: &mut Peaks,
    round: usize,
    progress: &Progress,
) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    let mut total_mib = None;
    for side in ORDER {
        progress.at(&format!(
            "round {}, {}, {}",
            round + 1,
            program.name,
            side.key()
        ));
        // Needed once even if natively is not to be measured.
        let only_to_know = side == Side::Native && !sides.takes_part(side);
        if only_to_know && peaks.contains_key(program.name) {
            progress.step();
            continue;
        }
        let Some(ran) = under(
            sides,
            side,
            program,
            peaks.get(program.name),
            total_mib,
            progress,
        )?
        else {
            continue;
        };
        if side == Side::KernelZswap {
            total_mib = ran.ram_mib;
        }
        if !only_to_know {
            runs.push(run(round, program, side, &ran));
        }
        if side == Side::Native {
            peaks.insert(program.name, ran);
        }
    }
    Ok(runs)
}

/// One run, if it comes to a good end; `natively` is what was seen there, `total_mib` what zswap took.
fn under(
    sides: &mut Sides,
    side: Side,
    program: &Installed,
    natively: Option<&Ran>,
    total_mib: Option<u64>,
    progress: &Progress,
) -> Result<Option<Ran>> {
    let Some(native) = natively.filter(|_| side != Side::Native) else {
        return sides.natively(&program.job, progress);
    };
    let limit = if matches!(side, Side::KernelZswap | Side::Zram) {
        native.anon_mib / 4
    } else {
        // Without zswap to compare with: about what its pool would have taken.
        total_mib.unwrap_or(native.anon_mib / 4 + native.anon_mib * 3 / 16)
    };
    let ran = sides.run(side, room(limit, native), &program.job, progress);
    let lost = match ran {
        Ok(Some(ran)) if ran.stdout == native.stdout => return Ok(Some(ran)),
        Ok(None) => return Ok(None),
        Ok(Some(_)) => bail!(
            "{} prints something else under {} than natively",
            program.name,
            side.key()
        ),
        Err(lost) => lost,
    };
    // What does not get on with so little is a result, too.
    let line = format!("{} under {}: {lost:#}", program.name, sides.name(side));
    progress.say(&format!("SKIPPED {line}"));
    if !sides.skipped.contains(&line) {
        sides.skipped.push(line);
    }
    Ok(None)
}

/// Room for a program of which something is known.
fn room(limit_mib: u64, native: &Ran) -> Room {
    Room {
        limit_mib: limit_mib.max(LEAST_MIB),
        pool_mib: None,
        swap_mib: native.anon_mib * 2 + 64,
    }
}

/// No program starts in less than this.
const LEAST_MIB: u64 = 24;

fn run(round: usize, program: &Installed, side: Side, ran: &Ran) -> Run {
    let values = [
        ("wall_s", ran.wall_s),
        ("cpu_s", ran.cpu_s),
        ("ram_mib", ran.ram_mib.unwrap_or(ran.anon_mib) as f64),
    ];
    Run {
        round,
        job: program.name.into(),
        side: side.key().into(),
        values: values.map(|(key, value)| (key.to_owned(), value)).into(),
    }
}

/// A program with what it works on.
pub(crate) struct Installed {
    name: &'static str,
    job: crate::sides::Job,
}

/// Writes what the programs work on; those that are missing are noted in `skipped`.
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
