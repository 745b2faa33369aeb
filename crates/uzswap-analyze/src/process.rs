//! What `/proc` says about a process, and why it may not.
//!
//! *What*: anonymous memory and how much of it was referenced, processor time, descendants;
//! clearing the referenced bits.
//! *Invariants*: only memory that uzswap would manage counts: anonymous, private, writable, no
//! stack. Files are opened anew each time, because after exec the same pid is another program.
//! *Locking*: none. The kernel walks the page tables under a lock that only mapping and unmapping
//! wait for.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::Result;
use uzswap_corpus::process::{cpu_ticks, cpu_time, proc_kib};
use uzswap_corpus::{Refused, anonymous};

use crate::PAGE;

/// Memory of a process at one moment, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Anonymous pages in memory.
    pub anon: u64,
    /// Those referenced since the referenced bits were cleared.
    pub touched: u64,
    /// Those in huge pages, which have one referenced bit each.
    pub huge: u64,
    /// Pages in the kernel's swap, which do not count.
    pub swapped: u64,
}

/// Reads the memory of `pid`.
///
/// # Errors
/// If it is gone or may not be read.
pub fn memory(pid: u32) -> io::Result<Memory> {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    Ok(Memory::of_smaps(&smaps))
}

impl Memory {
    /// Sums up `smaps`. The kernel writes it piece by piece and continues at the end of the last
    /// mapping, so a mapping that grew meanwhile, or merged with its neighbour, is written again.
    /// Only its later state counts; otherwise a growing heap would seem twice as large.
    #[must_use]
    pub fn of_smaps(smaps: &str) -> Self {
        let mut mappings: Vec<(u64, Memory)> = Vec::new();
        let (mut counts, mut referenced) = (false, 0);
        for line in smaps.lines() {
            let Some((key, value)) = line.split_once(":  ") else {
                // Not "Key:   value", so the first line of a mapping.
                let range = anonymous(line);
                counts = range.is_some();
                if let Some((start, end)) = range {
                    while mappings.last().is_some_and(|&(end, _)| end > start) {
                        mappings.pop();
                    }
                    mappings.push((end, Memory::default()));
                }
                continue;
            };
            let Some((_, memory)) = mappings.last_mut().filter(|_| counts) else {
                continue;
            };
            let pages = || {
                let kib = value.trim().trim_end_matches(" kB").parse::<u64>();
                kib.unwrap_or(0) / (PAGE / 1024)
            };
            // The kernel writes Referenced before Anonymous.
            match key {
                "Referenced" => referenced = pages(),
                "Anonymous" => {
                    memory.anon = pages();
                    // Referenced counts the shared zero page, which is not the process's memory.
                    memory.touched = referenced.min(memory.anon);
                }
                "AnonHugePages" => memory.huge = pages(),
                "Swap" => memory.swapped = pages(),
                _ => {}
            }
        }
        mappings.iter().map(|&(_, memory)| memory).sum()
    }
}

impl std::iter::Sum for Memory {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            anon: sum.anon.saturating_add(one.anon),
            touched: sum.touched.saturating_add(one.touched),
            huge: sum.huge.saturating_add(one.huge),
            swapped: sum.swapped.saturating_add(one.swapped),
        })
    }
}

/// Resident anonymous pages of `pid`, stacks and changed file pages included; needs no page-table
/// walk.
#[must_use]
pub fn anonymous_pages(pid: u32) -> Option<u64> {
    let kib = proc_kib(&format!("/proc/{pid}/status"), "RssAnon:")?;
    Some(kib * 1024 / PAGE)
}

/// Clears the referenced bits.
///
/// # Errors
/// If the process is gone or `/proc` is read-only.
pub fn clear_referenced(pid: u32) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "1")
}

/// Processor time of a process, seconds.
#[must_use]
pub fn cpu_seconds(pid: u32) -> Option<f64> {
    // The file's unit is a hundredth of a second.
    Some(cpu_ticks(pid)? as f64 / 100.0)
}

/// Our own processor time.
#[must_use]
pub fn own_cpu_time() -> Duration {
    cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Name of a process.
#[must_use]
pub fn name(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// Whether process `pid` can be analyzed.
///
/// # Errors
/// Refuses, with one line, a process that is gone, is the kernel's, or may not be read.
pub fn check(pid: u32) -> Result<()> {
    let refuse = |line: String| Err(Refused(line).into());
    let gone = || format!("no process {pid}: it has ended, or never was");
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
        return refuse(gone());
    };
    let field = |name: &str| {
        let value = status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(str::trim)
    };
    if field("State").is_some_and(|state| state.starts_with(['Z', 'X'])) {
        return refuse(format!(
            "process {pid} has ended; its parent has not noticed yet"
        ));
    }
    if field("VmSize").is_none() {
        return refuse(format!(
            "process {pid} is a thread of the kernel: it has no memory of its own"
        ));
    }
    // mem needs the right to trace the process, which smaps does not.
    let readable = memory(pid).and_then(|_| fs::File::open(format!("/proc/{pid}/mem")));
    match readable {
        Ok(_) => Ok(()),
        Err(why) if why.kind() == ErrorKind::PermissionDenied => refuse(forbidden(pid)),
        Err(_) => refuse(gone()),
    }
}

/// Why a process may not be read, and the next step.
fn forbidden(pid: u32) -> String {
    // SAFETY: it only reads.
    let me = unsafe { libc::geteuid() };
    let owner = status_uid(pid);
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if owner.is_some_and(|owner| owner != me) {
        format!(
            "process {pid} belongs to another user: run 'uzswap analyze' as that user, or as root (with CAP_SYS_PTRACE)"
        )
    } else if !matches!(scope.trim(), "" | "0") {
        format!(
            "process {pid} may not be read, because kernel.yama.ptrace_scope is {}: run 'uzswap analyze' as root (with \
             CAP_SYS_PTRACE), set it to 0 with sysctl, or analyze a command: 'uzswap analyze -- COMMAND'",
            scope.trim()
        )
    } else {
        format!(
            "process {pid} may not be read, it has protected itself: run 'uzswap analyze' as root (with CAP_SYS_PTRACE)"
        )
    }
}

/// The user that it is; the owner of its directory in `/proc` is root where it has protected
/// itself.
fn status_uid(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let uid = uids.split_whitespace().nth(1)?.parse().ok();
    uid.or_else(|| Some(fs::metadata(format!("/proc/{pid}")).ok()?.uid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(head: &str, referenced: u64, anonymous: u64) -> String {
        format!(
            "{head}\nSize:               4096 kB\nRss:                 800 kB\nReferenced:     {referenced:8} kB\n\
             Anonymous:      {anonymous:8} kB\nAnonHugePages:         0 kB\nSwap:                 40 kB\n\
             VmFlags: rd wr mr mw me ac \n"
        )
    }

    const HEAP: &str =
        "55d000000000-55d000400000 rw-p 00000000 00:00 0                          [heap]";
    const PLAIN: &str = "7f1000000000-7f1000400000 rw-p 00000000 00:00 0 ";

    #[test]
    fn only_anonymous_memory_is_added_up() {
        let file = mapping(
            "7f0000000000-7f0000400000 rw-p 00000000 fe:00 12 /lib/x.so",
            96,
            96,
        );
        assert_eq!(
            Memory::of_smaps(&(mapping(HEAP, 400, 800) + &file + &mapping(PLAIN, 900, 800))),
            Memory {
                anon: 400,
                touched: 300,
                huge: 0,
                swapped: 20
            }
        );
    }

    #[test]
    fn a_mapping_that_grew_while_it_was_read_counts_once() {
        let two = mapping(HEAP, 400, 800)
            + &mapping("55d000400000-55d000800000 rw-p 00000000 00:00 0 ", 80, 80);
        // The two became one, which reaches farther; what comes after it is another.
        let grown = mapping("55d000000000-55d000900000 rw-p 00000000 00:00 0 ", 500, 900);
        let memory = Memory::of_smaps(&(two + &grown + &mapping(PLAIN, 40, 40)));
        assert_eq!((memory.anon, memory.touched), (235, 135));
    }

    #[test]
    fn what_was_touched_since_the_marks_were_cleared() {
        const PAGES: usize = 2048;
        let mut data = vec![1_u8; PAGES * 4096];
        let me = std::process::id();
        let before = memory(me).unwrap();
        assert!(
            before.anon >= PAGES as u64 && before.touched >= PAGES as u64,
            "{before:?}"
        );
        clear_referenced(me).unwrap();
        let cleared = memory(me).unwrap();
        for page in data.chunks_mut(4096).take(PAGES / 2) {
            page[0] = std::hint::black_box(2);
        }
        let after = memory(me).unwrap();
        let touched = after.touched - cleared.touched.min(after.touched);
        // A huge page has one mark for all of it.
        let slack = 64 + after.huge;
        assert!(
            touched.abs_diff(PAGES as u64 / 2) < slack,
            "{cleared:?} {after:?}"
        );
        std::hint::black_box(&data);
    }

    #[test]
    fn who_cannot_be_analyzed_is_told_why() {
        assert!(check(std::process::id()).is_ok());
        // The highest number that there can be is one more.
        let line = check(4_194_304).unwrap_err().to_string();
        assert!(line.contains("no process"), "{line}");
        if memory(2).is_ok_and(|memory| memory == Memory::default()) && name(2) == "kthreadd" {
            let line = check(2).unwrap_err().to_string();
            assert!(line.contains("thread of the kernel"), "{line}");
        }
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while !fs::read_to_string(format!("/proc/{}/stat", child.id()))
            .unwrap()
            .contains(") Z")
        {
            std::thread::yield_now();
        }
        let line = check(child.id()).unwrap_err().to_string();
        assert!(line.contains("has ended"), "{line}");
        child.wait().unwrap();
    }
}
