//! *What*: the files that tell how much memory there is: `/proc/meminfo`, and those of the cgroups
//! that this process is in, in version 1 or 2, mounted where they usually are.
//!
//! *Invariants*: other cgroups' files are none: who watches them is to see what they have.
//! *Locking*: none. *Context*: any.

/// Where cgroup file systems are mounted.
const CGROUPS: &[u8] = b"/sys/fs/cgroup";

/// What a file tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `/proc/meminfo`.
    Meminfo,
    /// How much memory a cgroup may have.
    Limit,
    /// How much memory a cgroup has.
    Usage,
    /// How much swap a cgroup may have, or has, beside memory.
    Swap,
    /// `memory.stat`: version 1 has the tightest limit of all levels in it.
    Stat,
}

impl Source {
    /// What the file at `path` tells; for a cgroup's file, if [`is_within`] says so.
    #[must_use]
    pub fn of(path: &[u8]) -> Option<Self> {
        if path == b"/proc/meminfo" {
            return Some(Self::Meminfo);
        }
        let (_, name) = split(path.strip_prefix(CGROUPS)?)?;
        Some(match name {
            b"memory.max" | b"memory.high" => Self::Limit,
            b"memory.limit_in_bytes" | b"memory.soft_limit_in_bytes" => Self::Limit,
            b"memory.memsw.limit_in_bytes" => Self::Limit,
            b"memory.current" => Self::Usage,
            b"memory.usage_in_bytes" | b"memory.memsw.usage_in_bytes" => Self::Usage,
            b"memory.swap.max" | b"memory.swap.current" => Self::Swap,
            b"memory.stat" => Self::Stat,
            _ => return None,
        })
    }

    /// Whether it is the same for all processes.
    #[must_use]
    pub fn is_for_all(self) -> bool {
        self == Self::Meminfo
    }
}

/// Directory and name.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = path.iter().rposition(|b| *b == b'/')?;
    Some((path.get(..slash)?, path.get(slash + 1..)?))
}

/// Whether the cgroup file at `path` is of the cgroup that `line` of `/proc/self/cgroup` names, or
/// of one above it.
#[must_use]
pub fn is_within(path: &[u8], line: &[u8]) -> bool {
    let mut fields = line.splitn(3, |b| *b == b':');
    let (Some(_), Some(controllers), Some(own)) = (fields.next(), fields.next(), fields.next())
    else {
        return false;
    };
    // Version 2 names no controllers.
    let of_memory = controllers.is_empty() || controllers.split(|b| *b == b',').any(is_memory);
    let Some((dir, _)) = path.strip_prefix(CGROUPS).and_then(split) else {
        return false;
    };
    let mounts: [&[u8]; 3] = [b"", b"/memory", b"/unified"];
    let groups = mounts.iter().filter_map(|mount| dir.strip_prefix(*mount));
    of_memory && groups.into_iter().any(|group| holds(group, own))
}

fn is_memory(controller: &[u8]) -> bool {
    controller == b"memory"
}

/// Whether cgroup `group`, as its mount has it, is `own` or above it. In a container the mount
/// begins further down than the names do.
fn holds(group: &[u8], own: &[u8]) -> bool {
    match own.strip_prefix(group) {
        Some(below) if below.is_empty() || below.starts_with(b"/") => true,
        _ => group.starts_with(b"/") && own.ends_with(group),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_whole_path() {
        for (path, source) in [
            ("/proc/meminfo", Some(Source::Meminfo)),
            ("/sys/fs/cgroup/memory.max", Some(Source::Limit)),
            ("/sys/fs/cgroup/a/b/memory.high", Some(Source::Limit)),
            (
                "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                Some(Source::Limit),
            ),
            ("/sys/fs/cgroup/a/memory.current", Some(Source::Usage)),
            ("/sys/fs/cgroup/a/memory.swap.max", Some(Source::Swap)),
            ("/sys/fs/cgroup/memory/memory.stat", Some(Source::Stat)),
            ("/sys/fs/cgroup/a/memory.maximum", None),
            ("/sys/fs/cgroup/a/cpu.max", None),
            ("/proc/meminfo2", None),
            ("/proc/self/meminfo", None),
            ("proc/meminfo", None),
            ("/tmp/memory.max", None),
            ("", None),
        ] {
            assert_eq!(Source::of(path.as_bytes()), source, "{path}");
        }
    }

    #[test]
    fn only_ones_own_cgroups_count() {
        let within = |path: &str, line: &str| is_within(path.as_bytes(), line.as_bytes());
        // Version 2, own and above.
        for path in ["", "/a", "/a/b"] {
            let path = format!("/sys/fs/cgroup{path}/memory.max");
            assert!(within(&path, "0::/a/b"), "{path}");
        }
        for path in ["/a/b/c", "/a/c", "/ab", "/c"] {
            let path = format!("/sys/fs/cgroup{path}/memory.max");
            assert!(!within(&path, "0::/a/b"), "{path}");
        }
        // Version 1, by the line of its controller.
        let one = "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes";
        assert!(within(one, "4:memory:/a/b"));
        assert!(within(one, "4:cpu,memory:/a/b"));
        assert!(!within(one, "4:cpu:/a/b"));
        assert!(!within(one, "4:memory:/a"));
        // A container: the mount's root is its cgroup, or one above the process's.
        let root = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        assert!(within(root, "4:memory:/docker/7"));
        assert!(within("/sys/fs/cgroup/b/memory.max", "0::/docker/7/b"));
        assert!(!within("/sys/fs/cgroup/b/memory.max", "0::/docker/7/cb"));
        assert!(!within(one, ""));
    }
}
