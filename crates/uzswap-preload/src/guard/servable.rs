//! *What*: what serves a program that is about to be executed, by its file
//! ([`uzswap_group::image`]): the library, where its C library is glibc's; the engine's image,
//! where it is another or none.
//!
//! *Invariants*: what cannot be read counts as what nothing serves. A file that is replaced
//! between this look and the kernel's is judged by the old one.
//! *Locking*: none. *Context*: signal.

use core::ffi::CStr;

use uzswap_core::{ARENA_BASE, ARENA_LEN};
use uzswap_group::image::{self, Kind, MAX_SHEBANG_LEN, Section};
use uzswap_sys::file::{self, AT_FDCWD, O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, S_IFMT};

/// Flags of execveat(2), which fstatat(2) has, too.
const AT_SYMLINK_NOFOLLOW: i32 = 0x100;
/// The descriptor itself, if the path is empty.
pub const AT_EMPTY_PATH: i32 = 0x1000;
const S_IXGRP: u32 = 0o10;
/// How deep the kernel follows scripts that name scripts.
const MAX_SCRIPT_DEPTH: u32 = 5;

/// A file to be executed, as `execveat(2)` names it.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// Where a relative path begins.
    pub dir: i32,
    /// The path.
    pub path: &'a CStr,
    /// `AT_EMPTY_PATH`, `AT_SYMLINK_NOFOLLOW`.
    pub flags: i32,
}

/// What serves a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The library.
    Library,
    /// The image.
    Image,
    /// Nothing.
    Nobody,
    /// Not known: the kernel will refuse to execute it, or has another program do it, which is
    /// looked at then.
    Unknown,
}

/// What serves it.
#[must_use]
pub fn served_by(file: File<'_>) -> By {
    served_within(file, MAX_SCRIPT_DEPTH)
}

fn served_within(file: File<'_>, depth: u32) -> By {
    let flags = file.flags & (AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
    // A device must not be opened: that may have effects.
    match file::fstatat(file.dir, file.path, flags) {
        Ok(stat) if stat.st_mode & S_IFMT == file::S_IFREG => {}
        _ => return By::Unknown,
    }
    if file.path.is_empty() {
        return served_by_number(file.dir, depth);
    }
    let nofollow = if flags & AT_SYMLINK_NOFOLLOW == 0 {
        0
    } else {
        O_NOFOLLOW
    };
    let flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | nofollow;
    let Ok(fd) = file::openat(file.dir, file.path, flags, 0) else {
        return By::Nobody;
    };
    let by = judge(fd, file.path.to_bytes(), depth);
    let _ = file::close(fd);
    by
}

/// As [`served_by`], of an open descriptor, which may not be open for reading (`O_PATH`).
fn served_by_number(fd: i32, depth: u32) -> By {
    if file::pread(fd, &mut [0], 0).is_ok() {
        return judge(fd, b"", depth);
    }
    let mut path = [0u8; 32];
    let Some(path) = own_path(fd, &mut path) else {
        return By::Nobody;
    };
    let Ok(opened) = file::openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0) else {
        return By::Nobody;
    };
    let by = judge(opened, b"", depth);
    let _ = file::close(opened);
    by
}

/// The path in `/proc` of a descriptor.
fn own_path(fd: i32, path: &mut [u8; 32]) -> Option<&CStr> {
    const DIR: &[u8] = b"/proc/self/fd/";
    let mut number = u32::try_from(fd).ok()?;
    let mut at = path.len() - 1;
    loop {
        at -= 1;
        *path.get_mut(at)? = b'0' + u8::try_from(number % 10).ok()?;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    let start = at.checked_sub(DIR.len())?;
    path.get_mut(start..at)?.copy_from_slice(DIR);
    CStr::from_bytes_until_nul(path.get(start..)?).ok()
}

fn judge(fd: i32, path: &[u8], depth: u32) -> By {
    let mut head = [0u8; image::HEAD];
    let len = file::pread(fd, &mut head, 0).unwrap_or(0);
    let arena = ARENA_BASE..ARENA_BASE + ARENA_LEN;
    let by = match image::inspect(head.get(..len).unwrap_or_default(), &arena) {
        Kind::Dynamic(section) if is_linked(fd, section) => By::Library,
        Kind::Static if image::is_linker(path) => By::Library,
        Kind::Dynamic(_) | Kind::Go | Kind::Static | Kind::Linker(_) => By::Image,
        Kind::Script(line) => {
            return match depth.checked_sub(1) {
                Some(depth) => interpreter_served_by(line, depth),
                // Too deep for the kernel, too.
                None => By::Unknown,
            };
        }
        Kind::InArena | Kind::Foreign => By::Nobody,
        Kind::Other => return By::Unknown,
    };
    if changes_user(fd) { By::Nobody } else { by }
}

fn is_linked(fd: i32, section: Section) -> bool {
    let mut dynamic = [0u8; image::DYNAMIC_HEAD];
    let len = usize::try_from(section.len).map_or(dynamic.len(), |len| len.min(dynamic.len()));
    let dynamic = dynamic.get_mut(..len).unwrap_or_default();
    match file::pread(fd, dynamic, section.offset) {
        Ok(len) => image::is_linked(dynamic.get(..len).unwrap_or_default()),
        Err(_) => false,
    }
}

/// Whether executing the file changes user or group.
fn changes_user(fd: i32) -> bool {
    let set_group = file::S_ISGID | S_IXGRP;
    file::fstat(fd).is_ok_and(|stat| {
        stat.st_mode & file::S_ISUID != 0 || stat.st_mode & set_group == set_group
    })
}

fn interpreter_served_by(line: &[u8], depth: u32) -> By {
    let mut path = [0u8; MAX_SHEBANG_LEN];
    let word = line.split(u8::is_ascii_whitespace).next();
    let word = word.unwrap_or_default();
    let Some(to) = path.get_mut(..word.len()) else {
        return By::Nobody;
    };
    to.copy_from_slice(word);
    let Ok(path) = CStr::from_bytes_until_nul(&path) else {
        return By::Nobody;
    };
    let file = File {
        dir: AT_FDCWD,
        path,
        flags: 0,
    };
    served_within(file, depth)
}
