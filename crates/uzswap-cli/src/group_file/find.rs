//! *What*: finds and maps the group of a running process: among its mappings, since a process may
//! change its environment.
//!
//! *Invariants*: as [`super`]. *Locking*: none. *Context*: any command.

use std::fs::{self, File};
use std::io::{self, ErrorKind};

use anyhow::{Result, anyhow, bail};

use super::{Access, MEMORY_NAME, Mapping, PREFIX, SUFFIX, map, open};

/// Maps the group of process `pid`, a supervisor or a managed process.
pub fn of_process(pid: u32, access: Access) -> Result<Mapping> {
    let maps = match fs::read_to_string(format!("/proc/{pid}/maps")) {
        Ok(maps) => maps,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            bail!("process {pid} belongs to another user: run this as that user or as root")
        }
        Err(_) => bail!("no process {pid}: it has ended, or never was"),
    };
    let Some(name) = group_in(&maps) else {
        bail!("process {pid} is not managed by uzswap: start it with 'uzswap run -- COMMAND'");
    };
    let file = match name {
        Name::Path { deleted: true, .. } => {
            bail!("the 'uzswap run' that started process {pid} has ended")
        }
        Name::Path { path, .. } => {
            // The process may live in a mount namespace of its own.
            let rooted = format!("/proc/{pid}/root{path}");
            open(rooted, access).or_else(|_| open(path, access))
        }
        Name::Memory { supervisor } => descriptor_of(supervisor, access),
    };
    file.and_then(|file| map(&file, access))
        .map_err(|error| match error.kind() {
            ErrorKind::InvalidData => anyhow!(
                "process {pid} runs under another version of uzswap: use that version's command"
            ),
            _ => anyhow!("cannot open what process {pid} shares with 'uzswap run': {error}"),
        })
}

/// Whether a process is managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Managed {
    Yes,
    No,
    /// It has no memory any more, or does not let us look.
    Unknown,
}

/// Whether process `pid` has a group among its mappings.
pub fn is_managed(pid: u32) -> Managed {
    match fs::read_to_string(format!("/proc/{pid}/maps")) {
        Ok(maps) if maps.is_empty() => Managed::Unknown,
        Ok(maps) if group_in(&maps).is_some() => Managed::Yes,
        Ok(_) => Managed::No,
        Err(_) => Managed::Unknown,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Name<'a> {
    Path { path: &'a str, deleted: bool },
    Memory { supervisor: u32 },
}

/// The group file among a process's mappings.
fn group_in(maps: &str) -> Option<Name<'_>> {
    maps.lines().find_map(|line| {
        // address perms offset device inode path: the path is the sixth field and may hold spaces.
        let path = &line[line.find('/')?..];
        let (path, deleted) = match path.strip_suffix(" (deleted)") {
            Some(path) => (path, true),
            None => (path, false),
        };
        if let Some(memory) = path.strip_prefix("/memfd:") {
            let supervisor = memory.strip_prefix(MEMORY_NAME)?.parse().ok()?;
            return Some(Name::Memory { supervisor });
        }
        let (dir, name) = path.rsplit_once('/')?;
        let ours = dir.rsplit('/').next()?.starts_with("uzswap")
            && name.starts_with(PREFIX)
            && name.ends_with(SUFFIX);
        ours.then_some(Name::Path { path, deleted })
    })
}

/// Opens the group among a supervisor's descriptors.
fn descriptor_of(supervisor: u32, access: Access) -> io::Result<File> {
    for entry in fs::read_dir(format!("/proc/{supervisor}/fd"))?.flatten() {
        let target = fs::read_link(entry.path())?;
        if target
            .to_string_lossy()
            .starts_with(&format!("/memfd:{MEMORY_NAME}"))
        {
            return open(entry.path(), access);
        }
    }
    Err(ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group_file::GroupFile;
    use crate::group_file::tests::alone;
    use std::sync::atomic::Ordering;
    use uzswap_sync::node::Path;

    #[test]
    fn stat_finds_the_group_of_a_process_that_maps_it() {
        let me = std::process::id();
        let _alone = alone();
        let group = GroupFile::create().unwrap();
        group.begin_run(Path::ROOT).unwrap();
        group.publish();
        group.knobs.ram.store(42, Ordering::Relaxed);
        let seen = of_process(me, Access::Read).unwrap();
        assert_eq!(seen.knobs.ram.load(Ordering::Relaxed), 42);
        assert_eq!(seen.run_by(me), Some(0));
    }

    #[test]
    fn a_group_in_memory_is_found_by_its_supervisor() {
        let me = std::process::id();
        let _alone = alone();
        let group = GroupFile::create_in_memory().unwrap();
        group.begin_run(Path::ROOT).unwrap();
        group.publish();
        let seen = descriptor_of(me, Access::Read).unwrap();
        let seen = map(&seen, Access::Read).unwrap();
        assert_eq!(seen.run_by(me), Some(0));
        assert!(File::open(&group.path).is_ok());
    }

    #[test]
    fn mappings_name_the_group() {
        let line = |path: &str| format!("7f00-7f01 rw-s 00000000 00:1a 17    {path}\n");
        let maps = line("/usr/lib/libc.so.6") + &line("/dev/shm/uzswap-0/run-7-ab.group");
        assert_eq!(
            group_in(&maps),
            Some(Name::Path {
                path: "/dev/shm/uzswap-0/run-7-ab.group",
                deleted: false
            })
        );
        assert_eq!(
            group_in(&line("/tmp/uzswap-5/run-7-ab.group (deleted)")),
            Some(Name::Path {
                path: "/tmp/uzswap-5/run-7-ab.group",
                deleted: true
            })
        );
        assert_eq!(
            group_in(&line("/memfd:uzswap-group-31 (deleted)")),
            Some(Name::Memory { supervisor: 31 })
        );
        assert_eq!(group_in(&line("/srv/data/run-7.group")), None);
        assert_eq!(group_in("7f00-7f01 rw-p 00000000 00:00 0 [heap]\n"), None);
    }
}
