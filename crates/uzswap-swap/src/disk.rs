//! *What*: what lies under a path: kind of file system, free space, kind of disk.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// File systems that keep files in memory, by their magic numbers in statfs(2).
const IN_MEMORY: [(i64, &str); 3] = [
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x9584_58f6, "hugetlbfs"),
];

/// The magic number of overlayfs, whose files are in another file system.
const OVERLAY: i64 = 0x794c_7630;

/// The file system that an open file is on.
#[derive(Clone, Copy, Debug)]
pub struct FileSystem {
    magic: i64,
    /// Bytes that an ordinary user may still fill.
    pub free: u64,
}

impl FileSystem {
    /// Of `file`, which may have been opened for its path only.
    pub fn of(file: &File) -> io::Result<FileSystem> {
        let fs = statfs(file)?;
        let block = u64::try_from(fs.f_bsize).unwrap_or(0);
        Ok(FileSystem {
            magic: upper_magic(file, &fs).unwrap_or(fs.f_type),
            free: fs.f_bavail.saturating_mul(block),
        })
    }

    /// Its name, if its files are memory.
    pub fn in_memory(&self) -> Option<&'static str> {
        IN_MEMORY
            .iter()
            .find_map(|&(magic, name)| (magic == self.magic).then_some(name))
    }
}

fn statfs(file: &File) -> io::Result<libc::statfs> {
    // SAFETY: an all-zero statfs is valid; the call fills it.
    let mut fs: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and fs writable for the call.
    if unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut fs) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(fs)
}

/// The magic number of the file system that new files of an overlay are in, if its directory can be
/// seen from here: in a container it often cannot.
fn upper_magic(file: &File, overlay: &libc::statfs) -> Option<i64> {
    if overlay.f_type != OVERLAY {
        return None;
    }
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let upper = File::open(upper_directory(&mounts, mount.trim())?).ok()?;
    let fs = statfs(&upper).ok()?;
    // An overlay reports its upper directory's size. If it is another's, so is the directory.
    (fs.f_blocks == overlay.f_blocks && fs.f_bsize == overlay.f_bsize).then_some(fs.f_type)
}

/// The upper directory of the overlay that is mount number `mount` in `mounts`, of mountinfo's
/// form.
pub fn upper_directory<'a>(mounts: &'a str, mount: &str) -> Option<&'a str> {
    let line = mounts
        .lines()
        .find(|line| line.split(' ').next() == Some(mount))?;
    let (_, file_system) = line.split_once(" - ")?;
    let options = file_system.split(' ').nth(2)?;
    options
        .split(',')
        .find_map(|option| option.strip_prefix("upperdir="))
}

/// The directory of block device `dev` in sysfs, which is mounted at `sys`.
fn sysfs_dir(sys: &Path, dev: u64) -> PathBuf {
    sys.join(format!(
        "dev/block/{}:{}",
        libc::major(dev),
        libc::minor(dev)
    ))
}

/// Whether `dev` is a disk that turns. What cannot be told (network, layered file systems) counts
/// as not.
pub fn is_rotational(sys: &Path, dev: u64) -> bool {
    let dir = sysfs_dir(sys, dev);
    // A partition has its queue one level up, behind the symbolic link.
    ["queue/rotational", "../queue/rotational"]
        .iter()
        .find_map(|file| fs::read_to_string(dir.join(file)).ok())
        .is_some_and(|text| text.trim() == "1")
}

/// Whether block device `dev` is memory: a RAM disk, or zram.
pub fn is_memory_device(sys: &Path, dev: u64) -> bool {
    const RAMDISK_MAJOR: u32 = 1;
    libc::major(dev) == RAMDISK_MAJOR
        || fs::read_link(sysfs_dir(sys, dev)).is_ok_and(|link| {
            link.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("zram"))
        })
}
