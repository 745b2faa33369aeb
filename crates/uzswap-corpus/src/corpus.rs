//! A corpus: files with samples of the memory of real programs, one per program.
//!
//! *What*: starts installed programs, brings each to a realistic state and writes a sample of its
//! memory; reads the files again. A corpus is made where it is needed and never kept in a
//! repository: it holds memory of this machine.
//! *Invariants*: a `.pages` file is complete: it gets its name when all of it is written.
//! *Locking*: none.
//! *Context*: the bench command. It reads, stops and kills only programs that it started.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context, Result};
use uzswap_usemem::corpus::{EXTENSION, EXTENT, files};

use crate::program::{self, Program};
use crate::progress::Progress;
use crate::sample::{Sampled, evenly, sample};
use crate::{Scratch, interrupt, refused};

/// Writes up to `bytes` of the memory of each program into `dir`; returns the number of programs.
///
/// # Errors
/// If `dir` cannot be written. A program that is missing or fails is skipped with a line.
pub fn make(dir: &Path, bytes: usize) -> Result<usize> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let scratch = Scratch::new()?;
    let programs = program::all();
    let progress = Progress::new(programs.len(), "programs");
    let mut nr_written = 0;
    for program in programs {
        if interrupt::happened() {
            break;
        }
        progress.at(program.name);
        match write_sample(&program, &scratch, dir, bytes) {
            Ok(sampled) => {
                nr_written += 1;
                progress.say(&format!(
                    "{:<8} {} of {} MiB: {}",
                    program.name,
                    sampled.written >> 20,
                    sampled.resident >> 20,
                    program.what
                ));
            }
            // The same ^C may have ended the program.
            Err(_) if interrupt::happened() => break,
            Err(why) => progress.say(&format!("SKIPPED {}: {why:#}", program.name)),
        }
        progress.step();
    }
    Ok(nr_written)
}

fn write_sample(program: &Program, scratch: &Scratch, dir: &Path, bytes: usize) -> Result<Sampled> {
    let running = program.start(scratch)?;
    let part = dir.join(format!("{}.part", program.name));
    let mut file = BufWriter::new(
        File::create(&part).with_context(|| format!("cannot write {}", part.display()))?,
    );
    let sampled = running.stop().and_then(|pid| {
        let sampled = sample(pid, bytes, &mut file)?;
        anyhow::ensure!(sampled.written > 0, "it has no 64 KiB of private memory");
        file.into_inner().context("cannot write the sample")?;
        fs::rename(&part, dir.join(program.name).with_extension(EXTENSION))?;
        Ok(sampled)
    });
    if sampled.is_err() {
        let _ = fs::remove_file(&part);
    }
    sampled
}

/// One program's pages.
#[derive(Debug)]
pub struct Dump {
    /// Name of the program.
    pub name: String,
    /// Whole extents of its memory.
    pub bytes: Vec<u8>,
}

/// Reads a corpus: at most `bytes` of each program, spread evenly over its file.
///
/// # Errors
/// Refuses a directory that holds no corpus.
pub fn load(dir: &Path, bytes: usize) -> Result<Vec<Dump>> {
    let mut dumps = Vec::new();
    for path in files(dir).map_err(refused)? {
        let all = read(&path)?;
        let picked = evenly(all.len() / EXTENT, bytes / EXTENT)
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

/// Reads a corpus into the page cache, so that no side is charged for it.
///
/// # Errors
/// Refuses a directory that holds no corpus.
pub fn warm(dir: &Path) -> Result<()> {
    for path in files(dir).map_err(refused)? {
        read(&path)?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
