//! Settings of the machine, changed for a run and restored after it, whatever happens.
//!
//! *What*: a journal of the steps to undo. Each step is written down before the change is made. The
//! steps are undone in reverse order when the journal is dropped, and after a crash by the next run
//! that opens it.
//! *Invariants*: undoing a step that was noted but not done does no harm. One process holds the
//! journal at a time. The journal is on a file system that a reboot empties, as a reboot undoes the
//! changes.
//! *Locking*: an exclusive lock on a file, for as long as the journal lives.
//! *Context*: the bench command, as root.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// A step to undo.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Step {
    /// Write the old value of a parameter.
    Restore(PathBuf, String),
    /// Stop swapping to a file.
    SwapOff(PathBuf),
    /// Remove a file.
    Remove(PathBuf),
    /// Remove a zram device.
    RemoveZram(String),
    /// Kill the processes in a cgroup, all of them started by this run, and remove it.
    RemoveCgroup(PathBuf),
}

/// The noted steps, and the file that keeps them.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    steps: Vec<Step>,
    /// Holds the lock.
    _lock: File,
}

impl Journal {
    /// Opens the journal at `path` under the lock file `lock`, and undoes what a crashed run left.
    ///
    /// # Errors
    /// If another run holds the lock.
    pub fn open(path: &Path, lock: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(lock)
            .with_context(|| format!("cannot open {}", lock.display()))?;
        // SAFETY: no memory effects.
        let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0;
        ensure!(locked, "another benchmark of the kernel's zswap is running");
        let steps = match fs::read_to_string(path) {
            Ok(text) => text
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect(),
            Err(why) if why.kind() == ErrorKind::NotFound => Vec::new(),
            Err(why) => return Err(why).with_context(|| format!("cannot read {}", path.display())),
        };
        let mut journal = Self {
            path: path.to_owned(),
            steps,
            _lock: file,
        };
        if !journal.steps.is_empty() {
            eprintln!("uzswap: restoring settings that an earlier run left changed");
            journal.undo();
        }
        Ok(journal)
    }

    /// Notes a step, before the change that it undoes.
    ///
    /// # Errors
    /// If it cannot be written; then the change must not be made.
    pub fn note(&mut self, step: Step) -> Result<()> {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path)
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        writeln!(file, "{}", serde_json::to_string(&step)?)?;
        self.steps.push(step);
        Ok(())
    }

    /// Sets a parameter to `value` until the journal is undone.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn set(&mut self, path: &Path, value: &str) -> Result<()> {
        let old = fs::read_to_string(path).with_context(|| format!("no {}", path.display()))?;
        self.note(Step::Restore(path.to_owned(), old.trim().to_owned()))?;
        fs::write(path, value).with_context(|| format!("{} cannot be {value}", path.display()))
    }

    fn undo(&mut self) {
        while let Some(step) = self.steps.pop() {
            if let Err(why) = step.undo() {
                eprintln!("uzswap: could not undo {step:?}: {why:#}");
            }
        }
        let _ = fs::remove_file(&self.path);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.undo();
    }
}

impl Step {
    fn undo(&self) -> Result<()> {
        match self {
            Step::Restore(path, old) => {
                // Some parameters refuse even their current value.
                if fs::read_to_string(path)?.trim() != old {
                    fs::write(path, old)?;
                }
            }
            Step::SwapOff(path) => {
                let name = CString::new(path.as_os_str().as_bytes())?;
                // SAFETY: `name` is a terminated string.
                let done = unsafe { libc::swapoff(name.as_ptr()) } == 0;
                let why = std::io::Error::last_os_error();
                // EINVAL, ENOENT: it was noted, but never swapped on.
                let never = matches!(why.raw_os_error(), Some(libc::EINVAL | libc::ENOENT));
                ensure!(done || never, "{why}");
            }
            Step::Remove(path) => match fs::remove_file(path) {
                Err(why) if why.kind() != ErrorKind::NotFound => return Err(why.into()),
                _ => {}
            },
            Step::RemoveZram(name) => remove_zram(name)?,
            Step::RemoveCgroup(path) => remove_cgroup(path)?,
        }
        Ok(())
    }
}

fn remove_zram(name: &str) -> Result<()> {
    let device = Path::new("/sys/block").join(name);
    if !device.exists() {
        return Ok(());
    }
    let number = name.trim_start_matches("zram");
    fs::write(device.join("reset"), "1")?;
    fs::write("/sys/class/zram-control/hot_remove", number)?;
    Ok(())
}

fn remove_cgroup(path: &Path) -> Result<()> {
    for _ in 0..50 {
        let Ok(pids) = fs::read_to_string(path.join("cgroup.procs")) else {
            return Ok(());
        };
        for pid in pids.lines().filter_map(|pid| pid.parse().ok()) {
            // SAFETY: no memory effects.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        if fs::remove_dir(path).is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    anyhow::bail!("its processes do not end")
}

#[cfg(test)]
mod tests {
    use super::*;
    use uzswap_corpus::Scratch;

    fn journal(dir: &Path) -> Journal {
        Journal::open(&dir.join("journal"), &dir.join("lock")).unwrap()
    }

    #[test]
    fn parameters_are_restored_in_reverse_order() {
        let scratch = Scratch::new().unwrap();
        let dir = scratch.path();
        let parameter = dir.join("parameter");
        fs::write(&parameter, "old\n").unwrap();
        {
            let mut journal = journal(dir);
            journal.set(&parameter, "new").unwrap();
            journal.set(&parameter, "newer").unwrap();
            assert_eq!(fs::read_to_string(&parameter).unwrap(), "newer");
            journal.note(Step::Remove(dir.join("never made"))).unwrap();
            journal.note(Step::SwapOff(dir.join("never on"))).unwrap();
        }
        assert_eq!(fs::read_to_string(&parameter).unwrap(), "old");
        assert!(!dir.join("journal").exists());
    }

    #[test]
    fn after_a_crash_the_next_run_restores() {
        let scratch = Scratch::new().unwrap();
        let dir = scratch.path();
        let parameter = dir.join("a parameter");
        fs::write(&parameter, "old").unwrap();
        let mut crashed = journal(dir);
        crashed.set(&parameter, "new").unwrap();
        // A killed process closes its files and undoes nothing.
        crashed.steps.clear();
        let kept = fs::read(dir.join("journal")).unwrap();
        drop(crashed);
        fs::write(dir.join("journal"), kept).unwrap();
        drop(journal(dir));
        assert_eq!(fs::read_to_string(&parameter).unwrap(), "old");
    }

    #[test]
    fn one_run_at_a_time() {
        let scratch = Scratch::new().unwrap();
        let first = journal(scratch.path());
        let second = Journal::open(
            &scratch.path().join("journal"),
            &scratch.path().join("lock"),
        );
        assert!(second.unwrap_err().to_string().contains("another"));
        drop(first);
    }
}
