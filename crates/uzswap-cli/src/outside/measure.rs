//! *What*: what a process has outside its account by its `smaps`, and what kinds of mappings that
//! is. Each page counts by the share that falls to the process (Pss), so that over the run memory
//! shared after fork counts once.
//!
//! *Invariants*: the arena and the engine's own memory are left out; they are charged. Page cache
//! of files is left out, as the kernel can drop it.
//! *Locking*: none. *Context*: the supervisor's only thread; parsing is apart from reading.

use std::collections::HashSet;
use std::ops::Range;

use uzswap_core::{ARENA_BASE, ARENA_LEN};
use uzswap_group::library::is_library;

use super::causes::{Kind, Part};
use super::tree::kib;

/// The arena's addresses.
const ARENA: Range<u64> = ARENA_BASE as u64..(ARENA_BASE + ARENA_LEN) as u64;
/// Below the arena, where the preload library has its handler stacks.
const HANDLER_STACKS: Range<u64> = 0x0ffe_0000_0000..ARENA.start;

/// What a process has outside its account, bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    pub anonymous: u64,
    pub shared: u64,
    /// Both by kind.
    pub parts: Vec<Part>,
}

/// What is known besides `smaps`.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// Devices that hold shared memory rather than files.
    pub shared_devices: &'a HashSet<(u32, u32)>,
    /// Stack pointers of threads.
    pub stacks: &'a [u64],
    /// RssShmem.
    pub shared: u64,
}

/// One mapping. Sizes in bytes.
#[derive(Debug, Default)]
struct Mapping<'a> {
    start: u64,
    end: u64,
    executable: bool,
    device: (u32, u32),
    path: &'a str,
    rss: u64,
    share: u64,
    anonymous: u64,
    flags: &'a str,
}

impl<'a> Mapping<'a> {
    /// The mapping of a line `START-END PERMS OFFSET MAJOR:MINOR INODE PATH`.
    fn parse(line: &'a str) -> Option<Self> {
        let mut rest = line;
        let mut field = || {
            let (field, after) = rest.split_once(' ').unwrap_or((rest, ""));
            rest = after;
            field
        };
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = field().split_once('-')?;
        let executable = field().contains('x');
        field();
        let (major, minor) = field().split_once(':')?;
        field();
        Some(Mapping {
            start: hex(start)?,
            end: hex(end)?,
            executable,
            device: (
                u32::try_from(hex(major)?).ok()?,
                u32::try_from(hex(minor)?).ok()?,
            ),
            path: rest.trim(),
            ..Mapping::default()
        })
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.split_ascii_whitespace().any(|set| set == flag)
    }

    /// Whether it has the advice and the flag of all memory that an engine reserves.
    fn is_engine(&self) -> bool {
        self.path.is_empty() && ["nr", "dd", "nh"].into_iter().all(|flag| self.has(flag))
    }

    fn is_shared_memory(&self, devices: &HashSet<(u32, u32)>) -> bool {
        let named = ["/memfd:", "/SYSV", "/dev/zero (deleted)", "[anon_shmem"];
        named.iter().any(|prefix| self.path.starts_with(prefix)) || devices.contains(&self.device)
    }

    /// What its private pages are.
    fn kind(&self, stacks: &[u64]) -> Kind {
        /// Address space of the preload library's heap for what libc itself allocates.
        const MAX_LIBC_HEAP: u64 = 32 << 20;
        let file = || self.path.rsplit('/').next().unwrap_or(self.path);
        let name = |text: &str| text.trim_end_matches(" (deleted)").to_owned();
        let range = self.start..self.end;
        if HANDLER_STACKS.contains(&self.start) || is_library(self.path.as_bytes()) {
            return Kind::Own;
        }
        match self.path {
            "[heap]" => Kind::Heap,
            "[stack]" => Kind::Stack,
            path if path.starts_with("[anon:") => {
                Kind::Named(name(&path["[anon:".len()..path.len() - 1]))
            }
            path if path.starts_with('[') => Kind::Anonymous,
            "" if self.executable => Kind::Jit,
            "" if stacks.iter().any(|sp| range.contains(sp)) => Kind::Stack,
            // Since Linux 6.7 MAP_STACK means no huge pages.
            "" if self.has("nh") && !self.has("nr") => Kind::Stack,
            "" if self.has("nh") && self.end - self.start <= MAX_LIBC_HEAP => Kind::LibcHeap,
            "" => Kind::Anonymous,
            _ => Kind::File(name(file())),
        }
    }
}

/// Adds up `smaps`.
pub fn weigh(smaps: &str, beside: Beside<'_>) -> Weight {
    let mut weight = Weight::default();
    let mut seen = Seen::default();
    let mut mapping: Option<Mapping<'_>> = None;
    for line in smaps.lines() {
        // Sizes begin with a capital, addresses are in small hexadecimal digits.
        if !line.starts_with(|c: char| c.is_ascii_uppercase()) {
            if let Some(before) = mapping.take() {
                weight.add(&before, beside, &mut seen);
            }
            mapping = Mapping::parse(line);
            continue;
        }
        let (Some(mapping), Some((key, value))) = (&mut mapping, line.split_once(':')) else {
            continue;
        };
        match key {
            "Rss" => mapping.rss = kib(value),
            "Pss" => mapping.share = kib(value),
            "Anonymous" => mapping.anonymous = kib(value),
            "VmFlags" => mapping.flags = value,
            _ => {}
        }
    }
    if let Some(last) = mapping {
        weight.add(&last, beside, &mut seen);
    }
    // A tmpfs of a mount namespace that is not ours looks like any other file system.
    const MAX_RACE: u64 = 256 << 10;
    let unnamed = beside.shared.saturating_sub(seen.shared);
    if unnamed > MAX_RACE {
        weight.shared += unnamed;
        weight.push(Kind::Shared, unnamed);
    }
    weight
}

/// What was met on the way through `smaps`.
#[derive(Debug, Default)]
struct Seen {
    /// An arena: the process is managed.
    arena: bool,
    /// Resident shared memory.
    shared: u64,
}

impl Weight {
    fn add(&mut self, mapping: &Mapping<'_>, beside: Beside<'_>, seen: &mut Seen) {
        if ARENA.contains(&mapping.start) {
            seen.arena = true;
            return;
        }
        if seen.arena && mapping.is_engine() {
            return;
        }
        let anonymous = mapping.anonymous.min(mapping.share);
        if anonymous > 0 {
            self.anonymous += anonymous;
            self.push(mapping.kind(beside.stacks), anonymous);
        }
        if mapping.is_shared_memory(beside.shared_devices) {
            seen.shared += mapping.rss - mapping.anonymous.min(mapping.rss);
            let shared = mapping.share - anonymous;
            self.shared += shared;
            let own = mapping.path.contains("uzswap");
            self.push(if own { Kind::Own } else { Kind::Shared }, shared);
        }
    }

    fn push(&mut self, kind: Kind, bytes: u64) {
        match self.parts.iter_mut().find(|part| part.kind == kind) {
            Some(part) => part.bytes += bytes,
            None => self.parts.push(Part { kind, bytes }),
        }
    }
}

/// The devices of every tmpfs in a `mountinfo`.
pub fn shared_devices(mountinfo: &str) -> HashSet<(u32, u32)> {
    let device = |line: &str| {
        // id parent MAJOR:MINOR root mount options [tags] - TYPE source super-options
        let (left, right) = line.split_once(" - ")?;
        let (major, minor) = left.split(' ').nth(2)?.split_once(':')?;
        let device = (major.parse().ok()?, minor.parse().ok()?);
        let kind = right.split(' ').next()?;
        matches!(kind, "tmpfs" | "devtmpfs" | "ramfs").then_some(device)
    };
    mountinfo.lines().filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(head: &str, [rss, share, anonymous]: [u64; 3], flags: &str) -> String {
        format!(
            "{head}\nSize: 9 kB\nRss:    {rss} kB\nPss:  {share} kB\nPss_Dirty: 1 kB\n\
             Anonymous:  {anonymous} kB\nTHPeligible:    0\nVmFlags: {flags}\n"
        )
    }

    fn weighed(smaps: &[String], stacks: &[u64], shared: u64) -> Weight {
        let beside = Beside {
            shared_devices: &shared_devices(
                "25 30 0:22 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw\n",
            ),
            stacks,
            shared,
        };
        weigh(&smaps.concat(), beside)
    }

    fn of(weight: &Weight, kind: &Kind) -> u64 {
        let part = weight.parts.iter().find(|part| part.kind == *kind);
        part.map_or(0, |part| part.bytes >> 10)
    }

    #[test]
    fn what_is_charged_does_not_count_and_everything_else_does_by_kind() {
        let smaps = [
            mapping(
                "0ffe00000000-0ffe00040000 rw-p 00000000 00:00 0",
                [8, 8, 8],
                "rd wr nr",
            ),
            mapping(
                "100000000000-110000000000 rw-p 00000000 00:00 0",
                [900, 900, 900],
                "rd wr",
            ),
            mapping(
                "5500-5600 rw-p 00000000 00:00 0       [heap]",
                [40, 40, 40],
                "rd wr",
            ),
            mapping(
                "7f0000000000-7f0000800000 rw-p 00000000 00:00 0",
                [70, 70, 70],
                "rd wr nr dd nh",
            ),
            mapping(
                "7f1000000000-7f1000800000 rw-p 00000000 00:00 0",
                [64, 64, 64],
                "rd wr ac",
            ),
            mapping(
                "7f2000000000-7f2000800000 rwxp 00000000 00:00 0",
                [16, 16, 16],
                "rd wr ex",
            ),
            mapping(
                "7f3000000000-7f3000800000 rw-p 00000000 00:00 0",
                [32, 32, 32],
                "rd wr ac",
            ),
            mapping(
                "7f4000000000-7f4000800000 rw-p 00001000 08:01 12 /usr/lib/lib x.so",
                [48, 20, 12],
                "rd wr",
            ),
            mapping(
                "7f5000000000-7f5000800000 r-xp 00001000 08:01 12 /usr/lib/lib x.so",
                [500, 400, 0],
                "rd ex",
            ),
        ];
        let weight = weighed(&smaps, &[0x7f30_0000_0010], 0);
        assert_eq!(weight.anonymous >> 10, 8 + 40 + 64 + 16 + 32 + 12);
        assert_eq!(weight.shared, 0);
        assert_eq!(of(&weight, &Kind::Own), 8);
        assert_eq!(of(&weight, &Kind::Heap), 40);
        assert_eq!(of(&weight, &Kind::Anonymous), 64);
        assert_eq!(of(&weight, &Kind::Jit), 16);
        assert_eq!(of(&weight, &Kind::Stack), 32);
        assert_eq!(of(&weight, &Kind::File("lib x.so".to_owned())), 12);
    }

    #[test]
    fn memory_that_looks_like_an_engines_counts_where_there_is_no_arena() {
        let line = "7f0000000000-7f0000800000 rw-p 00000000 00:00 0";
        let weight = weighed(&[mapping(line, [70, 70, 70], "nr dd nh")], &[], 0);
        assert_eq!(weight.anonymous, 70 << 10);
    }

    #[test]
    fn shared_memory_counts_by_its_share_and_files_do_not() {
        let smaps = [
            mapping(
                "7f00-7f01 rw-s 00000000 00:01 5 /memfd:x (deleted)",
                [80, 40, 0],
                "rd",
            ),
            mapping(
                "7f01-7f02 rw-s 00000000 00:01 6 /dev/zero (deleted)",
                [30, 10, 0],
                "rd",
            ),
            mapping(
                "7f02-7f03 rw-s 00000000 00:16 7 /dev/shm/y",
                [20, 20, 0],
                "rd",
            ),
            mapping(
                "7f03-7f04 rw-s 00000000 08:01 8 /srv/data",
                [700, 700, 0],
                "rd",
            ),
            // Changed by this process: a private copy.
            mapping(
                "7f04-7f05 rw-p 00000000 00:16 9 /dev/shm/z",
                [24, 24, 4],
                "rd",
            ),
        ];
        let weight = weighed(&smaps, &[], 150 << 10);
        assert_eq!(weight.shared >> 10, 40 + 10 + 20 + 20);
        assert_eq!(weight.anonymous >> 10, 4);
        let weight = weighed(&smaps, &[], 1150 << 10);
        assert_eq!(weight.shared >> 10, 90 + 1000, "a tmpfs that we cannot see");
    }
}
