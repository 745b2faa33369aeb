//! A temporary directory.
//!
//! *What*: a directory that its owner removes, or, if the owner was killed, the next one to make
//! one.
//! *Invariants*: the owner holds a lock on its directory; one that can be locked has no owner. The
//! lock is tried, never waited for.
//! *Locking*: `flock` on the directory, which ends with the process.
//! *Context*: the bench and analyze commands.

use std::fs::{self, File};
use std::io::{ErrorKind, Result as IoResult};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

/// Prefix of their names.
const PREFIX: &str = "uzswap-bench.";

/// A fresh directory below `TMPDIR`, removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    dir: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Makes one.
    ///
    /// # Errors
    /// If `TMPDIR` cannot be written.
    pub fn new() -> Result<Self> {
        static LEFTOVERS: Once = Once::new();
        let place = std::env::temp_dir();
        LEFTOVERS.call_once(|| remove_leftovers(&place));
        Self::within(&place)
    }

    fn within(place: &Path) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let dir = place.join(format!("{PREFIX}{}.{number}", std::process::id()));
            match fs::create_dir(&dir) {
                // A process of another machine or an earlier one had the same number.
                Err(why) if why.kind() == ErrorKind::AlreadyExists => continue,
                made => made.with_context(|| format!("cannot make {}", dir.display()))?,
            }
            // Until it was locked, another process may have removed it as a leftover.
            if let Ok(lock) = lock(&dir) {
                return Ok(Self { dir, _lock: lock });
            }
        }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Locks a directory that exists and has no owner.
fn lock(dir: &Path) -> IoResult<File> {
    let file = File::open(dir)?;
    // SAFETY: no memory effects.
    let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0;
    // It may have been removed between open and flock.
    if locked && dir.exists() {
        Ok(file)
    } else {
        Err(ErrorKind::WouldBlock.into())
    }
}

/// Removes the directories in `place` whose owners were killed, except another user's.
fn remove_leftovers(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().starts_with(PREFIX)
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Ok(_ours) = lock(&entry.path())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_owner_left_is_removed_and_nothing_else() {
        let place = Scratch::new().unwrap();
        let place = place.path();
        let owned = Scratch::within(place).unwrap();
        fs::write(owned.path().join("data"), "mine").unwrap();
        // A killed owner's lock is gone.
        let left = place.join("uzswap-bench.4194304.7");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("data"), "left").unwrap();
        let other = place.join("something else");
        fs::create_dir(&other).unwrap();
        remove_leftovers(place);
        assert!(owned.path().join("data").exists() && other.exists());
        assert!(!left.exists());
        let dir = owned.path().to_owned();
        drop(owned);
        assert!(!dir.exists());
    }
}
