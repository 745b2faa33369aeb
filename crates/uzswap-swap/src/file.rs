//! *What*: swap areas in regular files: unnamed ones in a directory, and those that the user named.
//!
//! *Locking*: flock on each file. *Context*: `uzswap run`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use uzswap_group::group::is_alive;

use crate::area::{self, Limits, SwapArea};
use crate::{disk, plain};

/// An unnamed file in `dir`; a note if it had a name for a moment.
pub fn in_directory(dir: &Path, limits: &Limits, notes: &mut Vec<String>) -> Result<SwapArea> {
    let said = |error: io::Error| anyhow!("{}", plain(&error));
    let (file, had_name) = match unnamed(dir) {
        Err(error) if has_no_unnamed(&error) => (removed(dir).map_err(said)?, true),
        file => (file.map_err(said)?, false),
    };
    area::lock_first(&file)?;
    let free = free_on_disk(&file)?;
    let nr_slots = limits.of_new_file(file.metadata()?.dev(), free)?;
    let area = SwapArea::new(file, dir, nr_slots)?;
    if had_name {
        notes.push(format!(
            "swap in {}: this file system has no O_TMPFILE; using a file whose name was removed at once",
            dir.display()
        ));
    }
    Ok(area)
}

/// Bytes free where `file` is, which must not be memory.
fn free_on_disk(file: &File) -> Result<u64> {
    let file_system = disk::FileSystem::of(file)?;
    if let Some(name) = file_system.in_memory() {
        bail!("it is on a {name}, which is memory itself");
    }
    Ok(file_system.free)
}

/// A file that never has a name, and that nobody else can read.
fn unnamed(dir: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        // O_EXCL: it cannot be linked to a name later.
        .custom_flags(libc::O_TMPFILE | libc::O_EXCL)
        .mode(0o600)
        .open(dir)
}

/// Whether the error means that the file system has no `O_TMPFILE`. Old ones then open the
/// directory.
fn has_no_unnamed(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)
    )
}

/// Prefix of the names that are removed at once; process id and a number follow.
const PREFIX: &str = ".uzswap-";

/// A file whose name is removed as soon as it exists.
pub fn removed(dir: &Path) -> io::Result<File> {
    remove_leftovers(dir);
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for attempt in 0..16 {
        let path = dir.join(format!("{PREFIX}{}-{attempt}", std::process::id()));
        let created = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        match created {
            Ok(file) => {
                match fs::remove_file(&path) {
                    // A run in another pid namespace took it for a leftover.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    removed => removed?,
                }
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Removes the empty files of processes that were killed before they removed them.
fn remove_leftovers(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let owner = owner.and_then(|rest| rest.split_once('-')?.0.parse().ok());
        let is_empty = || {
            let meta = entry.metadata();
            meta.is_ok_and(|meta| meta.is_file() && meta.len() == 0)
        };
        if owner.is_some_and(|pid| !is_alive(pid)) && is_empty() {
            // In a shared directory another user's file cannot be removed.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The file `path`, if it is empty or a swap area.
pub fn given(path: &Path, limits: &Limits) -> Result<SwapArea> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|error| anyhow!("{}", plain(&error)))?;
    let free = free_on_disk(&file)?;
    area::lock_first(&file)?;
    let meta = file.metadata()?;
    match meta.len() {
        0 => SwapArea::new(file, path, limits.of_new_file(meta.dev(), free)?),
        len => SwapArea::existing(file, path, limits.of_area(len)?),
    }
}
