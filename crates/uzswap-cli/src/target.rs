//! *What*: finds the command and how it can be managed: by the preload library, by the image where
//! no glibc's ld.so loads that, or not at all: programs that change user or gain capabilities, and
//! those of 32 bits, would silently run without their limit.
//!
//! *Locking*: none. *Context*: `uzswap run`, `uzswap analyze`.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use uzswap_core::{ARENA_BASE, ARENA_LEN};
use uzswap_group::image::{self, Kind, Section};

use crate::os::euid;
use crate::status::{FAILED, NOT_EXECUTABLE, NOT_FOUND, refused};

/// A command that exists and may be executed.
#[derive(Debug)]
pub struct Target {
    /// The file to execute.
    pub path: PathBuf,
    /// It is a script without `#!`, which the shell executes.
    pub by_shell: bool,
    /// How it is managed.
    pub way: Way,
}

/// How a program is managed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// By the library that ld.so preloads.
    Library,
    /// By the image that a tracer puts into it.
    Image,
    /// It cannot be, for this reason.
    Unmanaged(String),
}

/// The shell that execvp(3) runs scripts without `#!` with.
pub const SHELL: &str = "/bin/sh";
/// How deep the kernel follows scripts that name scripts.
const MAX_SCRIPT_DEPTH: u32 = 5;

/// Finds `command` as execvp(3) does, and whether it can be managed.
pub fn find(command: &OsStr, path: Option<&OsStr>) -> Result<Target> {
    let file = look_up(command, path)?;
    let head = read_head(&file);
    let by_shell = head.as_ref().is_ok_and(|head| inspect(head) == Kind::Other);
    let way = match head {
        Ok(_) => way_into(&file, path, MAX_SCRIPT_DEPTH),
        // Executable, but not readable.
        Err(_) => Way::Unmanaged(format!("{} cannot be read", file.display())),
    };
    Ok(Target {
        path: file,
        by_shell,
        way,
    })
}

fn look_up(command: &OsStr, path: Option<&OsStr>) -> Result<PathBuf> {
    let shown = command.display();
    if command.as_bytes().contains(&b'/') {
        return match executable(Path::new(command)) {
            Ok(()) => Ok(command.into()),
            Err(error) => Err(match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => {
                    refused!(
                        NOT_FOUND,
                        "{shown}: no such file: check the path of the command"
                    )
                }
                _ => not_executable(&shown, &error),
            }),
        };
    }
    if command.is_empty() {
        return Err(refused!(NOT_FOUND, "the command's name is empty"));
    }
    let mut denied = None;
    let path = path.unwrap_or(OsStr::new("/bin:/usr/bin"));
    for dir in path.as_bytes().split(|b| *b == b':') {
        let dir = if dir.is_empty() { b"." } else { dir };
        let file = Path::new(OsStr::from_bytes(dir)).join(command);
        match executable(&file) {
            Ok(()) => return Ok(file),
            Err(error) if error.kind() == ErrorKind::PermissionDenied && file.exists() => {
                denied.get_or_insert((file, error));
            }
            Err(_) => {}
        }
    }
    Err(match denied {
        Some((file, error)) => not_executable(&file.display(), &error),
        None => refused!(
            NOT_FOUND,
            "{shown}: command not found: check its name, or give its path"
        ),
    })
}

fn not_executable(shown: &dyn std::fmt::Display, error: &io::Error) -> anyhow::Error {
    let why = match error.kind() {
        ErrorKind::IsADirectory => " is a directory, not a command",
        _ => ": cannot be executed: permission denied (see 'chmod +x')",
    };
    refused!(NOT_EXECUTABLE, "{shown}{why}")
}

fn executable(file: &Path) -> io::Result<()> {
    if fs::metadata(file)?.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    let name = c_path(file)?;
    // SAFETY: name is a NUL-terminated string.
    match unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), libc::X_OK, libc::AT_EACCESS) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn c_path(file: &Path) -> io::Result<CString> {
    CString::new(file.as_os_str().as_bytes()).map_err(|_| ErrorKind::InvalidInput.into())
}

fn read_head(file: &Path) -> io::Result<Vec<u8>> {
    read_part(file, 0, image::HEAD)
}

fn read_part(file: &Path, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut part = Vec::with_capacity(len);
    let mut file = File::open(file)?;
    file.seek(SeekFrom::Start(offset))?;
    file.take(len as u64).read_to_end(&mut part)?;
    Ok(part)
}

fn inspect(head: &[u8]) -> Kind<'_> {
    image::inspect(head, &(ARENA_BASE..ARENA_BASE + ARENA_LEN))
}

/// Whether a dynamic program names a library.
fn is_linked(file: &Path, section: Section) -> bool {
    let len = usize::try_from(section.len).unwrap_or(usize::MAX);
    read_part(file, section.offset, len.min(image::DYNAMIC_HEAD))
        .is_ok_and(|dynamic| image::is_linked(&dynamic))
}

/// How `file` is managed. Follows `#!` lines.
fn way_into(file: &Path, path: Option<&OsStr>, depth: u32) -> Way {
    let shown = file.display();
    let Ok(head) = read_head(file) else {
        return Way::Unmanaged(format!("{shown} cannot be read"));
    };
    let interpreted_by = |interpreter: &Path| match depth.checked_sub(1) {
        Some(depth) => way_into(interpreter, path, depth),
        // Exec will report it.
        None => Way::Library,
    };
    let way = match inspect(&head) {
        Kind::Script(line) => {
            return interpreter_of(line, path)
                .map_or(Way::Library, |interpreter| interpreted_by(&interpreter));
        }
        Kind::Other if file != Path::new(SHELL) => return interpreted_by(Path::new(SHELL)),
        Kind::Other => Way::Library,
        Kind::Dynamic(section) if is_linked(file, section) => Way::Library,
        Kind::Dynamic(_) | Kind::Linker(_) | Kind::Go => Way::Image,
        Kind::Static if image::is_linker(file.as_os_str().as_bytes()) => Way::Library,
        Kind::Static => Way::Image,
        Kind::InArena => Way::Unmanaged(format!(
            "{shown} is linked to addresses from {ARENA_BASE:#x} on, which uzswap manages"
        )),
        Kind::Foreign => Way::Unmanaged(format!("{shown} is not an x86-64 program")),
    };
    match gains_privilege(file) {
        Some(how) if !matches!(way, Way::Unmanaged(_)) => Way::Unmanaged(format!("{shown} {how}")),
        _ => way,
    }
}

/// The reason why executing `file` makes ld.so drop LD_PRELOAD (AT_SECURE). Root gains nothing by
/// file capabilities; set-user-ID and set-group-ID files are refused for root, too.
fn gains_privilege(file: &Path) -> Option<&'static str> {
    let mode = fs::metadata(file).ok()?.mode();
    let set_gid = libc::S_ISGID | libc::S_IXGRP;
    if mode & libc::S_ISUID != 0 {
        return Some("is set-user-ID");
    }
    if mode & set_gid == set_gid {
        return Some("is set-group-ID");
    }
    let name = c_path(file).ok()?;
    // SAFETY: both names are NUL-terminated; a null buffer of size zero asks for the length only.
    let capabilities = unsafe {
        libc::getxattr(
            name.as_ptr(),
            c"security.capability".as_ptr(),
            std::ptr::null_mut(),
            0,
        )
    };
    (capabilities > 0 && euid() != 0).then_some("has file capabilities")
}

/// The interpreter of a `#!` line; if that is env(1), the program that env looks up. None if it
/// cannot be found: exec will report it.
fn interpreter_of(line: &[u8], path: Option<&OsStr>) -> Option<PathBuf> {
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let first = PathBuf::from(OsString::from(OsStr::from_bytes(words.next()?)));
    if first.file_name() != Some(OsStr::new("env")) {
        return Some(first);
    }
    let name = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
    look_up(OsStr::from_bytes(name), path).ok()
}

impl Target {
    /// Refuses a command that cannot be managed.
    pub fn must_be_managed(&self) -> Result<()> {
        match &self.way {
            Way::Library | Way::Image => Ok(()),
            Way::Unmanaged(why) => Err(refused!(
                FAILED,
                "{why}: it cannot be managed: give --allow-unmanaged to run it all the same, without a limit"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status;
    use std::os::unix::fs::PermissionsExt;

    struct Files(PathBuf);

    impl Files {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("uzswap-{name}-{}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            Files(dir)
        }

        fn add(&self, name: &str, mode: u32, content: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }

        fn find(&self, name: &str) -> Result<Target> {
            find(self.0.join(name).as_os_str(), None)
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// The head of a program for this machine word, or another, as far as we look at it.
    fn elf(class: u8) -> Vec<u8> {
        let mut head = vec![0; 64];
        head[..4].copy_from_slice(b"\x7fELF");
        (head[4], head[18]) = (class, 62);
        head
    }

    #[test]
    fn missing_and_forbidden_commands_have_envs_status() {
        let files = Files::new("missing");
        files.add("plain", 0o644, b"#!/bin/sh\n");
        let of = |name: &str| status::of(&files.find(name).unwrap_err(), FAILED);
        assert_eq!(of("nothing"), NOT_FOUND);
        assert_eq!(of("plain"), NOT_EXECUTABLE);
        assert_eq!(of("plain/x"), NOT_FOUND);
        assert_eq!(of("."), NOT_EXECUTABLE);
        let by_path = |name: &str, path: &OsStr| find(OsStr::new(name), Some(path)).unwrap_err();
        assert_eq!(
            status::of(&by_path("plain", files.0.as_os_str()), FAILED),
            NOT_EXECUTABLE
        );
        assert_eq!(
            status::of(&by_path("nothing", files.0.as_os_str()), FAILED),
            NOT_FOUND
        );
        assert_eq!(
            status::of(&by_path("", files.0.as_os_str()), FAILED),
            NOT_FOUND
        );
    }

    #[test]
    fn scripts_are_judged_by_their_interpreter() {
        let files = Files::new("scripts");
        let other = files.add("other", 0o755, &elf(1));
        files.add("static", 0o755, &elf(2));
        files.add("shell", 0o755, b"#!/bin/sh -e\n");
        files.add("plain", 0o755, b"echo hello\n");
        let one = files.add("one", 0o755, format!("#!{}\n", other.display()).as_bytes());
        files.add("two", 0o755, format!("#! {}\n", one.display()).as_bytes());
        files.add("env", 0o755, b"#!/usr/bin/env -S sh -e\n");
        let way = |name: &str| files.find(name).unwrap().way;
        assert_eq!(way("shell"), Way::Library);
        assert_eq!(way("plain"), Way::Library);
        assert_eq!(way("env"), Way::Library);
        assert_eq!(way("static"), Way::Image);
        assert!(matches!(way("other"), Way::Unmanaged(_)));
        assert!(matches!(way("one"), Way::Unmanaged(_)));
        assert!(matches!(way("two"), Way::Unmanaged(_)));
        assert!(files.find("plain").unwrap().by_shell);
        assert!(!files.find("shell").unwrap().by_shell);
        let line = files.find("two").unwrap().must_be_managed().unwrap_err();
        assert!(
            line.to_string().contains("other is not an x86-64 program"),
            "{line}"
        );
        assert!(line.to_string().contains("--allow-unmanaged"), "{line}");
    }

    #[test]
    fn programs_that_change_user_are_not_managed() {
        let files = Files::new("setuid");
        let program = fs::read("/proc/self/exe").unwrap();
        files.add("plain", 0o755, &program);
        files.add("user", 0o4755, &program);
        files.add("group", 0o2755, &program);
        let way = |name: &str| files.find(name).unwrap().way;
        assert_eq!(way("plain"), Way::Library);
        assert!(matches!(way("user"), Way::Unmanaged(why) if why.contains("set-user-ID")));
        assert!(matches!(way("group"), Way::Unmanaged(why) if why.contains("set-group-ID")));
    }

    #[test]
    fn a_script_that_names_itself_ends() {
        let files = Files::new("loop");
        let path = files.0.join("me");
        files.add("me", 0o755, format!("#!{}\n", path.display()).as_bytes());
        assert!(files.find("me").is_ok());
    }
}
