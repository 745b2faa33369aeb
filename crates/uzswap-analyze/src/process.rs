//! What `/proc` tells about a process, and what it means if it does not.
//!
//! *What*: anonymous memory and how much of it was touched, processor time, children; clearing the marks of what was touched.
//! *Invariants*: only memory that uzswap would manage counts: anonymous, private, writable, no stack. Files are opened anew each time,
//! since a process that calls exec becomes another one under the same number.
//! *Locking*: none. The kernel walks the page tables under a lock that only mapping and unmapping have to wait for.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::Result;
use uzswap_corpus::Refused;
use uzswap_corpus::anonymous;

use crate::PAGE;

/// Memory of a process at one moment, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Anonymous pages in memory.
    pub anon: u64,
    /// Those of them that were touched since the marks were cleared.
    pub touched: u64,
    /// Those of them that are part of huge pages, which have one mark for all.
    pub huge: u64,
    /// Pages on the kernel's swap: neither read nor counted.
    pub swapped: u64,
}

/// Reads the memory of `pid`.
///
/// # Errors
/// If it is gone or may not be read.
pub fn memory(pid: u32) -> io::Result<Memory> {
    Ok(sum(&fs::read_to_string(format!("/proc/{pid}/smaps"))?))
}

/// Adds up. The kernel writes smaps piece by piece and goes on from the end of the mapping that it wrote last: one that grew meanwhile, or came
/// together with its neighbour, is written once more. Then the later state counts, and it alone: else a heap that grows seems twice as large.
fn sum(smaps: &str) -> Memory {
    let mut mappings: Vec<(u64, Memory)> = Vec::new();
    let (mut counts, mut referenced) = (false, 0);
    for line in smaps.lines() {
        let Some((key, value)) = line.split_once(":  ") else {
            // Not "Key:   value": the first line of a mapping.
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
            kib.unwrap_or(0) * 1024 / PAGE
        };
        // In the order in which the kernel writes them: Referenced, then Anonymous.
        match key {
            "Referenced" => referenced = pages(),
            "Anonymous" => {
                memory.anon = pages();
                // A shared page of zeroes may be touched, but is nobody's memory.
                memory.touched = referenced.min(memory.anon);
            }
            "AnonHugePages" => memory.huge = pages(),
            "Swap" => memory.swapped = pages(),
            _ => {}
        }
    }
    mappings.iter().map(|&(_, memory)| memory).sum()
}

impl std::iter::Sum for Memory {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            anon: sum.anon + one.anon,
            touched: sum.touched + one.touched,
            huge: sum.huge + one.huge,
            swapped: sum.swapped + one.swapped,
        })
    }
}

/// Anonymous pages of `pid` in memory, stacks and changed pages of files among them: told at once, without a walk over the pages.
#[must_use]
pub fn anonymous_pages(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = kib.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib * 1024 / PAGE)
}

/// Forgets what was touched.
///
/// # Errors
/// If the process is gone or `/proc` is read-only.
pub fn clear_touched(pid: u32) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "1")
}

/// Seconds of processor time that it has used itself.
#[must_use]
pub fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks: u64 = fields
        .split(' ')
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    // The unit of this file is a hundredth of a second on every x86-64 Linux.
    Some(ticks as f64 / 100.0)
}

/// Processor time that we have used ourselves.
#[must_use]
pub fn own_cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to `time` only.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Its name.
#[must_use]
pub fn name(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// A process and all that come from it.
#[must_use]
pub fn family(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(&parent) = all.get(next) {
        next += 1;
        let threads = fs::read_dir(format!("/proc/{parent}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            all.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
    }
    all
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
    // One needs the right to trace it for mem, which is more than smaps asks for.
    let readable = memory(pid).and_then(|_| fs::File::open(format!("/proc/{pid}/mem")));
    match readable {
        Ok(_) => Ok(()),
        Err(why) if why.kind() == ErrorKind::PermissionDenied => refuse(forbidden(pid)),
        Err(_) => refuse(gone()),
    }
}

/// Why a process may not be read, and what to do.
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

/// The user that it is; the owner of its directory in `/proc` is root where it has protected itself.
fn status_uid(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let told = uids.split_whitespace().nth(1)?.parse().ok();
    told.or_else(|| Some(fs::metadata(format!("/proc/{pid}")).ok()?.uid()))
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
            sum(&(mapping(HEAP, 400, 800) + &file + &mapping(PLAIN, 900, 800))),
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
        let told = sum(&(two + &grown + &mapping(PLAIN, 40, 40)));
        assert_eq!((told.anon, told.touched), (235, 135));
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
        clear_touched(me).unwrap();
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

    #[test]
    fn a_family_has_everybody_in_it() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 100 & echo; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        io::BufRead::read_line(&mut io::BufReader::new(out), &mut line).unwrap();
        let all = family(child.id());
        assert_eq!(all.len(), 2, "{all:?}");
        for pid in all {
            // SAFETY: processes that this test started and has not waited for.
            unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
        }
        child.wait().unwrap();
    }
}
