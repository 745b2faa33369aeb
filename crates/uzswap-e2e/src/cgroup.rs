//! A memory cgroup with a hard limit and no swap.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::scratch::own_name;
use crate::skip;

/// A memory cgroup (v1 or v2) below the caller's, removed when dropped. A process enters it by
/// writing its pid to [`HardLimit::procs`].
#[derive(Debug)]
pub struct HardLimit {
    dir: PathBuf,
    unified: bool,
}

impl HardLimit {
    /// Makes a cgroup, or returns why this machine does not allow it.
    fn new(bytes: u64) -> Result<Self, String> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|e| e.to_string())?;
        let v1 = own
            .lines()
            .find_map(|l| l.split_once(":memory:").map(|(_, path)| path));
        let (base, unified) = if let Some(path) = v1 {
            (
                Path::new("/sys/fs/cgroup/memory").join(path.trim_start_matches('/')),
                false,
            )
        } else {
            let path = own
                .lines()
                .find_map(|l| l.strip_prefix("0::"))
                .unwrap_or("/");
            (
                Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/')),
                true,
            )
        };
        // A v2 group with processes may not hand out controllers: go up to one that may.
        let mut parents: Vec<&Path> = vec![&base];
        if unified {
            parents = base
                .ancestors()
                .take_while(|p| p.starts_with("/sys/fs/cgroup"))
                .collect();
        }
        let mut why = String::new();
        for parent in parents {
            let limit = Self {
                dir: parent.join(own_name()),
                unified,
            };
            match limit.make(parent, bytes) {
                Ok(()) => return Ok(limit),
                Err(e) => why = format!("{}: {e}", limit.dir.display()),
            }
        }
        Err(format!("no memory cgroup can be made: {why}"))
    }

    /// Makes a cgroup limited to `bytes`, or skips the story visibly with the reason.
    #[must_use]
    pub fn new_or_skip(bytes: u64) -> Option<Self> {
        Self::new(bytes).map_err(|why| skip(&why)).ok()
    }

    fn make(&self, parent: &Path, bytes: u64) -> io::Result<()> {
        if self.unified {
            // May be on already, or refused for processes in the parent; the limit file will show.
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory");
        }
        fs::create_dir(&self.dir)?;
        if self.unified {
            fs::write(self.dir.join("memory.max"), bytes.to_string())?;
            // Absent if the kernel has no swap accounting.
            let _ = fs::write(self.dir.join("memory.swap.max"), "0");
        } else {
            fs::write(self.dir.join("memory.limit_in_bytes"), bytes.to_string())?;
            fs::write(self.dir.join("memory.swappiness"), "0")?;
        }
        Ok(())
    }

    /// The file to which a process writes its id to enter.
    #[must_use]
    pub fn procs(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// Changes the limit. Whether the kernel did that: v1 refuses a limit that it cannot enforce,
    /// where v2 ends processes.
    #[must_use]
    pub fn set(&self, bytes: u64) -> bool {
        let name = if self.unified {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        fs::write(self.dir.join(name), bytes.to_string()).is_ok()
    }

    /// Number of OOM kills in it.
    ///
    /// # Panics
    /// If the kernel does not count them.
    #[must_use]
    pub fn oom_kills(&self) -> u64 {
        oom_kills(&self.dir).expect("the kernel counts its kills")
    }

    /// Highest memory charge, bytes; `None` if the kernel does not keep it.
    #[must_use]
    pub fn peak(&self) -> Option<u64> {
        let name = if self.unified {
            "memory.peak"
        } else {
            "memory.max_usage_in_bytes"
        };
        fs::read_to_string(self.dir.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    }
}

/// Number of OOM kills in the memory cgroup at `dir`.
pub(crate) fn oom_kills(dir: &Path) -> Option<u64> {
    let files = ["memory.events", "memory.oom_control"];
    let text = files.map(|name| fs::read_to_string(dir.join(name)).unwrap_or_default());
    let mut lines = text.iter().flat_map(|text| text.lines());
    let count = lines.find_map(|line| line.strip_prefix("oom_kill "))?;
    count.trim().parse().ok()
}

impl Drop for HardLimit {
    fn drop(&mut self) {
        // Its last process may still be exiting.
        for _ in 0..50 {
            if fs::remove_dir(&self.dir).is_ok() || !self.dir.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        eprintln!("could not remove {}", self.dir.display());
    }
}
