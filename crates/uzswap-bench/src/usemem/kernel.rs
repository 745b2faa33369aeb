//! The same work under the kernel's zswap.
//!
//! *What*: switches zswap on, gives it a swap file, runs a command in a memory cgroup (v1 or v2) with a limit, and tells how large
//! the pool grew.
//! *Invariants*: everything that is changed stands in the [`Journal`] first. The cgroup goes before the swap file: nobody may be swapped out then.
//! *Locking*: the journal's.
//! *Context*: the bench command, as root.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::undo::{Journal, Step};

const ZSWAP: &str = "/sys/module/zswap/parameters";
const VM: &str = "/proc/sys/vm";
const CGROUPS: &str = "/sys/fs/cgroup";
const JOURNAL: &str = "/run/uzswap-bench.journal";
/// zswap is one for the machine: tools that switch it share this lock.
const LOCK: &str = "/run/kernel-zswap-run.lock";
/// The swap file is made on a real disk.
const SWAP_DIR: &str = "/var/tmp";

/// A limited cgroup above a zswap that is switched on; put back when dropped.
#[derive(Debug)]
pub struct Kernel {
    cgroup: PathBuf,
    /// Whether the kernel charges the pool to the cgroup (v2 does).
    pub charges_pool: bool,
    /// Largest pool seen, bytes.
    pub pool_peak: u64,
    _journal: Journal,
}

impl Kernel {
    /// Sets it up: `limit` and `swap` are bytes.
    ///
    /// # Errors
    /// Says what this machine lacks, or who is in the way.
    pub fn set_up(limit: u64, compressor: &str, swap: u64) -> Result<Self> {
        // SAFETY: no memory effects.
        ensure!(unsafe { libc::geteuid() } == 0, "needs root");
        let zswap = Path::new(ZSWAP);
        ensure!(zswap.exists(), "this kernel has no zswap");
        let mut journal = Journal::open(Path::new(JOURNAL), Path::new(LOCK))?;
        let enabled = fs::read_to_string(zswap.join("enabled"))?;
        ensure!(
            enabled.trim() == "N",
            "zswap is already in use on this machine"
        );
        let swaps = fs::read_to_string("/proc/swaps")?;
        ensure!(
            swaps.lines().count() <= 1,
            "a swap device is already in use on this machine"
        );
        pool_bytes()?;
        journal
            .set(&zswap.join("compressor"), compressor)
            .ok()
            .filter(|()| {
                fs::read_to_string(zswap.join("compressor"))
                    .is_ok_and(|now| now.trim() == compressor)
            })
            .with_context(|| format!("this kernel has no compressor {compressor}"))?;
        for (name, value) in [
            ("max_pool_percent", "50"),
            ("shrinker_enabled", "N"),
            ("enabled", "Y"),
        ] {
            journal.set(&zswap.join(name), value)?;
        }
        journal.set(&Path::new(VM).join("page-cluster"), "0")?;
        make_swap(&mut journal, swap)?;
        let (cgroup, charges_pool) = make_cgroup(&mut journal, limit)?;
        Ok(Self {
            cgroup,
            charges_pool,
            pool_peak: 0,
            _journal: journal,
        })
    }

    /// Has `command` start in the cgroup.
    ///
    /// # Errors
    /// If the cgroup is gone.
    pub fn hold(&self, command: &mut Command) -> Result<()> {
        let procs = File::options()
            .write(true)
            .open(self.cgroup.join("cgroup.procs"))?;
        let enter = move || {
            // "0" is whoever writes it.
            // SAFETY: write(2) of one byte from a constant, as is allowed between fork and exec.
            let written = unsafe { libc::write(procs.as_raw_fd(), b"0".as_ptr().cast(), 1) };
            if written == 1 {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        };
        // SAFETY: the closure only makes a system call.
        unsafe { command.pre_exec(enter) };
        Ok(())
    }

    /// Looks at the pool; to be called often while the command runs.
    pub fn look(&mut self) {
        self.pool_peak = self.pool_peak.max(pool_bytes().unwrap_or(0));
    }
}

/// Bytes of the kernel's compressed pool.
fn pool_bytes() -> Result<u64> {
    fs::read_to_string("/proc/meminfo")?
        .lines()
        .find_map(|line| line.strip_prefix("Zswap:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .map(|kib| kib << 10)
        .context("this kernel does not tell about zswap in /proc/meminfo")
}

fn make_swap(journal: &mut Journal, size: u64) -> Result<()> {
    let path = Path::new(SWAP_DIR).join(format!("uzswap-bench.{}.swap", std::process::id()));
    journal.note(Step::Remove(path.clone()))?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("cannot make {}", path.display()))?;
    // SAFETY: no memory effects.
    let failed = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size.cast_signed()) };
    ensure!(
        failed == 0,
        "{} MiB of swap do not fit {SWAP_DIR}",
        size >> 20
    );
    file.flush()?;
    for (tool, step) in [
        ("mkswap", None),
        ("swapon", Some(Step::SwapOff(path.clone()))),
    ] {
        step.map_or(Ok(()), |step| journal.note(step))?;
        let done = Command::new(tool)
            .arg(&path)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {tool}"))?;
        ensure!(
            done.status.success(),
            "{tool} failed: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        );
    }
    Ok(())
}

/// A memory cgroup below our own, and whether the pool is charged to it.
fn make_cgroup(journal: &mut Journal, limit: u64) -> Result<(PathBuf, bool)> {
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let fields = || {
        own.lines()
            .map(|line| line.splitn(3, ':').collect::<Vec<_>>())
    };
    let name = format!("uzswap-bench.{}", std::process::id());
    let v1 = fields().find(|f| {
        f.get(1)
            .is_some_and(|c| c.split(',').any(|c| c == "memory"))
    });
    if let Some(of) = v1.and_then(|f| f.get(2).map(|path| path.trim_start_matches('/').to_owned()))
    {
        let dir = Path::new(CGROUPS).join("memory").join(of).join(name);
        journal.note(Step::RemoveCgroup(dir.clone()))?;
        fs::create_dir(&dir).context("no memory cgroup can be made here")?;
        fs::write(dir.join("memory.limit_in_bytes"), limit.to_string())?;
        fs::write(dir.join("memory.swappiness"), "100")?;
        return Ok((dir, false));
    }
    let of = fields()
        .find(|f| f.first() == Some(&"0"))
        .and_then(|f| f.get(2).map(|path| path.trim_start_matches('/').to_owned()));
    // A group with processes of its own may not hand out controllers: go up until one may.
    let mut parent = Path::new(CGROUPS).join(of.unwrap_or_default());
    loop {
        let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory");
        let dir = parent.join(&name);
        journal.note(Step::RemoveCgroup(dir.clone()))?;
        if fs::create_dir(&dir).is_ok() && dir.join("memory.max").exists() {
            fs::write(dir.join("memory.max"), limit.to_string())?;
            journal.set(&Path::new(VM).join("swappiness"), "100")?;
            return Ok((dir, true));
        }
        let _ = fs::remove_dir(&dir);
        ensure!(
            parent != Path::new(CGROUPS) && parent.pop(),
            "no cgroup with a memory controller can be made here"
        );
    }
}
