//! A memory cgroup with a limit, of version 1 or 2, whichever has the memory controller.
//!
//! *What*: makes one below our own, or, where that may not hand out controllers, as near above it
//! as possible.
//! *Invariants*: it is in the [`Journal`] before it is made.
//! *Locking*: the journal's.
//! *Context*: the bench command, as root.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::{Limits, Side};
use crate::undo::{Journal, Step};

/// A cgroup; the journal removes it.
#[derive(Debug)]
pub(super) struct Cgroup {
    pub dir: PathBuf,
    /// Whether zswap's pool is charged to it, as by v2.
    pub charges_pool: bool,
}

/// The cgroup file system: the kernel's, or a test's.
struct Tree<'a> {
    root: &'a Path,
    /// The content of `/proc/self/cgroup`.
    own: &'a str,
    /// The machine's swappiness: v2 has none per group.
    swappiness: &'a Path,
    make_dir: fn(&Path) -> io::Result<()>,
}

impl Cgroup {
    /// Makes one with these limits.
    ///
    /// # Errors
    /// If no memory controller is available.
    pub fn make(journal: &mut Journal, side: Side, limits: Limits) -> Result<Self> {
        let tree = Tree {
            root: Path::new("/sys/fs/cgroup"),
            own: &fs::read_to_string("/proc/self/cgroup")?,
            swappiness: Path::new("/proc/sys/vm/swappiness"),
            make_dir: |path| fs::create_dir(path),
        };
        tree.make(journal, side, limits)
    }
}

impl Tree<'_> {
    fn make(&self, journal: &mut Journal, side: Side, limits: Limits) -> Result<Cgroup> {
        let name = format!("uzswap-bench.{}", std::process::id());
        if let Some(of) = self.own(|_, controllers| controllers.split(',').any(|c| c == "memory")) {
            let dir = self.root.join("memory").join(of).join(name);
            self.make_v1(journal, dir, limits.ram_mib << 20)
        } else {
            let of = self.own(|number, _| number == "0").unwrap_or_default();
            let pool_mib = if side == Side::KernelZswap {
                limits.pool_mib.unwrap_or(0)
            } else {
                0
            };
            let limit = (limits.ram_mib + pool_mib) << 20;
            self.make_v2(journal, self.root.join(of), &name, limit)
        }
    }

    /// Our own group in the first hierarchy whose number and controllers are `wanted`.
    fn own(&self, wanted: impl Fn(&str, &str) -> bool) -> Option<&str> {
        self.own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers) = (fields.next()?, fields.next()?);
            wanted(number, controllers).then_some(fields.next()?.trim_start_matches('/'))
        })
    }

    fn make_v1(&self, journal: &mut Journal, dir: PathBuf, limit: u64) -> Result<Cgroup> {
        journal.note(Step::RemoveCgroup(dir.clone()))?;
        (self.make_dir)(&dir).context("no memory cgroup can be made here")?;
        fs::write(dir.join("memory.limit_in_bytes"), limit.to_string())?;
        fs::write(dir.join("memory.swappiness"), "100")?;
        Ok(Cgroup {
            dir,
            charges_pool: false,
        })
    }

    /// Goes up from `parent`: a group with processes of its own may not hand out controllers.
    fn make_v2(
        &self,
        journal: &mut Journal,
        mut parent: PathBuf,
        name: &str,
        limit: u64,
    ) -> Result<Cgroup> {
        loop {
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory");
            let dir = parent.join(name);
            journal.note(Step::RemoveCgroup(dir.clone()))?;
            if (self.make_dir)(&dir).is_ok() && dir.join("memory.max").exists() {
                fs::write(dir.join("memory.max"), limit.to_string())?;
                journal.set(self.swappiness, "100")?;
                return Ok(Cgroup {
                    dir,
                    charges_pool: true,
                });
            }
            let _ = fs::remove_dir(&dir);
            ensure!(
                parent != self.root && parent.pop(),
                "no cgroup with a memory controller can be made here"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uzswap_corpus::Scratch;

    const LIMITS: Limits = Limits {
        ram_mib: 100,
        pool_mib: Some(20),
        swap_mib: 0,
    };

    /// As in the kernel, a new group has the files of the controllers that its parent hands out.
    fn make_dir(path: &Path) -> io::Result<()> {
        fs::create_dir(path)?;
        let handed_out = path.with_file_name("cgroup.subtree_control");
        if fs::read_to_string(handed_out).is_ok_and(|text| text == "+memory") {
            fs::write(path.join("memory.max"), "max")?;
        }
        Ok(())
    }

    /// Makes a cgroup on a machine with `groups`, where we are in `own`, and lets `check` see it.
    fn on(groups: &[&str], own: &str, side: Side, check: impl FnOnce(&Path, Result<Cgroup>)) {
        let scratch = Scratch::new().unwrap();
        let root = scratch.path().join("cgroup");
        for group in groups {
            fs::create_dir_all(root.join(group)).unwrap();
        }
        let swappiness = scratch.path().join("swappiness");
        fs::write(&swappiness, "60\n").unwrap();
        let tree = Tree {
            root: &root,
            own,
            swappiness: &swappiness,
            make_dir,
        };
        let mut journal = Journal::open(
            &scratch.path().join("journal"),
            &scratch.path().join("lock"),
        )
        .unwrap();
        let made = tree.make(&mut journal, side, LIMITS);
        let on_v2 = made.as_ref().is_ok_and(|made| made.charges_pool);
        let now = fs::read_to_string(&swappiness).unwrap();
        assert_eq!(now.trim(), if on_v2 { "100" } else { "60" });
        check(&root, made);
        drop(journal);
        assert_eq!(fs::read_to_string(&swappiness).unwrap().trim(), "60");
    }

    fn read(made: &Cgroup, file: &str) -> String {
        fs::read_to_string(made.dir.join(file)).unwrap()
    }

    #[test]
    fn version_1_is_below_our_own_and_without_the_pool() {
        let own = "9:name=systemd:/\n5:cpu,memory:/jobs/ours\n0::/user\n";
        let groups = ["memory/jobs/ours"];
        on(&groups, own, Side::KernelZswap, |root, made| {
            let made = made.unwrap();
            assert_eq!(made.dir.parent(), Some(&*root.join("memory/jobs/ours")));
            assert_eq!(
                read(&made, "memory.limit_in_bytes"),
                (100 << 20).to_string()
            );
            assert_eq!(read(&made, "memory.swappiness"), "100");
        });
    }

    #[test]
    fn version_2_counts_zswaps_pool() {
        for (side, mib) in [(Side::KernelZswap, 120_u64), (Side::KernelSwap, 100)] {
            on(&["user/ours"], "0::/user/ours\n", side, |root, made| {
                let made = made.unwrap();
                assert_eq!(made.dir.parent(), Some(&*root.join("user/ours")));
                assert_eq!(read(&made, "memory.max"), (mib << 20).to_string());
            });
        }
    }

    #[test]
    fn version_2_goes_up_to_a_group_that_hands_out_memory() {
        // A directory in place of the file cannot be written, as if the group had processes.
        let groups = [
            "user/session/ours/cgroup.subtree_control",
            "user/session/cgroup.subtree_control",
        ];
        let own = "0::/user/session/ours\n";
        on(&groups, own, Side::Zram, |root, made| {
            assert_eq!(made.unwrap().dir.parent(), Some(&*root.join("user")));
            let tried = fs::read_dir(root.join("user/session/ours")).unwrap();
            assert_eq!(tried.count(), 1, "failed attempts are removed");
        });
    }

    #[test]
    fn without_a_controller_it_is_refused() {
        let groups = ["ours/cgroup.subtree_control", "cgroup.subtree_control"];
        on(&groups, "0::/ours\n", Side::KernelSwap, |_, made| {
            let line = made.unwrap_err().to_string();
            assert!(
                line.contains("no cgroup with a memory controller"),
                "{line}"
            );
        });
    }
}
