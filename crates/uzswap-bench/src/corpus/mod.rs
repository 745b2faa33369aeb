//! Pages of real programs, for measuring codecs on.
//!
//! *What*: starts programs that are installed here, lets each come to a realistic state, and writes a sample of its
//! memory to a file. Such files are made where they are needed and never kept in a repository: they are memory of this machine.
//! *Invariants*: a `.pages` file is complete: it gets its name when all of it is written.
//! *Locking*: none.
//! *Context*: the bench command. Only programs that were started here are read, stopped and ended.

mod program;
mod sample;
mod scratch;
pub(crate) mod source;

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context, Result};

use crate::progress::Progress;
use crate::refused;
pub(crate) use program::{find, write};
pub use sample::{anonymous, sample};
pub use scratch::Scratch;
pub use uzswap_usemem::corpus::EXTENT;
use uzswap_usemem::corpus::{EXTENSION, files};

/// Writes up to `bytes` of memory of each program into `dir`; returns how many programs that were.
///
/// # Errors
/// If `dir` cannot be written. A program that is missing or fails is left out with a line.
pub fn make(dir: &Path, bytes: usize) -> Result<usize> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let scratch = Scratch::new()?;
    let programs = program::all();
    let progress = Progress::new(programs.len(), "programs");
    let mut made = 0;
    for program in programs {
        if crate::interrupt::happened() {
            break;
        }
        progress.at(program.name);
        match one(&program, &scratch, dir, bytes) {
            Ok(taken) => {
                made += 1;
                progress.say(&format!(
                    "{:<8} {} of {} MiB: {}",
                    program.name,
                    taken.written >> 20,
                    taken.resident >> 20,
                    program.what
                ));
            }
            // It may have ended by the same ^C.
            Err(_) if crate::interrupt::happened() => break,
            Err(why) => progress.say(&format!("SKIPPED {}: {why:#}", program.name)),
        }
        progress.step();
    }
    Ok(made)
}

fn one(
    program: &program::Program,
    scratch: &Scratch,
    dir: &Path,
    bytes: usize,
) -> Result<sample::Taken> {
    let running = program.start(scratch)?;
    let part = dir.join(format!("{}.part", program.name));
    let mut file = BufWriter::new(
        File::create(&part).with_context(|| format!("cannot write {}", part.display()))?,
    );
    let taken = running.stopped(|pid| sample(pid, bytes, &mut file));
    let taken = taken.and_then(|taken| {
        anyhow::ensure!(taken.written > 0, "it has no 64 KiB of private memory");
        file.into_inner().context("cannot write the sample")?;
        fs::rename(&part, dir.join(program.name).with_extension(EXTENSION))?;
        Ok(taken)
    });
    if taken.is_err() {
        let _ = fs::remove_file(&part);
    }
    taken
}

/// One program's pages.
#[derive(Debug)]
pub struct Dump {
    /// Name of the program.
    pub name: String,
    /// Its pages, whole extents.
    pub bytes: Vec<u8>,
}

/// Reads a corpus; at most `bytes` of each program, evenly over its file.
///
/// # Errors
/// Refuses what is no corpus.
pub fn load(dir: &Path, bytes: usize) -> Result<Vec<Dump>> {
    let mut dumps = Vec::new();
    for path in files(dir).map_err(refused)? {
        let all = read(&path)?;
        let picked = sample::evenly(all.len() / EXTENT, bytes / EXTENT)
            .flat_map(|i| &all[i * EXTENT..(i + 1) * EXTENT])
            .copied()
            .collect();
        dumps.push(Dump {
            name: path
                .file_stem()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default(),
            bytes: picked,
        });
    }
    Ok(dumps)
}

/// Reads a corpus once, so that no side is charged for having it in the page cache.
///
/// # Errors
/// Refuses what is no corpus.
pub fn warm(dir: &Path) -> Result<()> {
    for path in files(dir).map_err(refused)? {
        read(&path)?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
