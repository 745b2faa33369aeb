//! *What*: the preload library that this binary carries: writes it to a file that ld.so can load,
//! once for each user and version, and gives the path for LD_PRELOAD.
//!
//! *Invariants*: the file has exactly the embedded bytes. It is written aside and renamed, so that
//! no concurrent start loads half of it.
//! *Locking*: none. *Context*: `uzswap run`.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use uzswap_group::group::LIBRARY_PREFIX as PREFIX;

use crate::os;
use crate::private_dir::{self, Purpose};

/// The library, built by build.rs; empty in a build without it.
static LIBRARY: &[u8] = include_bytes!(env!("UZSWAP_PRELOAD_LIBRARY"));
/// Hash of [`LIBRARY`], for its file name.
const HASH: &str = env!("UZSWAP_PRELOAD_HASH");

/// A library that can be loaded as long as this value lives.
#[derive(Debug)]
pub struct Preload {
    path: PathBuf,
    /// Holds the library when no directory could.
    _memory: Option<File>,
}

impl Preload {
    /// Writes the library to a directory that programs can load it from, unless it is there.
    pub fn install() -> Result<Self> {
        if LIBRARY.is_empty() {
            bail!(
                "this uzswap was built with UZSWAP_STUB_PRELOAD and carries no library: build it without"
            );
        }
        let name = format!("{PREFIX}{HASH}.so");
        for dir in private_dir::usable(Purpose::Library) {
            let path = dir.join(&name);
            if has_library(&path) || write(&dir, &path).is_ok_and(|()| has_library(&path)) {
                return Ok(Preload {
                    path,
                    _memory: None,
                });
            }
        }
        let memory = in_memory().context(
            "no directory can hold the preload library: make XDG_RUNTIME_DIR, ~/.cache or /tmp \
             writable, and mount it without noexec",
        )?;
        Ok(Preload {
            path: format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd()).into(),
            _memory: Some(memory),
        })
    }

    /// LD_PRELOAD with our library first, then the libraries of `inherited`.
    pub fn ld_preload(&self, inherited: Option<&OsStr>) -> OsString {
        prepend(&self.path, inherited)
    }
}

/// Puts `library` before the entries of `inherited`, and drops any other library of ours.
fn prepend(library: &Path, inherited: Option<&OsStr>) -> OsString {
    let mut entries = vec![library.as_os_str().as_bytes()];
    entries.extend(
        inherited
            .map_or(&[][..], OsStr::as_bytes)
            .split(|b| *b == b':' || *b == b' ')
            .filter(|entry| !entry.is_empty())
            .filter(|entry| {
                Path::new(OsStr::from_bytes(entry))
                    .file_name()
                    .is_none_or(|name| !name.as_bytes().starts_with(PREFIX.as_bytes()))
            }),
    );
    OsString::from_vec(entries.join(&b':'))
}

/// Whether the file has exactly the embedded bytes. Compares piece by piece, to use little memory.
fn has_library(path: &Path) -> bool {
    let Ok(mut file) = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
    else {
        return false;
    };
    let mut rest = LIBRARY;
    let mut piece = vec![0; 32 << 10];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return rest.is_empty(),
            Ok(n) => match rest.split_at_checked(n) {
                Some((head, tail)) if head == &piece[..n] => rest = tail,
                _ => return false,
            },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

fn write(dir: &Path, path: &Path) -> io::Result<()> {
    let aside = dir.join(format!(".{PREFIX}{HASH}.{}", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&aside)
        .and_then(|mut file| {
            file.write_all(LIBRARY)?;
            // Programs that changed user load it too.
            file.set_permissions(fs::Permissions::from_mode(0o644))
        })
        .and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        let _ = fs::remove_file(&aside);
    }
    written
}

/// The library in a memory file: works where every directory is read-only or `noexec`.
fn in_memory() -> io::Result<File> {
    let mut file = os::memory_file(c"libuzswap")?;
    file.write_all(LIBRARY)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::prepend;
    use std::ffi::OsStr;
    use std::path::Path;

    #[test]
    fn an_inherited_preload_stays_and_ours_is_first_and_once() {
        let ours = Path::new("/run/uzswap/libuzswap-1.so");
        let with = |inherited: &str| prepend(ours, Some(OsStr::new(inherited)));
        assert_eq!(prepend(ours, None), "/run/uzswap/libuzswap-1.so");
        assert_eq!(with(""), "/run/uzswap/libuzswap-1.so");
        assert_eq!(
            with("/a/x.so y.so"),
            "/run/uzswap/libuzswap-1.so:/a/x.so:y.so"
        );
        assert_eq!(
            with("/tmp/libuzswap-0.so:/a/x.so"),
            "/run/uzswap/libuzswap-1.so:/a/x.so"
        );
    }
}
