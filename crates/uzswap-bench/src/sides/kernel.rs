//! A command under the kernel's own means: a swap file, zswap in front of it, or zram.
//!
//! *What*: sets up what the side needs, runs a command in a memory cgroup with a limit, and
//! measures how large the pool grew and how much went to disk.
//! *Invariants*: every change is in the [`Journal`] first. The cgroup is removed before the swap
//! file, so that nothing is swapped out then. No other swap is in use meanwhile, so the machine's
//! counters are the command's.
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
use uzswap_corpus::proc_kib;

use super::cgroup::Cgroup;
use super::{Disk, Limits, Side};
use crate::machine::Machine;
use crate::undo::{Journal, Step};

const ZSWAP: &str = "/sys/module/zswap/parameters";
const ZRAM: &str = "/sys/class/zram-control";
const VM: &str = "/proc/sys/vm";
const JOURNAL: &str = "/run/uzswap-bench.journal";
/// Tools that switch zswap, of which a machine has one, share this lock.
const LOCK: &str = "/run/kernel-zswap-run.lock";
/// A directory on a real disk.
const SWAP_DIR: &str = "/var/tmp";

/// A limited cgroup and a swap device; undone when dropped.
#[derive(Debug)]
pub struct Kernel {
    side: Side,
    cgroup: Cgroup,
    /// The zram device.
    zram: Option<PathBuf>,
    /// Peak of the pool, bytes; polled.
    pool_peak: u64,
    /// Pages swapped out and in before the command.
    before: [u64; 2],
    _journal: Journal,
}

/// One line that says what this kernel lacks for `side`, if anything.
pub fn lacks(side: Side, compressor: &str) -> Option<String> {
    let has = |path: &str| Path::new(path).exists();
    match side {
        Side::KernelZswap if !has(ZSWAP) => Some("this kernel has no zswap".into()),
        Side::KernelZswap if !has_compressor(compressor) => {
            Some(format!("this kernel has no compressor {compressor}"))
        }
        Side::Zram if !has(ZRAM) => {
            Some("this kernel has no zram, or its module is not loaded: try 'modprobe zram'".into())
        }
        _ => None,
    }
}

/// Whether the kernel may have a compressor. A module that it would load shows only when it is set.
fn has_compressor(name: &str) -> bool {
    let listed = fs::read_to_string("/proc/crypto").is_ok_and(|text| {
        text.lines()
            .filter_map(|line| line.strip_prefix("name")?.split(':').nth(1))
            .any(|found| found.trim() == name)
    });
    listed || Path::new("/proc/modules").exists()
}

impl Kernel {
    /// Sets `side` up.
    ///
    /// # Errors
    /// If the machine lacks something, or zswap or swap is in use.
    pub fn set_up(side: Side, compressor: &str, limits: Limits) -> Result<Self> {
        let mut journal = Journal::open(Path::new(JOURNAL), Path::new(LOCK))?;
        let enabled = fs::read_to_string(Path::new(ZSWAP).join("enabled")).unwrap_or_default();
        ensure!(
            enabled.trim() != "Y",
            "zswap is already in use on this machine"
        );
        let swaps = fs::read_to_string("/proc/swaps")?;
        ensure!(
            swaps.lines().count() <= 1,
            "a swap device is already in use on this machine"
        );
        if side == Side::KernelZswap {
            switch_zswap_on(&mut journal, compressor, limits)?;
        }
        if side != Side::KernelSwap {
            // Readahead pays for disks, not for RAM.
            journal.set(&Path::new(VM).join("page-cluster"), "0")?;
        }
        let zram = if side == Side::Zram {
            Some(make_zram(&mut journal, limits.swap_mib << 20)?)
        } else {
            make_swap(&mut journal, limits.swap_mib << 20)?;
            None
        };
        let cgroup = Cgroup::make(&mut journal, side, limits)?;
        Ok(Self {
            side,
            cgroup,
            zram,
            pool_peak: 0,
            before: swapped()?,
            _journal: journal,
        })
    }

    /// Makes `command` start in the cgroup.
    ///
    /// # Errors
    /// If the cgroup is gone.
    pub fn enclose(&self, command: &mut Command) -> Result<()> {
        let procs = File::options()
            .write(true)
            .open(self.cgroup.dir.join("cgroup.procs"))?;
        let enter = move || {
            // "0" means the writing process.
            // SAFETY: write(2) of one byte from a constant, which is allowed between fork and exec.
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

    /// Updates the peak of the pool; to be called often while the command runs.
    pub fn poll(&mut self) {
        let now = match (self.side, &self.zram) {
            (Side::KernelZswap, _) => pool_bytes().ok(),
            (_, Some(device)) => zram_bytes(device),
            _ => None,
        };
        self.pool_peak = self.pool_peak.max(now.unwrap_or(0));
    }

    /// RAM of the command, pool included, MiB.
    pub fn ram_mib(&self, limits: Limits) -> u64 {
        if self.side == Side::KernelZswap && self.cgroup.charges_pool {
            limits.ram_mib + limits.pool_mib.unwrap_or(0)
        } else {
            limits.ram_mib + (self.pool_peak >> 20)
        }
    }

    /// Swap traffic since the start, zswap's writeback included.
    pub fn disk(&self) -> Disk {
        if self.side == Side::Zram {
            return Disk::default();
        }
        let now = swapped().unwrap_or(self.before);
        let mib = |at: usize| now[at].saturating_sub(self.before[at]) as f64 / 256.0;
        Disk {
            written_mib: mib(0),
            read_mib: mib(1),
        }
    }
}

/// Pages that the kernel has swapped out to and in from devices.
fn swapped() -> Result<[u64; 2]> {
    let text = fs::read_to_string("/proc/vmstat")?;
    let counter = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
            .with_context(|| format!("this kernel does not count {name}"))
    };
    Ok([counter("pswpout")?, counter("pswpin")?])
}

fn switch_zswap_on(journal: &mut Journal, compressor: &str, limits: Limits) -> Result<()> {
    let zswap = Path::new(ZSWAP);
    pool_bytes()?;
    journal
        .set(&zswap.join("compressor"), compressor)
        .ok()
        .filter(|()| {
            fs::read_to_string(zswap.join("compressor")).is_ok_and(|now| now.trim() == compressor)
        })
        .with_context(|| format!("this kernel has no compressor {compressor}"))?;
    let percent = limits
        .pool_mib
        .map_or(50, |mib| (mib / pool_step_mib()).clamp(1, 100))
        .to_string();
    for (name, value) in [
        ("max_pool_percent", percent.as_str()),
        ("shrinker_enabled", "N"),
        ("enabled", "Y"),
    ] {
        journal.set(&zswap.join(name), value)?;
    }
    Ok(())
}

/// Granularity of zswap's maximum pool size, MiB: a hundredth of the memory.
pub fn pool_step_mib() -> u64 {
    (Machine::here().memory_mib / 100).max(1)
}

/// Memory of a zram device, bytes.
fn zram_bytes(device: &Path) -> Option<u64> {
    let text = fs::read_to_string(device.join("mm_stat")).ok()?;
    text.split_whitespace().nth(2)?.parse().ok()
}

/// Size of zswap's pool, bytes.
fn pool_bytes() -> Result<u64> {
    proc_kib("/proc/meminfo", "Zswap:")
        .map(|kib| kib << 10)
        .context("this kernel does not report zswap in /proc/meminfo")
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
    swap_on(journal, &path)
}

/// Makes a zram device; returns its directory in /sys.
fn make_zram(journal: &mut Journal, size: u64) -> Result<PathBuf> {
    // Reading the file makes a device and returns its number.
    let number = fs::read_to_string(Path::new(ZRAM).join("hot_add"))
        .context("no zram device can be made")?;
    let name = format!("zram{}", number.trim());
    journal.note(Step::RemoveZram(name.clone()))?;
    let device = Path::new("/sys/block").join(&name);
    fs::write(device.join("disksize"), size.to_string())
        .with_context(|| format!("{name} cannot be {} MiB large", size >> 20))?;
    swap_on(journal, &Path::new("/dev").join(&name))?;
    Ok(device)
}

/// Makes a swap area on a file or device and swaps to it.
fn swap_on(journal: &mut Journal, path: &Path) -> Result<()> {
    for (tool, step) in [
        ("mkswap", None),
        ("swapon", Some(Step::SwapOff(path.to_owned()))),
    ] {
        step.map_or(Ok(()), |step| journal.note(step))?;
        let done = Command::new(tool)
            .arg(path)
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
