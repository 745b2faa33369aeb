//! *What*: the engine in the two forms that this binary carries: the preload library, and the image
//! for programs that ld.so loads nothing into. Writes each to a file, once for each user and
//! version, and gives the path.
//!
//! *Invariants*: a file has exactly the embedded bytes. It is written aside and renamed, so that no
//! concurrent start loads half of it.
//! *Locking*: none. *Context*: `uzswap run`.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use uzswap_group::library::is_library;

use crate::os;
use crate::private_dir::{self, Purpose};

/// The library, built by build.rs; empty in a build without it.
pub static LIBRARY: Form = Form {
    bytes: include_bytes!(env!("UZSWAP_PRELOAD_LIBRARY")),
    name: concat!("libuzswap-", env!("UZSWAP_PRELOAD_HASH"), ".so"),
};
/// The image, likewise.
pub static IMAGE: Form = Form {
    bytes: include_bytes!(env!("UZSWAP_IMAGE")),
    name: concat!("uzswap-image-", env!("UZSWAP_IMAGE_HASH")),
};

/// A form of the engine.
#[derive(Debug)]
pub struct Form {
    bytes: &'static [u8],
    /// Its file name, with a hash of its bytes, which tells versions apart.
    name: &'static str,
}

/// A form of the engine in a file, as long as this value lives.
#[derive(Debug)]
pub struct Installed {
    path: PathBuf,
    /// Holds the bytes when no directory could.
    _memory: Option<File>,
}

impl Form {
    /// Its file name, which tells versions apart.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Writes it to a directory that programs can load it from, unless it is there.
    pub fn install(&self) -> Result<Installed> {
        if self.bytes.is_empty() {
            bail!(
                "this uzswap was built with UZSWAP_STUB_PRELOAD and carries no library: build it without"
            );
        }
        for dir in private_dir::usable(Purpose::Library) {
            let path = dir.join(self.name);
            if self.is_in(&path) || self.write(&dir, &path).is_ok_and(|()| self.is_in(&path)) {
                return Ok(Installed {
                    path,
                    _memory: None,
                });
            }
        }
        let memory = self.in_memory().context(
            "no directory can hold the preload library: make XDG_RUNTIME_DIR, ~/.cache or /tmp \
             writable, and mount it without noexec",
        )?;
        Ok(Installed {
            path: format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd()).into(),
            _memory: Some(memory),
        })
    }

    /// Whether the file has exactly the embedded bytes. Compares piece by piece, to use little
    /// memory.
    fn is_in(&self, path: &Path) -> bool {
        let Ok(mut file) = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
        else {
            return false;
        };
        let mut rest = self.bytes;
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

    fn write(&self, dir: &Path, path: &Path) -> io::Result<()> {
        let aside = dir.join(format!(".{}.{}", self.name, std::process::id()));
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&aside)
            .and_then(|mut file| {
                file.write_all(self.bytes)?;
                // Programs that changed user load it too.
                file.set_permissions(fs::Permissions::from_mode(0o755))
            })
            .and_then(|()| fs::rename(&aside, path));
        if written.is_err() {
            let _ = fs::remove_file(&aside);
        }
        written
    }

    /// In a memory file: works where every directory is read-only or `noexec`.
    fn in_memory(&self) -> io::Result<File> {
        let mut file = os::memory_file(&CString::new(self.name)?)?;
        file.write_all(self.bytes)?;
        Ok(file)
    }
}

impl Installed {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// LD_PRELOAD with this library first, then the libraries of `inherited`.
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
            .filter(|entry| !entry.is_empty() && !is_library(entry)),
    );
    OsString::from_vec(entries.join(&b':'))
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
        assert_eq!(
            with("/proc/self/fd/0"),
            "/run/uzswap/libuzswap-1.so:/proc/self/fd/0"
        );
    }
}
