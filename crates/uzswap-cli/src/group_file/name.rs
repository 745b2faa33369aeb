//! *What*: groups by name. `NAME.name`, a file beside the group's, holds the name of that: whoever
//! joins finds it, and the last one out removes both.
//!
//! *Invariants*: the group of a name is made, joined, left and removed by whoever holds the lock on
//! the name's file. Its nodes and runs begin under that lock, too. The group file's own name is
//! random: what another user can guess leads nowhere.
//! *Locking*: flock on the name's file, then on the group's. *Context*: any command.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result};
use uzswap_group::group::{Group, Text};
use uzswap_sync::node::{MAX_DEPTH, Path as NodePath};

use super::{Access, GroupFile, Mapping, PREFIX, map, open};
use crate::os::{self, euid};
use crate::private_dir::{self, Purpose};
use crate::status::{USAGE, refused};

/// The name's file ends so.
pub const SUFFIX: &str = ".name";
/// Bytes of one part of a name, at most.
const MAX_LEN: usize = 64;

/// `NAME`, or `NAME/CHILD` and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupName(Vec<String>);

impl GroupName {
    /// The name of the tree.
    pub fn root(&self) -> &str {
        &self.0[0]
    }

    /// The names below it, down to the group's own.
    pub fn below(&self) -> &[String] {
        &self.0[1..]
    }
}

impl FromStr for GroupName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<_> = text.split('/').map(str::to_owned).collect();
        let fits = |part: &String| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            (1..=MAX_LEN).contains(&part.len())
                && part.chars().all(is_plain)
                && !part.starts_with('.')
        };
        if !parts.iter().all(fits) {
            return Err(format!(
                "'{text}' is no name of a group: each part has 1 to {MAX_LEN} letters, digits, '.', '_' \
                 or '-', and does not begin with '.'"
            ));
        }
        if parts[0].parse::<u64>().is_ok() {
            return Err(format!(
                "'{text}' would be a process id: give the group a name with a letter"
            ));
        }
        if parts.len() > MAX_DEPTH {
            return Err(format!(
                "'{text}' is too deep: groups nest {MAX_DEPTH} deep"
            ));
        }
        Ok(GroupName(parts))
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("/"))
    }
}

/// The lock on the name of a tree.
#[derive(Debug)]
pub struct Named {
    dir: PathBuf,
    path: PathBuf,
    /// Holds the lock.
    file: File,
}

impl Named {
    /// Locks the name of `name`'s tree, waiting for whoever joins or leaves it.
    pub fn lock(name: &GroupName) -> Result<Self> {
        check_owner(name)?;
        let mut dirs = private_dir::usable(Purpose::Group);
        let file_name = format!("{}{SUFFIX}", name.root());
        let first = dirs.next();
        let all = first.iter().cloned().chain(dirs);
        let of_name = all.into_iter().find(|dir| dir.join(&file_name).exists());
        let dir = of_name.or(first).with_context(|| {
            format!("group {name} cannot be made: no directory in /dev/shm, /run or /tmp is usable")
        })?;
        let locked = Self::lock_in(&dir, &file_name);
        locked.with_context(|| format!("cannot lock group {name} in {}", dir.display()))
    }

    fn lock_in(dir: &Path, name: &str) -> io::Result<Self> {
        let path = dir.join(name);
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .custom_flags(libc::O_NOFOLLOW)
                .mode(0o600)
                .open(&path)?;
            os::lock_waiting(&file)?;
            // The last one of the group may have removed it meanwhile.
            if file.metadata()?.nlink() > 0 {
                return Ok(Named {
                    dir: dir.to_owned(),
                    path,
                    file,
                });
            }
        }
    }

    /// The group of that name, if it runs.
    pub fn group(&self) -> Option<GroupFile> {
        let path = target(&self.dir, &self.file)?;
        if is_leftover(&path) {
            return None;
        }
        GroupFile::join(path).ok()
    }

    /// A new group, of that name once it is [kept](Named::keep).
    pub fn create(&self) -> Result<GroupFile> {
        super::remove_leftovers(&self.dir);
        GroupFile::create_in(&self.dir)
            .with_context(|| format!("cannot create the group file in {}", self.dir.display()))
    }

    /// The name leads to `group` from now on.
    pub fn keep(&self, group: &GroupFile) -> io::Result<()> {
        let name = group.path.file_name().unwrap_or_default();
        let mut file = &self.file;
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(name.as_bytes())
    }

    /// Whether this supervisor is the last one that has `group`: the name is free then.
    pub fn free_if_last(&self, group: &GroupFile) -> bool {
        let is_last = group.is_last();
        if is_last {
            let _ = fs::remove_file(&self.path);
        }
        is_last
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        // Of a group that could not be made nothing is left.
        if leads_nowhere(&self.dir, &self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The group file that the name's `file` in `dir` leads to.
fn target(dir: &Path, mut file: &File) -> Option<PathBuf> {
    let mut name = Vec::new();
    file.rewind().ok()?;
    file.read_to_end(&mut name).ok()?;
    let is_name = name.starts_with(PREFIX.as_bytes()) && !name.contains(&b'/');
    is_name.then(|| dir.join(OsStr::from_bytes(&name)))
}

/// Whether a name's file leads to no group that runs.
pub fn leads_nowhere(dir: &Path, file: &File) -> bool {
    target(dir, file).is_none_or(|path| is_leftover(&path))
}

fn is_leftover(path: &Path) -> bool {
    File::open(path).map_or(true, |file| os::lock(&file).is_ok())
}

/// Maps the group of a name that runs, and finds its node.
///
/// # Errors
/// There is none, with exit status 2.
pub fn find(name: &GroupName, access: Access) -> Result<(Mapping, NodePath)> {
    let file_name = format!("{}{SUFFIX}", name.root());
    for dir in private_dir::usable(Purpose::Group) {
        let Ok(file) = File::open(dir.join(&file_name)) else {
            continue;
        };
        let Some(path) = target(&dir, &file).filter(|path| !is_leftover(path)) else {
            return Err(refused!(
                USAGE,
                "group {} has ended, its last 'uzswap run' was killed: start it anew with 'uzswap run \
                 --group {name} -- COMMAND'",
                name.root()
            ));
        };
        let group = open(path, access).and_then(|file| map(&file, access));
        let group = group.with_context(|| {
            format!("cannot open group {name}: it runs under another version of uzswap")
        })?;
        let node = node(&group, name)?;
        return Ok((group, node));
    }
    check_owner(name)?;
    Err(refused!(
        USAGE,
        "no group {}: 'uzswap top' lists those that run",
        name.root()
    ))
}

/// The node of `name`, which must be there.
fn node(group: &Group, name: &GroupName) -> Result<NodePath> {
    let (path, missing) = walk(group, name);
    if missing.is_empty() {
        return Ok(path);
    }
    let parent = super::super::group_view::name_of_path(group, path).unwrap_or_default();
    let children: Vec<_> = group.children(path).map(|nr| part(group, nr)).collect();
    let has = match children.is_empty() {
        true => "no group in it".to_owned(),
        false => format!("only {}", children.join(", ")),
    };
    Err(refused!(USAGE, "no group {name}: {parent} has {has}"))
}

/// As far as the nodes of `name` are there, and the names of those that are not.
pub fn walk<'a>(group: &Group, name: &'a GroupName) -> (NodePath, &'a [String]) {
    let mut path = NodePath::ROOT;
    for (at, wanted) in name.below().iter().enumerate() {
        let child = group.children(path).find(|&nr| part(group, nr) == *wanted);
        match child {
            Some(nr) => path = path.child(nr),
            None => return (path, &name.below()[at..]),
        }
    }
    (path, &[])
}

fn part(group: &Group, node: usize) -> String {
    group.names[node].get(&mut [0; Text::LEN]).to_owned()
}

/// Fails if the name is that of another user's group.
fn check_owner(name: &GroupName) -> Result<()> {
    let file_name = format!("{}{SUFFIX}", name.root());
    for dir in private_dir::of_others() {
        let Ok(meta) = fs::symlink_metadata(dir.join(&file_name)) else {
            continue;
        };
        if meta.uid() != euid() {
            return Err(refused!(
                USAGE,
                "group {} belongs to user {}: run this as that user, or take another name",
                name.root(),
                meta.uid()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_words_that_no_process_id_is() {
        let name: GroupName = "jobs/a-1/b.2".parse().unwrap();
        assert_eq!(
            (name.root(), name.below().join(" ")),
            ("jobs", "a-1 b.2".to_owned())
        );
        assert_eq!(name.to_string(), "jobs/a-1/b.2");
        let deep = ["x"; MAX_DEPTH + 1].join("/");
        for wrong in [
            "", "/", "a/", "a//b", "a b", "../x", ".a", "17", "17/a", "a%", &deep,
        ] {
            assert!(wrong.parse::<GroupName>().is_err(), "{wrong}");
        }
    }
}
