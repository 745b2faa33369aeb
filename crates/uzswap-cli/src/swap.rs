//! *What*: `--swap` and `--swap-max`: opens the first usable place of each `--swap`. Each unusable
//! one gets a line with its path, the reason and what is tried next.
//!
//! *Invariants*
//! - No data is overwritten: a file must be empty, or it or the block device must have the
//!   signature of a swap area (`mkswap`), as the kernel demands.
//! - Nothing is left behind, however the run ends, unless the user named the file: a file in a
//!   directory has no name.
//! - Memory is not swapped to memory: no tmpfs, no RAM disk, no zram.
//! - Nobody else uses the area while its file is open in any process.
//!
//! *Locking*: flock on each area. *Context*: `uzswap run`.

mod area;
mod block;
mod disk;
mod file;
pub mod shared;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use uzswap_group::group::NR_DEVICES;

pub use area::SwapArea;

use crate::args::{Place, Swap};
use crate::size::Size;
use area::Limits;

/// Environment variable that names the directory for swap files.
pub const DIR_ENV: &str = "UZSWAP_SWAP_DIR";
/// The directory if that one is not usable.
const DEFAULT_DIR: &str = "/var/tmp";

/// The swap areas to use.
#[derive(Debug)]
pub struct Choice {
    /// In the order of `--swap`; empty if none is usable or wanted.
    pub areas: Vec<SwapArea>,
    /// One line for each unusable place, for the user.
    pub notes: Vec<String>,
}

/// Opens the areas that `--swap` and `--swap-max` ask for.
///
/// # Errors
/// A named file or device cannot be used or is named twice, or `max` is too small. One line, with
/// what to do.
pub fn choose(swaps: &[Swap], max: Option<Size>) -> Result<Choice> {
    let dirs = default_dirs(std::env::var_os(DIR_ENV));
    choose_from(swaps, &dirs, Limits::of_process(max)?)
}

/// The directories to try by default, `named` first.
fn default_dirs(named: Option<OsString>) -> Vec<PathBuf> {
    let named = named.filter(|dir| !dir.is_empty());
    named
        .into_iter()
        .chain([DEFAULT_DIR.into()])
        .map(PathBuf::from)
        .collect()
}

fn choose_from(swaps: &[Swap], default_dirs: &[PathBuf], mut limits: Limits) -> Result<Choice> {
    check_together(swaps)?;
    let mut choice = Choice {
        areas: Vec::new(),
        notes: Vec::new(),
    };
    for (swap, at) in swaps.iter().zip(1..) {
        let alone = swaps.len() == 1;
        let found = open(&swap.place, alone, default_dirs, &limits, &mut choice.notes)?;
        if let Some(mut area) = found {
            // As with swapon, areas without a priority come last, in order.
            area.priority = swap.priority.map_or(-at, i32::from);
            limits.promise(&area);
            choice.areas.push(area);
        }
    }
    Ok(choice)
}

/// Fails if the places exclude each other.
fn check_together(swaps: &[Swap]) -> Result<()> {
    if swaps.len() > NR_DEVICES {
        bail!(
            "--swap is given {} times: {NR_DEVICES} is the most",
            swaps.len()
        );
    }
    for (swap, at) in swaps.iter().zip(1..) {
        if swap.place == Place::None && (swaps.len() > 1 || swap.priority.is_some()) {
            bail!(
                "--swap none must be given alone: leave out either it or all other places and priorities"
            );
        }
        let again = swaps[at..].iter().any(|next| next.place == swap.place);
        match &swap.place {
            Place::Path(path) if again && !path.is_dir() => {
                bail!("--swap {} is given twice: name another", path.display())
            }
            _ => {}
        }
    }
    Ok(())
}

/// The area at `place`; none, with a note, if it is not usable. If `place` is the only one
/// (`alone`), other directories are tried, too.
fn open(
    place: &Place,
    alone: bool,
    default_dirs: &[PathBuf],
    limits: &Limits,
    notes: &mut Vec<String>,
) -> Result<Option<SwapArea>> {
    let mut dirs = default_dirs.to_vec();
    match place {
        Place::None => return Ok(None),
        Place::Auto => {}
        Place::Path(path) => match fs::metadata(path) {
            Ok(meta) if meta.is_file() => return named(path, file::given(path, limits)),
            Ok(meta) if meta.file_type().is_block_device() => {
                return named(path, block::given(path, limits));
            }
            Ok(meta) if !meta.is_dir() => bail!(
                "--swap {}: neither a directory nor a file nor a block device: name one of these",
                path.display()
            ),
            // An unreadable path is tried as a directory, which gives the reason for the note.
            Ok(_) | Err(_) => {
                dirs.retain(|dir| dir != path && alone);
                dirs.insert(0, path.clone());
            }
        },
    }
    let without = if alone { "swap" } else { "it" };
    Ok(first_of(&dirs, without, limits, notes))
}

/// A file or device that the user named is used or refused, never replaced by another.
fn named(path: &Path, area: Result<SwapArea>) -> Result<Option<SwapArea>> {
    area.map(Some)
        .map_err(|reason| anyhow!("--swap {}: {reason:#}", path.display()))
}

/// An unnamed file in the first usable directory. The last note says what the run goes on
/// `without`.
fn first_of(
    dirs: &[PathBuf],
    without: &str,
    limits: &Limits,
    notes: &mut Vec<String>,
) -> Option<SwapArea> {
    for (dir, next) in dirs.iter().zip(1..) {
        match file::in_directory(dir, limits, notes) {
            Ok(area) => return Some(area),
            Err(reason) => {
                let next = dirs.get(next).map_or_else(
                    || format!("going on without {without}"),
                    |next| format!("trying {}", next.display()),
                );
                notes.push(format!("no swap in {}: {reason:#}; {next}", dir.display()));
            }
        }
    }
    None
}

/// The text of a system error, without its number.
fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such directory".to_owned(),
        ErrorKind::NotADirectory => "not a directory".to_owned(),
        ErrorKind::PermissionDenied => "not writable".to_owned(),
        ErrorKind::ReadOnlyFilesystem => "the file system is read-only".to_owned(),
        _ => {
            let text = error.to_string();
            let cut = text.find(" (os error").unwrap_or(text.len());
            text[..cut].to_lowercase()
        }
    }
}
