//! `--swap` and `--swap-max`: which files and block devices take the memory that does not fit.
//!
//! *What*: for each `--swap` opens the first place that serves, and says in one line what was wrong with each that does
//! not: its path, the reason, what is tried next.
//! *Invariants*:
//! - Nothing that holds data is overwritten: a file is used if it is empty, a file or block device if it bears the
//!   signature of a swap area (`mkswap`), the rule that the kernel has.
//! - Nothing is left behind, whenever and however the run ends, unless the user named the file: a file in a
//!   directory has no name.
//! - Memory is no place to swap memory to: no tmpfs, no ramdisk, no zram.
//! - The area stays ours alone while the descriptor is open, in whichever process.

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
/// The directory if that names none that serves.
const DEFAULT_DIR: &str = "/var/tmp";

/// What was found.
#[derive(Debug)]
pub struct Choice {
    /// In the order of `--swap`. None: nothing serves, or nothing is wanted.
    pub areas: Vec<SwapArea>,
    /// One line each for what did not serve, to be shown to the user.
    pub notes: Vec<String>,
}

/// Opens what all `--swap` and `--swap-max` ask for.
///
/// # Errors
/// A file or device was named that may not or cannot be used, or twice, or `max` is too small: one line with the way out.
pub fn choose(swaps: &[Swap], max: Option<Size>) -> Result<Choice> {
    let dirs = default_dirs(std::env::var_os(DIR_ENV));
    choose_from(swaps, &dirs, Limits::of_process(max)?)
}

/// The directories that are tried unasked, `named` first.
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
            // As with swapon: those without a priority come last, one after the other.
            area.priority = swap.priority.map_or(-at, i32::from);
            limits.promise(&area);
            choice.areas.push(area);
        }
    }
    Ok(choice)
}

/// Whether all of them can be had at once.
fn check_together(swaps: &[Swap]) -> Result<()> {
    if swaps.len() > NR_DEVICES {
        bail!(
            "--swap is given {} times: {NR_DEVICES} is the most",
            swaps.len()
        );
    }
    for (swap, at) in swaps.iter().zip(1..) {
        if swap.place == Place::None && (swaps.len() > 1 || swap.priority.is_some()) {
            bail!("--swap none stands alone: leave it out, or everything else");
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

/// The area at `place`; `None`, with a note, if there can be none. `alone`: then other directories are tried, too.
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
            // What cannot be looked at is tried as the directory that it may be, and said to be missing.
            Ok(_) | Err(_) => {
                dirs.retain(|dir| dir != path && alone);
                dirs.insert(0, path.clone());
            }
        },
    }
    let without = if alone { "swap" } else { "it" };
    Ok(first_of(&dirs, without, limits, notes))
}

/// What the user named itself is used or refused, and never replaced by something else.
fn named(path: &Path, area: Result<SwapArea>) -> Result<Option<SwapArea>> {
    area.map(Some)
        .map_err(|reason| anyhow!("--swap {}: {reason:#}", path.display()))
}

/// An unnamed file in the first directory where there can be one. If there is none, it goes on `without`.
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

/// What an error of the system says, without its number.
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
