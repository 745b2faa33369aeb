//! `--swap` and `--swap-max`: which file or block device takes the memory that does not fit.
//!
//! *What*: opens the first place that serves, and says in one line what was wrong with each that does not:
//! its path, the reason, what is tried next.
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
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};

pub use area::SwapArea;

use crate::args::Swap;
use crate::size::Size;
use area::Limits;

/// Environment variable that names the directory for swap files.
pub const DIR_ENV: &str = "UZSWAP_SWAP_DIR";
/// The directory if that names none that serves.
const DEFAULT_DIR: &str = "/var/tmp";

/// What was found.
#[derive(Debug)]
pub struct Choice {
    /// None: nothing serves, or nothing is wanted.
    pub area: Option<SwapArea>,
    /// One line each for what did not serve, to be shown to the user.
    pub notes: Vec<String>,
}

/// Opens what `--swap` and `--swap-max` ask for.
///
/// # Errors
/// A file or device was named that may not or cannot be used, or `max` is too small: one line with the way out.
pub fn choose(swap: &Swap, max: Option<Size>) -> Result<Choice> {
    let dirs = default_dirs(std::env::var_os(DIR_ENV));
    choose_from(swap, &dirs, &Limits::of_process(max)?)
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

fn choose_from(swap: &Swap, default_dirs: &[PathBuf], limits: &Limits) -> Result<Choice> {
    let mut dirs = default_dirs.to_vec();
    match swap {
        Swap::None => dirs.clear(),
        Swap::Auto => {}
        Swap::Path(path) => match fs::metadata(path) {
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
                dirs.retain(|dir| dir != path);
                dirs.insert(0, path.clone());
            }
        },
    }
    Ok(first_of(&dirs, limits))
}

/// What the user named itself is used or refused, and never replaced by something else.
fn named(path: &Path, area: Result<SwapArea>) -> Result<Choice> {
    let area = area.map_err(|reason| anyhow!("--swap {}: {reason:#}", path.display()))?;
    Ok(Choice {
        area: Some(area),
        notes: Vec::new(),
    })
}

/// An unnamed file in the first directory where there can be one.
fn first_of(dirs: &[PathBuf], limits: &Limits) -> Choice {
    let mut notes = Vec::new();
    for (dir, next) in dirs.iter().zip(1..) {
        match file::in_directory(dir, limits, &mut notes) {
            Ok(area) => {
                return Choice {
                    area: Some(area),
                    notes,
                };
            }
            Err(reason) => {
                let next = dirs.get(next).map_or_else(
                    || "going on without swap".to_owned(),
                    |next| format!("trying {}", next.display()),
                );
                notes.push(format!("no swap in {}: {reason:#}; {next}", dir.display()));
            }
        }
    }
    Choice { area: None, notes }
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
