//! *What*: directories of our own for the preload library and the group file: finds or makes the
//! usable ones of a list.
//!
//! *Invariants*: a usable directory is a real one (no symbolic link), owned by us, and writable by
//! nobody else: others could have their code loaded into the programs that we run.
//! *Locking*: none. *Context*: `uzswap run`.

use std::ffi::CString;
use std::fs::{self, DirBuilder};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::os::euid;

/// What a directory must allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Shared libraries: no `noexec` mount, no space or colon in the path (both end an entry of
    /// LD_PRELOAD), readable by programs that changed user.
    Library,
    /// Group files: in memory if possible; others cannot list their names.
    Group,
}

impl Purpose {
    fn mode(self) -> u32 {
        match self {
            Purpose::Library => 0o755,
            Purpose::Group => 0o711,
        }
    }

    fn candidates(self, uid: u32) -> Vec<PathBuf> {
        let absolute = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|p| p.is_absolute())
        };
        let mut dirs = Vec::new();
        let own = format!("uzswap-{uid}");
        if self == Purpose::Group {
            dirs.push(Path::new("/dev/shm").join(&own));
        }
        if uid == 0 {
            // A daemon may change to a user who cannot read root's home.
            dirs.push("/run/uzswap".into());
            dirs.push("/var/cache/uzswap".into());
        } else {
            dirs.extend(absolute("XDG_RUNTIME_DIR").map(|d| d.join("uzswap")));
            dirs.extend(
                absolute("XDG_CACHE_HOME")
                    .or_else(|| absolute("HOME").map(|d| d.join(".cache")))
                    .map(|d| d.join("uzswap")),
            );
        }
        dirs.push(Path::new("/tmp").join(&own));
        dirs.push(Path::new("/var/tmp").join(&own));
        if self == Purpose::Library {
            dirs.push(Path::new("/dev/shm").join(&own));
        }
        dirs
    }
}

/// The usable directories for `purpose`, best first. Each is made when the iterator reaches it.
pub fn usable(purpose: Purpose) -> impl Iterator<Item = PathBuf> {
    let uid = euid();
    purpose
        .candidates(uid)
        .into_iter()
        .filter(move |dir| make(dir, purpose, uid))
}

/// Directories in which other users may have their group files.
pub fn of_others() -> impl Iterator<Item = PathBuf> {
    let shared = ["/dev/shm", "/tmp", "/var/tmp"].map(fs::read_dir);
    let entries = shared.into_iter().flatten().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().as_bytes().starts_with(b"uzswap-"));
    ours.map(|entry| entry.path()).chain(["/run/uzswap".into()])
}

fn make(dir: &Path, purpose: Purpose, uid: u32) -> bool {
    let name = dir.as_os_str().as_bytes();
    if purpose == Purpose::Library && name.iter().any(|b| b.is_ascii_whitespace() || *b == b':') {
        return false;
    }
    if !dir.exists() {
        // ~/.cache may be missing too. After an error the directory is missing below.
        let parent_is_ours = dir
            .parent()
            .and_then(Path::parent)
            .is_some_and(|p| fs::metadata(p).is_ok_and(|m| m.uid() == uid));
        let _ = DirBuilder::new()
            .recursive(parent_is_ours)
            .mode(0o700)
            .create(dir);
    }
    let Ok(meta) = fs::symlink_metadata(dir) else {
        return false;
    };
    if !meta.is_dir() || meta.uid() != uid || meta.mode() & 0o022 != 0 {
        return false;
    }
    // The umask may have cleared bits that other users' programs need.
    if meta.mode() & 0o777 != purpose.mode() | (meta.mode() & 0o755)
        && fs::set_permissions(
            dir,
            fs::Permissions::from_mode(purpose.mode() | (meta.mode() & 0o755)),
        )
        .is_err()
    {
        return false;
    }
    mount_allows(dir, purpose)
}

/// False on a read-only mount, and on a `noexec` one for libraries.
fn mount_allows(dir: &Path, purpose: Purpose) -> bool {
    let Ok(path) = CString::new(dir.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: an all-zero statvfs is valid; the call fills it.
    let mut fs: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: path is a NUL-terminated string and fs is writable for the call.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut fs) } != 0 {
        return false;
    }
    fs.f_flag & libc::ST_RDONLY == 0
        && (purpose != Purpose::Library || fs.f_flag & libc::ST_NOEXEC == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_directories_that_nobody_else_can_write_are_used() {
        let root = std::env::temp_dir().join(format!("uzswap-dirs-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let uid = euid();
        let fresh = root.join("fresh");
        assert!(make(&fresh, Purpose::Library, uid));
        assert_eq!(
            fs::metadata(&fresh).unwrap().permissions().mode() & 0o777,
            0o755
        );
        assert!(make(&fresh, Purpose::Library, uid), "again");
        assert!(!make(&fresh, Purpose::Library, uid + 1), "another's");

        let open = root.join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!make(&open, Purpose::Group, uid));

        let link = root.join("link");
        symlink(&fresh, &link).unwrap();
        assert!(!make(&link, Purpose::Group, uid));

        let spaced = root.join("with space");
        assert!(!make(&spaced, Purpose::Library, uid));
        assert!(make(&spaced, Purpose::Group, uid));
        fs::remove_dir_all(&root).unwrap();
    }
}
