//! *What*: the group file, which `uzswap run` shares with the processes under it and, if it has a
//! name, with others: creates and maps it. [`find`]: that of a running process; [`name`]: of a
//! name.
//!
//! *Invariants*: each supervisor holds a shared lock (flock) on its group file as long as it lives,
//! so a file that can be locked exclusively is a leftover. `magic` is stored last. A mapped group
//! is only accessed through its atomics.
//! *Locking*: flock; `GroupFile::create_in` handles the race with a process that removes leftovers.
//! *Context*: any command.

mod find;
pub mod name;

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use uzswap_group::environment::{GROUP_ENV, Told};
use uzswap_group::group::{GROUP_LEN, Group, MAGIC, Process, Run};
use uzswap_sync::ledger::{NR_SHARES, Share};
use uzswap_sync::node::Path as NodePath;

pub use find::{Managed, is_managed, of_process};

use crate::os::{self, euid};
use crate::private_dir::{self, Purpose};

/// A group file is named `run-4711-<random>.group`.
const PREFIX: &str = "run-";
const SUFFIX: &str = ".group";
/// Name of a memory file that holds a group because no directory could; the pid follows.
const MEMORY_NAME: &str = "uzswap-group-";
/// Processes for which the file has room from the beginning.
const FIRST: usize = 4;
/// Places and lengths that are allocated at creation: all up to the first shares of the ledger,
/// which end it, and the first records. Running out of space later would end a program with SIGBUS.
const RESERVED: [(usize, usize); 2] = [
    (
        0,
        offset_of!(Group, processes) - (NR_SHARES - FIRST) * size_of::<Share>(),
    ),
    (offset_of!(Group, processes), FIRST * size_of::<Process>()),
];

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

/// The group file of this supervisor; removed when dropped, unless others still have it.
#[derive(Debug)]
pub struct GroupFile {
    path: PathBuf,
    on_disk: bool,
    mapping: Mapping,
    /// Holds the lock.
    file: File,
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
            lock_existing(&file)?;
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
                file,
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
        os::lock_shared(&file)?;
        Ok(GroupFile {
            path: format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into(),
            on_disk: false,
            mapping,
            file,
        })
    }

    /// The group in the file `path`, which another run made.
    fn join(path: PathBuf) -> io::Result<Self> {
        let file = open(&path, Access::Change)?;
        lock_existing(&file)?;
        let mapping = map(&file, Access::Change)?;
        Ok(GroupFile {
            path,
            on_disk: true,
            mapping,
            file,
        })
    }

    fn fill(file: &File) -> io::Result<Mapping> {
        file.set_len(GROUP_LEN as u64)?;
        for (place, len) in RESERVED {
            let at = |bytes| libc::off_t::try_from(bytes).unwrap_or(libc::off_t::MAX);
            // SAFETY: the descriptor is open for the duration of the call.
            let errno = unsafe { libc::posix_fallocate(file.as_raw_fd(), at(place), at(len)) };
            if errno != 0 {
                return Err(io::Error::from_raw_os_error(errno));
            }
        }
        Mapping::new(file, Access::Change)
    }

    /// Begins the run of this supervisor, in that node. Returns its number; `None`: there is no
    /// place for one more.
    pub fn begin_run(&self, path: NodePath) -> Option<usize> {
        let pid = std::process::id();
        let started = os::started(pid).unwrap_or(0);
        self.mapping.begin_run(path, pid, started, has_ended)
    }

    /// Makes the group valid: managed processes accept it from then on.
    pub fn publish(&self) {
        // Pairs with the acquire loads of `magic`: the configuration is complete.
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// The value of [`GROUP_ENV`] for the processes of this supervisor's run; `engines`: the files
    /// of the library and of the image.
    pub fn in_environment(&self, engines: [&Path; 2]) -> OsString {
        let [library, image] = engines.map(|path| path.as_os_str().as_bytes());
        let told = Told {
            group: self.path.as_os_str().as_bytes(),
            supervisor: std::process::id(),
            library,
            image,
        };
        let mut value = Vec::new();
        told.write(|part| value.extend_from_slice(part));
        OsString::from_vec(value)
    }

    /// Whether no other supervisor has it. From then on none can join.
    fn is_last(&self) -> bool {
        os::lock(&self.file).is_ok()
    }
}

/// Holds a lock on a group file, unless it is a leftover that was removed.
fn lock_existing(file: &File) -> io::Result<()> {
    os::lock_shared(file)?;
    match file.metadata()?.nlink() {
        0 => Err(ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

/// Whether the supervisor of a run is gone, by its own will or not.
pub fn has_ended(run: &Run) -> bool {
    let pid = run.supervisor.load(Ordering::Acquire);
    pid == 0 || os::started(pid) != Some(run.started.load(Ordering::Relaxed))
}

impl std::ops::Deref for GroupFile {
    type Target = Group;

    fn deref(&self) -> &Group {
        &self.mapping
    }
}

impl Drop for GroupFile {
    fn drop(&mut self) {
        if self.on_disk && self.is_last() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn remove_leftovers(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let file_name = entry.file_name();
        let bytes = file_name.as_bytes();
        let is_group = bytes.starts_with(PREFIX.as_bytes()) && bytes.ends_with(SUFFIX.as_bytes());
        if !is_group && !bytes.ends_with(name::SUFFIX.as_bytes()) {
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
        if os::lock(&file).is_ok() && (is_group || name::leads_nowhere(dir, &file)) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Whether this process runs under a live `uzswap run`, and the pid of that if it is known.
pub fn enclosing_run() -> Option<Option<u32>> {
    let value = std::env::var_os(GROUP_ENV)?;
    let told = Told::parse(value.as_bytes())?;
    match File::open(OsStr::from_bytes(told.group)) {
        Ok(file) if os::lock(&file).is_ok() => None,
        Ok(file) => match map(&file, Access::Read) {
            Ok(group) => group.run_by(told.supervisor).map(|_| Some(told.supervisor)),
            Err(_) => Some(None),
        },
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

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// For tests that have a group: whoever asks for the group of this process finds any of them.
    pub fn alone() -> MutexGuard<'static, ()> {
        static GROUPS: Mutex<()> = Mutex::new(());
        GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn a_killed_supervisors_file_is_removed_and_a_live_ones_stays() {
        let dir = std::env::temp_dir().join(format!("uzswap-groups-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let _alone = alone();
        let live = GroupFile::create_in(&dir).unwrap();
        let leftover = dir.join("run-1-00.group");
        File::create(&leftover).unwrap();
        let other = dir.join("notes.txt");
        File::create(&other).unwrap();
        remove_leftovers(&dir);
        assert!(live.path.exists());
        assert!(!leftover.exists());
        assert!(other.exists());
        let path = live.path.to_owned();
        drop(live);
        assert!(!path.exists());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn others_can_neither_open_nor_find_a_group_file() {
        let _alone = alone();
        let group = GroupFile::create().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let expected = if euid() == 0 { 0o666 } else { 0o600 };
        assert_eq!(mode(&group.path), expected);
        assert_eq!(mode(group.path.parent().unwrap()) & 0o066, 0, "listed");
    }
}
