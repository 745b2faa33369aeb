//! *What*: swap areas, opened for the first use: unnamed files in a directory, files and block
//! devices that the user named; and what the processes that swap to one share of it.
//!
//! - [`named`]: the area at a path; `file`, `block`: of each kind; `disk`: what lies under a path
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

/// Environment variable that names the directory that [`Auto`] stands for.
pub const DIR_ENV: &str = "UZSWAP_SWAP_DIR";
/// The directory if that is not set.
const DEFAULT_DIR: &str = "/var/tmp";

/// The directory that stands for a place that was not named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auto {
    /// Named by [`DIR_ENV`].
    Named(PathBuf),
    /// Named by nobody: if it is not usable there is no swap.
    Default(PathBuf),
}

impl Auto {
    /// As the environment has it.
    #[must_use]
    pub fn of_environment() -> Auto {
        Auto::of(std::env::var_os(DIR_ENV))
    }

    /// As a variable of that value has it.
    #[must_use]
    pub fn of(named: Option<OsString>) -> Auto {
        match named.filter(|dir| !dir.is_empty()) {
            Some(dir) => Auto::Named(dir.into()),
            None => Auto::Default(DEFAULT_DIR.into()),
        }
    }
}

/// The area at `path`, which the user named: used or refused, never replaced by another, so that
/// data goes to no disk that nobody chose. A directory gets an unnamed file. Notes are lines for
/// the user.
///
/// # Errors
/// It cannot be used: why, and what to do, without its path.
pub fn named(path: &Path, limits: &Limits, notes: &mut Vec<String>) -> Result<SwapArea> {
    match fs::metadata(path) {
        Err(error) => Err(anyhow!("{}", unreachable(path, &error))),
        Ok(meta) if meta.is_dir() => file::in_directory(path, limits, notes),
        Ok(meta) if meta.is_file() => file::given(path, limits),
        Ok(meta) if meta.file_type().is_block_device() => block::given(path, limits),
        Ok(_) => bail!("neither a directory nor a file nor a block device: name one of these"),
    }
}

/// Why nothing can be found at `path`.
fn unreachable(path: &Path, error: &std::io::Error) -> String {
    match path.to_string_lossy().split_once("://") {
        Some((kind, _)) => {
            format!("swap to '{kind}' is not known: name a directory, a file or a block device")
        }
        None if error.kind() == ErrorKind::NotFound => {
            "there is no such directory or file: make it, or name another".to_owned()
        }
        None => plain(error),
    }
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
