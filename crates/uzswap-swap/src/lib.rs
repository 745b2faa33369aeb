//! *What*: swap areas, opened for the first use: unnamed files in a directory, files and block
//! devices that the user named; and what the processes that swap to one share of it.
//!
//! - [`open`]: the area at a [`Place`]; `file`, `block`: of each kind; `disk`: what lies under a path
//! - [`area`]: [`SwapArea`]: limits, signature, lock
//! - [`share`]: describes an area in a group, and makes its slot allocator
//! - [`size`]: sizes as people write them; [`os`]: system calls
//!
//! *Invariants*
//! - No data is overwritten: a file must be empty, or it or the block device must have the
//!   signature of a swap area (`mkswap`), as the kernel demands.
//! - Nothing is left behind, however its users end, unless the user named the file: a file in a
//!   directory has no name.
//! - Memory is not swapped to memory: no tmpfs, no RAM disk, no zram.
//! - Nobody else uses the area while its file is open in any process.
//!
//! *Locking*: flock on each area. *Context*: `uzswap run`; a thread of the library's host.

pub mod area;
mod block;
pub mod disk;
pub mod file;
pub mod os;
pub mod share;
pub mod size;

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};

pub use area::{Limits, SwapArea};

/// Environment variable that names the directory for swap files.
pub const DIR_ENV: &str = "UZSWAP_SWAP_DIR";
/// The directory if that one is not usable.
const DEFAULT_DIR: &str = "/var/tmp";

/// Where data goes that does not fit in RAM even compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file in UZSWAP_SWAP_DIR or /var/tmp, if possible.
    Auto,
    /// No swap device.
    None,
    /// A directory for a swap file, or a file or block device to use as one.
    Path(PathBuf),
}

/// The directories to try by default, `named` first.
#[must_use]
pub fn default_dirs(named: Option<OsString>) -> Vec<PathBuf> {
    let named = named.filter(|dir| !dir.is_empty());
    named
        .into_iter()
        .chain([DEFAULT_DIR.into()])
        .map(PathBuf::from)
        .collect()
}

/// The area at `place`; none, with a note, if it is not usable. If `place` is the only one
/// (`alone`), other directories are tried, too.
///
/// # Errors
/// A named file or device cannot be used. One line, with what to do.
pub fn open(
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
pub(crate) fn plain(error: &std::io::Error) -> String {
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
