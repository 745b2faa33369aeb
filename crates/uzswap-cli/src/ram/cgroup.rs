//! *What*: the cgroups that this process is in, v1 and v2, and what the memory controller's files
//! say of each that has a limit. Every level of the hierarchy counts.
//!
//! *Invariants*: what is not readable, or not as expected, is no limit. After the process was moved
//! the next look is at its new cgroups.
//! *Locking*: none. *Context*: `uzswap run`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::place::Place;
use super::pressure::{Counted, Pressure};
use crate::group_view::PAGE;

/// Files of one cgroup version, and keys of its `memory.stat`.
#[derive(Debug)]
struct Version {
    limits: &'static [&'static str],
    usage: &'static str,
    /// Written by the kernel when a limit was reached.
    events: &'static str,
    /// Says how many processes the kernel has killed.
    kills: &'static str,
    /// Page cache, without tmpfs and what is locked.
    cache: [&'static str; 2],
    /// What of that must be written before it can go.
    unclean: [&'static str; 2],
    /// Kernel memory that can go, of which half is taken for granted.
    slab: &'static str,
    /// Pages of hot page cache that were read again.
    restored: &'static str,
}

const V1: Version = Version {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    events: "",
    kills: "memory.oom_control",
    cache: ["total_inactive_file", "total_active_file"],
    unclean: ["total_dirty", "total_writeback"],
    slab: "",
    restored: "",
};
const V2: Version = Version {
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    events: "memory.events",
    kills: "memory.events",
    cache: ["inactive_file", "active_file"],
    unclean: ["file_dirty", "file_writeback"],
    slab: "slab_reclaimable",
    restored: "workingset_restore_file",
};

/// Most of the page cache that counts as unclean: with more of it dirty the kernel makes writers
/// wait (`vm.dirty_ratio`), and so do charges that find nothing else to drop.
const MAX_UNCLEAN_PART: u64 = 5;

/// v1 writes "no limit" as the largest multiple of a page.
const NO_LIMIT: u64 = 1 << 62;

/// The cgroups that this process is in.
#[derive(Debug)]
pub struct Cgroups {
    /// `/`, except in tests.
    root: PathBuf,
    /// `/proc/self/cgroup` as it was when they were opened.
    own: String,
    levels: Vec<Level>,
}

impl Cgroups {
    /// Opens them.
    pub fn open(root: &Path) -> Self {
        let own = own(root);
        let levels = directories(root, &own).filter_map(|(dir, version)| Level::open(dir, version));
        Cgroups {
            levels: levels.collect(),
            root: root.to_owned(),
            own,
        }
    }

    /// Opens those that this process is in now, if it was moved. Whether it was.
    pub fn reopen(&mut self) -> bool {
        let moved = own(&self.root) != self.own;
        if moved {
            *self = Cgroups::open(&self.root);
        }
        moved
    }

    /// Those that have a limit.
    pub fn places(&mut self, now: Duration) -> Vec<Place> {
        let levels = self.levels.iter_mut();
        levels.filter_map(|level| level.place(now)).collect()
    }

    /// Files that change when a limit does, or is reached.
    pub fn files(&self) -> Vec<PathBuf> {
        let names = |level: &Level| {
            let names = level.version.limits.iter().chain([&level.version.events]);
            let names = names.filter(|name| !name.is_empty());
            names.map(|name| level.dir.join(name)).collect::<Vec<_>>()
        };
        self.levels.iter().flat_map(names).collect()
    }
}

/// What says how many processes of our cgroup the kernel has killed.
pub fn events(root: &Path) -> Option<File> {
    let own = own(root);
    directories(root, &own).find_map(|(dir, version)| File::open(dir.join(version.kills)).ok())
}

/// How many that are.
pub fn kills(events: &File) -> Option<u64> {
    let text = text(events)?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("oom_kill "))?;
    line.trim().parse().ok()
}

fn own(root: &Path) -> String {
    fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default()
}

/// Directories of all levels of each hierarchy with a memory controller.
fn directories(root: &Path, own: &str) -> impl Iterator<Item = (PathBuf, &'static Version)> {
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    own.lines().flat_map(move |line| {
        let found = hierarchy(line, &mounts);
        let levels = found.map(|(mount, below, version)| {
            let top = root.join(mount.trim_start_matches('/'));
            let levels = below.ancestors().map(|dir| (top.join(dir), version));
            levels.collect::<Vec<_>>()
        });
        levels.unwrap_or_default()
    })
}

/// Of a line of `/proc/self/cgroup` the mount point and the path below it, if it is of a hierarchy
/// that may have the memory controller.
fn hierarchy<'a>(line: &str, mounts: &'a str) -> Option<(&'a str, PathBuf, &'static Version)> {
    // hierarchy:controllers:path
    let mut fields = line.splitn(3, ':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let version = if number == "0" && controllers.is_empty() {
        &V2
    } else if controllers.split(',').any(|c| c == "memory") {
        &V1
    } else {
        return None;
    };
    let (mounted_root, mount) = mount_of(mounts, version)?;
    // In a container the mount may show only the container's part of the hierarchy.
    let below = path
        .strip_prefix(mounted_root.trim_end_matches('/'))
        .unwrap_or("");
    let below = Path::new(below)
        .components()
        .filter(|c| matches!(c, Component::Normal(_)))
        .collect();
    Some((mount, below, version))
}

/// Root and mount point of the memory hierarchy of this version, from mountinfo.
fn mount_of<'a>(mounts: &'a str, version: &Version) -> Option<(&'a str, &'a str)> {
    mounts.lines().find_map(|line| {
        // id parent major:minor ROOT MOUNT options [tags] - TYPE source SUPER-OPTIONS
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, mount) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1).unwrap_or(""));
        let fits = if version.usage == V2.usage {
            kind == "cgroup2"
        } else {
            kind == "cgroup" && options.split(',').any(|o| o == "memory")
        };
        fits.then_some((root, mount))
    })
}

/// One cgroup, with its files open.
#[derive(Debug)]
struct Level {
    version: &'static Version,
    dir: PathBuf,
    limits: Vec<File>,
    usage: File,
    stat: Option<File>,
    stalls: Option<File>,
    pressure: Pressure,
}

impl Level {
    /// None without the controller's files, as at the root.
    fn open(dir: PathBuf, version: &'static Version) -> Option<Self> {
        let open = |name: &str| File::open(dir.join(name)).ok();
        Some(Level {
            version,
            limits: version
                .limits
                .iter()
                .filter_map(|name| open(name))
                .collect(),
            usage: open(version.usage)?,
            stat: open("memory.stat"),
            stalls: open("memory.pressure"),
            pressure: Pressure::default(),
            dir,
        })
    }

    /// What it may hold and holds; None if it has no limit.
    fn place(&mut self, now: Duration) -> Option<Place> {
        let limits = self.limits.iter().filter_map(number);
        let limit = limits.filter(|&limit| limit < NO_LIMIT).min()?;
        // First the whole: what grows meanwhile must not count as cache alone.
        let usage = number(&self.usage)?;
        let stat = Stat::of(
            &self.stat.as_ref().and_then(text).unwrap_or_default(),
            self.version,
        );
        let stalled = self
            .stalls
            .as_ref()
            .and_then(text)
            .as_deref()
            .and_then(stalled);
        let squeezed = stalled.map_or(0, |stalled| {
            let restored = stat.restored;
            let counted = Counted { stalled, restored };
            self.pressure.squeeze(now, counted, limit)
        });
        Some(Place {
            limit,
            usage,
            cache: stat.droppable(),
            squeezed,
        })
    }
}

/// What is needed of `memory.stat`.
#[derive(Debug, Default)]
struct Stat {
    cache: u64,
    unclean: u64,
    slab: u64,
    restored: u64,
}

impl Stat {
    fn of(text: &str, version: &Version) -> Self {
        let mut stat = Stat::default();
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        for (key, value) in lines {
            let cell = match key {
                _ if version.cache.contains(&key) => &mut stat.cache,
                _ if version.unclean.contains(&key) => &mut stat.unclean,
                _ if version.slab == key => &mut stat.slab,
                _ if version.restored == key => &mut stat.restored,
                _ => continue,
            };
            *cell += value.parse::<u64>().unwrap_or(0);
        }
        stat
    }

    /// What the kernel can drop at once.
    fn droppable(&self) -> u64 {
        let unclean = self.unclean.min(self.cache / MAX_UNCLEAN_PART);
        (self.cache - unclean + self.slab / 2) & !(PAGE - 1)
    }
}

/// A file from its beginning, which the kernel makes anew each time.
fn text(file: &File) -> Option<String> {
    const STEP: usize = 8 << 10;
    let mut bytes = Vec::new();
    loop {
        let len = bytes.len();
        bytes.resize(len + STEP, 0);
        let read = file.read_at(&mut bytes[len..], len as u64).ok()?;
        bytes.truncate(len + read);
        if read == 0 {
            return String::from_utf8(bytes).ok();
        }
    }
}

/// A file's only number; None for "max".
fn number(file: &File) -> Option<u64> {
    let mut bytes = [0; 32];
    let len = file.read_at(&mut bytes, 0).ok()?;
    str::from_utf8(&bytes[..len]).ok()?.trim().parse().ok()
}

/// How long some task has stalled, from `memory.pressure`.
fn stalled(pressure: &str) -> Option<Duration> {
    // some avg10=0.00 avg60=0.00 avg300=0.00 total=0
    let some = pressure
        .lines()
        .find_map(|line| line.strip_prefix("some "))?;
    let total = some
        .split(' ')
        .find_map(|word| word.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_stat_of_both_versions() {
        let v1 = "inactive_file 7\ndirty 9\ntotal_inactive_file 40960\ntotal_active_file 20480\n\
                  total_dirty 8192\ntotal_writeback 4096\n";
        assert_eq!(Stat::of(v1, &V1).droppable(), 49152);
        let all_dirty = v1.replace("dirty 8192", "dirty 61440");
        assert_eq!(Stat::of(&all_dirty, &V1).droppable(), 49152, "a fifth");
        let v2 = "anon 7\ninactive_file 40960\nactive_file 20480\nfile_dirty 8192\n\
                  file_writeback 4096\nslab_reclaimable 16384\nworkingset_restore_file 12\n";
        let stat = Stat::of(v2, &V2);
        assert_eq!((stat.droppable(), stat.restored), (57344, 12));
        assert_eq!(Stat::of("", &V2).droppable(), 0);
    }

    #[test]
    fn stalls_are_the_total_of_some() {
        let text = "some avg10=1.00 avg60=0.00 avg300=0.00 total=41421831\nfull avg10=0 total=7\n";
        assert_eq!(stalled(text), Some(Duration::from_micros(41_421_831)));
        assert_eq!(stalled(""), None);
    }
}
