//! *What*: wakes the supervisor when somebody changes a limit or a cgroup reaches one: inotify on
//! the files, which needs nothing but that they may be read. The kernel reports its own changes of
//! `memory.events` in the same way.
//!
//! *Invariants*: SIGIO comes while nothing is queued that was not drained before; it is blocked,
//! and ends the supervisor's wait. What is queued and equal to what comes next adds nothing.
//! *Locking*: none. *Context*: the supervisor's only thread.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Watched files.
#[derive(Debug)]
pub struct Watch {
    inotify: File,
}

impl Watch {
    /// Watches those of `files` that exist. None where the kernel has no inotify left for us.
    pub fn new(files: &[PathBuf]) -> Option<Self> {
        // SAFETY: no memory effects.
        let fd = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
        if fd < 0 {
            return None;
        }
        let watch = Watch {
            // SAFETY: a new descriptor that nobody else has.
            inotify: unsafe { File::from_raw_fd(fd) },
        };
        for file in files {
            watch.add(file);
        }
        let own = std::process::id().cast_signed();
        let flags = libc::O_ASYNC | libc::O_NONBLOCK;
        // SAFETY: plain integers; no memory effects.
        let failed = unsafe {
            libc::fcntl(fd, libc::F_SETOWN, own) < 0 || libc::fcntl(fd, libc::F_SETFL, flags) < 0
        };
        (!failed).then_some(watch)
    }

    fn add(&self, file: &Path) {
        if let Ok(path) = CString::new(file.as_os_str().as_bytes()) {
            let fd = self.inotify.as_raw_fd();
            // SAFETY: `path` is a string that lives through the call.
            unsafe { libc::inotify_add_watch(fd, path.as_ptr(), libc::IN_MODIFY) };
        }
    }

    /// Whether any file has changed since the last call.
    pub fn drain(&mut self) -> bool {
        let mut events = [0; 4096];
        let mut any = false;
        while matches!(self.inotify.read(&mut events), Ok(1..)) {
            any = true;
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_once() {
        let dir = std::env::temp_dir();
        let file = dir.join(format!("uzswap-watch-{}", std::process::id()));
        std::fs::write(&file, "max").unwrap();
        // SIGIO would end the test.
        // SAFETY: ignoring a signal has no memory effects.
        unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
        let missing = dir.join("no such file");
        let mut watch = Watch::new(&[missing, file.clone()]).unwrap();
        assert!(!watch.drain());
        std::fs::write(&file, "1000").unwrap();
        assert!(watch.drain() && !watch.drain());
        std::fs::remove_file(&file).unwrap();
    }
}
