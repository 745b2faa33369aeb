//! *What*: the default of `--ram`: 80 % of what the cgroup still allows, else half of the available
//! memory. Every level of the cgroup hierarchy, v1 or v2, may have a limit; the one that leaves
//! least counts. Inactive page cache counts as free.
//!
//! *Locking*: none. *Context*: `uzswap run`.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// The default limit in bytes. `root` is `/` except in tests. None if `/proc` cannot be read.
pub fn default_limit(root: &Path) -> Option<u64> {
    let available = available(&root.join("proc/meminfo"))?;
    let allowed = cgroup_allows(root).filter(|&allowed| allowed < available);
    let limit = allowed.map_or(available / 2, |allowed| allowed / 10 * 8);
    Some(limit & !0xfff)
}

/// MemAvailable, bytes.
fn available(meminfo: &Path) -> Option<u64> {
    let text = fs::read_to_string(meminfo).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// Files of one cgroup version.
struct Version {
    limits: &'static [&'static str],
    usage: &'static str,
    /// Key of inactive page cache in `memory.stat`.
    inactive: &'static str,
}

const V1: Version = Version {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    inactive: "total_inactive_file",
};
const V2: Version = Version {
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    inactive: "inactive_file",
};

/// Bytes that this process's cgroups still allow; None without a limit.
fn cgroup_allows(root: &Path) -> Option<u64> {
    let cgroups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    cgroups
        .lines()
        .filter_map(|line| {
            // hierarchy:controllers:path
            let mut fields = line.splitn(3, ':');
            let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let version = if number == "0" && controllers.is_empty() {
                V2
            } else if controllers.split(',').any(|c| c == "memory") {
                V1
            } else {
                return None;
            };
            let (mounted_root, mount) = mount_of(&mounts, &version)?;
            // In a container the mount may show only the container's part of the hierarchy.
            let below = path
                .strip_prefix(mounted_root.trim_end_matches('/'))
                .unwrap_or("");
            let below: PathBuf = Path::new(below)
                .components()
                .filter(|c| matches!(c, Component::Normal(_)))
                .collect();
            let top = root.join(mount.trim_start_matches('/'));
            below
                .ancestors()
                .filter_map(|dir| level_allows(&top.join(dir), &version))
                .min()
        })
        .min()
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

/// Bytes that one cgroup still allows; None if it has no limit.
fn level_allows(dir: &Path, version: &Version) -> Option<u64> {
    let number = |file: &str| -> Option<u64> {
        fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok()
    };
    let limit = version
        .limits
        .iter()
        .filter_map(|file| number(file))
        // v1 writes "no limit" as the largest multiple of a page.
        .filter(|&limit| limit < 1 << 62)
        .min()?;
    let inactive = fs::read_to_string(dir.join("memory.stat"))
        .ok()
        .and_then(|text| {
            text.lines().find_map(|line| {
                let (key, value) = line.split_once(' ')?;
                (key == version.inactive).then(|| value.parse().ok())?
            })
        })
        .unwrap_or(0);
    let used = number(version.usage).unwrap_or(0).saturating_sub(inactive);
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A file system root with 4 GiB available.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("uzswap-{name}-{}", std::process::id()));
            let root = Root(dir);
            root.add("proc/meminfo", "MemTotal: 9 kB\nMemAvailable: 4194304 kB\n");
            root
        }

        fn add(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn limit(&self) -> Option<u64> {
            default_limit(&self.0)
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn share(allowed: u64) -> Option<u64> {
        Some((allowed / 10 * 8) & !0xfff)
    }

    #[test]
    fn without_a_cgroup_limit_half_of_what_is_available() {
        let root = Root::new("none");
        assert_eq!(root.limit(), Some(2048 * MIB));
        root.add("proc/self/cgroup", "0::/user.slice\n");
        root.add(
            "proc/self/mountinfo",
            "29 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n",
        );
        root.add("cg/user.slice/memory.max", "max\n");
        assert_eq!(root.limit(), Some(2048 * MIB));
    }

    #[test]
    fn the_tightest_level_of_v2_counts_less_its_use_without_idle_cache() {
        let root = Root::new("v2");
        root.add("proc/self/cgroup", "0::/a/b\n");
        root.add(
            "proc/self/mountinfo",
            "29 23 0:26 / /cg rw shared:4 - cgroup2 cgroup2 rw\n",
        );
        root.add("cg/a/memory.max", &format!("{}\n", 1000 * MIB));
        root.add("cg/a/memory.current", &format!("{}\n", 600 * MIB));
        root.add(
            "cg/a/memory.stat",
            &format!("anon 1\ninactive_file {}\n", 100 * MIB),
        );
        root.add("cg/a/b/memory.max", &format!("{}\n", 900 * MIB));
        root.add("cg/a/b/memory.current", &format!("{}\n", 100 * MIB));
        assert_eq!(root.limit(), share(500 * MIB));
        root.add("cg/a/b/memory.high", &format!("{}\n", 300 * MIB));
        assert_eq!(root.limit(), share(200 * MIB));
        root.add("cg/a/memory.current", &format!("{}\n", 2000 * MIB));
        assert_eq!(root.limit(), Some(0), "over its limit already");
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
        root.add(
            "cg/memory/job/memory.limit_in_bytes",
            &format!("{}\n", 400 * MIB),
        );
        root.add(
            "cg/memory/job/memory.usage_in_bytes",
            &format!("{}\n", 50 * MIB),
        );
        assert_eq!(root.limit(), share(350 * MIB));
    }

    #[test]
    fn a_cgroup_limit_above_the_machines_memory_is_none() {
        let root = Root::new("wide");
        root.add("proc/self/cgroup", "0::/\n");
        root.add(
            "proc/self/mountinfo",
            "29 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n",
        );
        root.add("cg/memory.max", &format!("{}\n", 1_u64 << 40));
        assert_eq!(root.limit(), Some(2048 * MIB));
    }
}
