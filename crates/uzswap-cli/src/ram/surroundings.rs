//! *What*: the places whose limits hold for us, the cgroups and the machine, and what the tightest
//! of them leaves.
//!
//! Where no cgroup has a limit below what the machine can give, we take half of that, as others
//! will want some, and less when it runs short.
//!
//! *Locking*: none. *Context*: `uzswap run`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uzswap_group::follow::Follows;

use super::cgroup::Cgroups;
use super::place::Place;

/// What is left to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// The limit, bytes.
    pub limit: u64,
    /// Where that comes from.
    pub by: Follows,
    /// What can still be used up before the kernel ends processes, bytes.
    pub room: u64,
}

/// The places.
#[derive(Debug)]
pub struct Surroundings {
    /// `/`, except in tests.
    root: PathBuf,
    cgroups: Cgroups,
    /// The most that we take of the machine where no cgroup has a limit.
    half: Option<u64>,
}

impl Surroundings {
    /// Those of this process.
    pub fn open(root: &Path) -> Self {
        Surroundings {
            root: root.to_owned(),
            cgroups: Cgroups::open(root),
            half: None,
        }
    }

    /// What they leave to us, who use `ours` bytes. None if `/proc` cannot be read.
    pub fn look(&mut self, now: Duration, ours: u64) -> Option<Left> {
        let machine = machine(&self.root.join("proc/meminfo"))?;
        let all = self.cgroups.places(now).into_iter();
        let cgroups: Vec<_> = all.filter(|place| place.limit < machine.limit).collect();
        let tightest = |by, places: &[Place]| {
            let limit = places.iter().map(|place| place.leaves(ours)).min()?;
            let room = places.iter().map(Place::distance).min()?;
            Some(Left { limit, by, room })
        };
        let mut left = tightest(Follows::Machine, &[machine])?;
        match tightest(Follows::Cgroup, &cgroups) {
            None => {
                let half = || (machine.distance() + ours) / 2;
                left.limit = left.limit.min(*self.half.get_or_insert_with(half));
            }
            Some(cgroup) => {
                self.half = None;
                if cgroup.limit < left.limit {
                    left = cgroup;
                }
            }
        }
        left.limit &= !0xfff;
        Some(left)
    }

    /// Looks whether the process was moved to other cgroups.
    pub fn reopen(&mut self) -> bool {
        self.cgroups.reopen()
    }

    /// Files that change when a limit does, or is reached.
    pub fn files(&self) -> Vec<PathBuf> {
        self.cgroups.files()
    }
}

/// The machine: what is not available counts as held.
fn machine(meminfo: &Path) -> Option<Place> {
    let text = fs::read_to_string(meminfo).ok()?;
    let bytes = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
        kib.checked_mul(1024)
    };
    let limit = bytes("MemTotal:")?;
    Some(Place {
        limit,
        usage: limit.saturating_sub(bytes("MemAvailable:")?),
        ..Place::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ram::fake_root::{MIB, Root};
    use crate::ram::place::margin;

    fn limit(root: &Root) -> u64 {
        limit_with(root, 0)
    }

    fn limit_with(root: &Root, ours: u64) -> u64 {
        let left = Surroundings::open(&root.0).look(Duration::ZERO, ours);
        left.unwrap().limit
    }

    /// What a limit of so many MiB leaves, of which others hold some.
    fn leaves(limit: u64, others: u64) -> u64 {
        limit * MIB - margin(limit * MIB) - others * MIB
    }

    #[test]
    fn without_a_cgroup_limit_half_of_what_is_available() {
        let root = Root::new("none");
        assert_eq!(limit(&root), 2048 * MIB);
        let root = Root::unified("no-limit", "/user.slice");
        root.add("cg/user.slice/memory.max", "max\n");
        root.mib("cg/user.slice/memory.current", 100);
        let mut surroundings = Surroundings::open(&root.0);
        let mut look = |ours| surroundings.look(Duration::ZERO, ours * MIB).unwrap();
        assert_eq!((look(0).limit, look(0).by), (2048 * MIB, Follows::Machine));
        // What is ours is not available any more, and nobody is short of it.
        root.available(2100);
        assert_eq!(look(1900).limit, 2048 * MIB);
        // Others take most of the rest.
        root.available(300);
        let short = look(1900);
        let room = 1900 + 300 - margin(8192 * MIB) / MIB;
        assert_eq!((short.limit, short.room), (room * MIB, 300 * MIB));
        root.available(8000);
        assert_eq!(look(100).limit, 2048 * MIB, "no more than at the start");
    }

    #[test]
    fn the_tightest_level_of_v2_counts_less_what_others_hold() {
        let root = Root::unified("v2", "/a/b");
        root.mib("cg/a/memory.max", 1000);
        root.mib("cg/a/memory.current", 600);
        let stat = format!(
            "anon 1\ninactive_file {}\nactive_file {}\nfile_dirty {}\n",
            60 * MIB,
            60 * MIB,
            20 * MIB
        );
        root.add("cg/a/memory.stat", &stat);
        root.mib("cg/a/b/memory.max", 900);
        root.mib("cg/a/b/memory.current", 100);
        assert_eq!(limit(&root), leaves(1000, 500) & !0xfff);
        // What is ours counts at both levels.
        assert_eq!(limit_with(&root, 100 * MIB), leaves(1000, 400) & !0xfff);
        root.mib("cg/a/b/memory.high", 300);
        assert_eq!(limit(&root), leaves(300, 100) & !0xfff);
        root.mib("cg/a/memory.current", 2000);
        assert_eq!(limit(&root), 0, "over its limit already");
    }

    #[test]
    fn v1_in_a_container_whose_mount_shows_only_its_own_part() {
        let root = Root::new("v1");
        root.add(
            "proc/self/cgroup",
            "9:name=systemd:/docker/7\n4:cpu,memory:/docker/7/job\n0::/docker/7\n",
        );
        root.add(
            "proc/self/mountinfo",
            "30 23 0:27 /docker/7 /cg/cpu ro - cgroup cgroup rw,cpu\n\
             31 23 0:28 /docker/7 /cg/memory ro - cgroup cgroup rw,memory\n",
        );
        root.add("cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
        root.mib("cg/memory/memory.usage_in_bytes", 5000);
        root.mib("cg/memory/job/memory.limit_in_bytes", 400);
        root.mib("cg/memory/job/memory.usage_in_bytes", 50);
        assert_eq!(limit(&root), leaves(400, 50));
    }

    #[test]
    fn a_cgroup_limit_above_the_machines_memory_is_none() {
        let root = Root::unified("wide", "/");
        root.add("cg/memory.max", &format!("{}\n", 1_u64 << 40));
        root.mib("cg/memory.current", 5000);
        assert_eq!(limit(&root), 2048 * MIB);
    }

    #[test]
    fn a_limit_that_changes_and_a_move_to_another_cgroup_are_followed() {
        let root = Root::unified("moves", "/a");
        root.mib("cg/a/memory.max", 1000);
        root.mib("cg/a/memory.current", 100);
        root.mib("cg/b/memory.max", 500);
        root.mib("cg/b/memory.current", 0);
        let mut surroundings = Surroundings::open(&root.0);
        let left = |it: &mut Surroundings| it.look(Duration::ZERO, 0).unwrap().limit;
        assert_eq!(left(&mut surroundings), leaves(1000, 100) & !0xfff);
        root.mib("cg/a/memory.max", 600);
        assert_eq!(left(&mut surroundings), leaves(600, 100) & !0xfff);
        assert!(!surroundings.reopen());
        root.add("proc/self/cgroup", "0::/b\n");
        assert!(surroundings.reopen());
        assert_eq!(left(&mut surroundings), leaves(500, 0) & !0xfff);
        let files = surroundings.files();
        assert!(files.contains(&root.0.join("cg/b/memory.max")), "{files:?}");
    }

    #[test]
    fn pressure_lowers_it_and_a_file_reader_does_not() {
        let root = Root::unified("pressure", "/a");
        root.mib("cg/a/memory.max", 640);
        root.mib("cg/a/memory.current", 0);
        let mut surroundings = Surroundings::open(&root.0);
        let mut look = |second: u64, restored: u64| {
            let stalls = format!("some avg10=0.00 total={}\n", second * 300_000);
            root.add("cg/a/memory.pressure", &stalls);
            let stat = format!("workingset_restore_file {restored}\n");
            root.add("cg/a/memory.stat", &stat);
            // The files are opened once: they must be there.
            if second == 0 {
                surroundings = Surroundings::open(&root.0);
            }
            let now = Duration::from_secs(second);
            surroundings.look(now, 0).unwrap().limit
        };
        let calm = look(0, 0);
        assert_eq!(look(5, 0), calm, "stalls alone");
        assert_eq!(look(6, 1000), calm - 10 * MIB);
        assert_eq!(look(7, 2000), calm - 20 * MIB);
    }
}
