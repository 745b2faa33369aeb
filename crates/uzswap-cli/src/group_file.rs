//! *What*: the group file, which `uzswap run` shares with the processes under it: creates and maps
//! it, finds and maps that of a running process.
//!
//! *Invariants*: the supervisor holds a lock (flock) on its group file as long as it lives, so a
//! file that can be locked is a leftover. `magic` is stored last. A mapped group is only accessed
//! through its atomics.
//! *Locking*: flock; `GroupFile::create_in` handles the race with a process that removes leftovers.
//! *Context*: any command.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, anyhow, bail};
use uzswap_group::group::{GROUP_ENV, GROUP_LEN, Group, MAGIC};

use crate::os::{self, euid};
use crate::private_dir::{self, Purpose};

/// A group file is named `run-4711-<random>.group`.
const PREFIX: &str = "run-";
const SUFFIX: &str = ".group";
/// Name of a memory file that holds a group because no directory could; the pid follows.
const MEMORY_NAME: &str = "uzswap-group-";
/// Bytes allocated at creation: the header and the first process slots. Running out of space later
/// would end a program with SIGBUS.
const RESERVED: i64 = 128 << 10;

/// How a group is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read-only.
    Read,
    /// Writable, to change knobs and send requests.
    Change,
}

/// A mapped group.
#[derive(Debug)]
pub struct Mapping(NonNull<Group>);

impl Mapping {
    fn new(file: &File, access: Access) -> io::Result<Self> {
        let at = os::map_shared(file, GROUP_LEN, access == Access::Change)?;
        Ok(Mapping(at.cast()))
    }
}

impl std::ops::Deref for Mapping {
    type Target = Group;

    fn deref(&self) -> &Group {
        // SAFETY: GROUP_LEN bytes are mapped until drop, page aligned, and the file is that long
        // (checked or set before it is mapped). A group is made of atomics only, so any bytes are
        // valid and other processes may change them. Writers map it with `Access::Change`.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; the reference that deref gave cannot outlive
        // self.
        unsafe { libc::munmap(self.0.as_ptr().cast(), GROUP_LEN) };
    }
}

/// The group file of this supervisor; removed when dropped.
#[derive(Debug)]
pub struct GroupFile {
    path: PathBuf,
    on_disk: bool,
    mapping: Mapping,
    /// Holds the lock.
    _file: File,
}

impl GroupFile {
    /// Creates a zero-filled group and removes the leftovers of supervisors that were killed.
    pub fn create() -> Result<Self> {
        for dir in private_dir::usable(Purpose::Group) {
            remove_leftovers(&dir);
            if let Ok(created) = Self::create_in(&dir) {
                return Ok(created);
            }
        }
        Self::create_in_memory().context("cannot create the group file, in memory either")
    }

    fn create_in(dir: &Path) -> io::Result<Self> {
        let mut random = [0; 8];
        // SAFETY: random is writable and as long as is told.
        if unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) } != 8 {
            return Err(io::Error::last_os_error());
        }
        let path = dir.join(format!(
            "{PREFIX}{}-{:016x}{SUFFIX}",
            std::process::id(),
            u64::from_ne_bytes(random)
        ));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .custom_flags(libc::O_NOFOLLOW)
            .mode(0o600)
            .open(&path)?;
        let created = Self::fill(&file).and_then(|mapping| {
            // Between creation and lock another run may have removed the file as a leftover.
            if os::lock(&file).is_err() || file.metadata()?.nlink() == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            // A program that root starts may become another user. It still knows the file's name,
            // which nobody else can list or guess.
            if euid() == 0 {
                file.set_permissions(fs::Permissions::from_mode(0o666))?;
            }
            Ok(mapping)
        });
        match created {
            Ok(mapping) => Ok(GroupFile {
                path,
                on_disk: true,
                mapping,
                _file: file,
            }),
            Err(error) => {
                let _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }

    /// Works where no directory is writable. Others find it among the supervisor's descriptors.
    fn create_in_memory() -> io::Result<Self> {
        let name = format!("{MEMORY_NAME}{}", std::process::id());
        let file = os::memory_file(&CString::new(name)?)?;
        let mapping = Self::fill(&file)?;
        os::lock(&file)?;
        Ok(GroupFile {
            path: format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into(),
            on_disk: false,
            mapping,
            _file: file,
        })
    }

    fn fill(file: &File) -> io::Result<Mapping> {
        file.set_len(GROUP_LEN as u64)?;
        // SAFETY: the descriptor is open for the duration of the call.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, RESERVED) } {
            0 => Mapping::new(file, Access::Change),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Makes the group valid: managed processes accept it from then on.
    pub fn publish(&self) {
        self.supervisor.store(std::process::id(), Ordering::Relaxed);
        // Pairs with the acquire loads of `magic`: the configuration is complete.
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Path for UZSWAP_GROUP.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl std::ops::Deref for GroupFile {
    type Target = Group;

    fn deref(&self) -> &Group {
        &self.mapping
    }
}

impl Drop for GroupFile {
    fn drop(&mut self) {
        if self.on_disk {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn remove_leftovers(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.as_bytes();
        if !name.starts_with(PREFIX.as_bytes()) || !name.ends_with(SUFFIX.as_bytes()) {
            continue;
        }
        let path = entry.path();
        let Ok(file) = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&path)
        else {
            continue;
        };
        // Removed under the lock: a creator that gets the lock later finds no link and tries again.
        if os::lock(&file).is_ok() {
            let _ = fs::remove_file(path);
        }
    }
}

/// Whether this process runs under a live `uzswap run`, and the pid of that if it is known.
pub fn enclosing_run() -> Option<Option<u32>> {
    let path = PathBuf::from(std::env::var_os(GROUP_ENV)?);
    match File::open(&path) {
        Ok(file) if os::lock(&file).is_ok() => None,
        Ok(file) => Some(
            map(&file, Access::Read)
                .ok()
                .map(|g| g.supervisor.load(Ordering::Relaxed)),
        ),
        // Another user's group. It exists, so its run is alive.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Some(None),
        Err(_) => None,
    }
}

fn map(file: &File, access: Access) -> io::Result<Mapping> {
    if file.metadata()?.len() != GROUP_LEN as u64 {
        return Err(ErrorKind::InvalidData.into());
    }
    let mapping = Mapping::new(file, access)?;
    if mapping.magic.load(Ordering::Acquire) != MAGIC {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok(mapping)
}

/// Opens a group's file.
fn open(path: impl AsRef<Path>, access: Access) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(access == Access::Change)
        .open(path)
}

/// Maps the group of process `pid`, a supervisor or a managed process. It is found among the
/// process's mappings, since a process may change its environment.
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

    #[test]
    fn a_killed_supervisors_file_is_removed_and_a_live_ones_stays() {
        let dir = std::env::temp_dir().join(format!("uzswap-groups-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let live = GroupFile::create_in(&dir).unwrap();
        let leftover = dir.join("run-1-00.group");
        File::create(&leftover).unwrap();
        let other = dir.join("notes.txt");
        File::create(&other).unwrap();
        remove_leftovers(&dir);
        assert!(live.path().exists());
        assert!(!leftover.exists());
        assert!(other.exists());
        let path = live.path().to_owned();
        drop(live);
        assert!(!path.exists());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn stat_finds_the_group_of_a_process_that_maps_it() {
        let me = std::process::id();
        let group = GroupFile::create().unwrap();
        group.publish();
        group.knobs.ram.store(42, Ordering::Relaxed);
        let seen = of_process(me, Access::Read).unwrap();
        assert_eq!(seen.knobs.ram.load(Ordering::Relaxed), 42);
        assert_eq!(seen.supervisor.load(Ordering::Relaxed), me);
    }

    #[test]
    fn a_group_in_memory_is_found_by_its_supervisor() {
        let me = std::process::id();
        let group = GroupFile::create_in_memory().unwrap();
        group.publish();
        let seen = descriptor_of(me, Access::Read).unwrap();
        let seen = map(&seen, Access::Read).unwrap();
        assert_eq!(seen.supervisor.load(Ordering::Relaxed), me);
        assert!(File::open(group.path()).is_ok());
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
