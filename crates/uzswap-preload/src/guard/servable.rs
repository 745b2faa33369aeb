//! *What*: whether the library can serve what is about to be executed, by its file
//! ([`uzswap_group::image`]): the C library that it needs is glibc's, for this processor.
//!
//! *Invariants*: what cannot be read counts as what cannot be served. A file that is replaced
//! between this look and the kernel's is judged by the old one.
//! *Locking*: none. *Context*: signal.

use core::ffi::CStr;

use uzswap_core::{ARENA_BASE, ARENA_LEN};
use uzswap_group::image::{self, Kind, MAX_SHEBANG_LEN, Section};
use uzswap_sys::file::{self, AT_FDCWD, O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, S_IFMT};

/// Flags of execveat(2), which fstatat(2) has, too.
const AT_SYMLINK_NOFOLLOW: i32 = 0x100;
const AT_EMPTY_PATH: i32 = 0x1000;
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

/// Whether the library can serve it. True, too, if the kernel will refuse to execute it.
#[must_use]
pub fn is_servable(file: File<'_>) -> bool {
    is_servable_within(file, MAX_SCRIPT_DEPTH)
}

fn is_servable_within(file: File<'_>, depth: u32) -> bool {
    let flags = file.flags & (AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
    // A device must not be opened: that may have effects.
    match file::fstatat(file.dir, file.path, flags) {
        Ok(stat) if stat.st_mode & S_IFMT == file::S_IFREG => {}
        _ => return true,
    }
    if file.path.is_empty() {
        return is_servable_by_number(file.dir, depth);
    }
    let nofollow = if flags & AT_SYMLINK_NOFOLLOW == 0 {
        0
    } else {
        O_NOFOLLOW
    };
    let flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | nofollow;
    let Ok(fd) = file::openat(file.dir, file.path, flags, 0) else {
        return false;
    };
    let servable = judge(fd, file.path.to_bytes(), depth);
    let _ = file::close(fd);
    servable
}

/// As [`is_servable`], of an open descriptor, which may not be open for reading (`O_PATH`).
fn is_servable_by_number(fd: i32, depth: u32) -> bool {
    if file::pread(fd, &mut [0], 0).is_ok() {
        return judge(fd, b"", depth);
    }
    let mut path = [0u8; 32];
    let Some(path) = own_path(fd, &mut path) else {
        return false;
    };
    let Ok(opened) = file::openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0) else {
        return false;
    };
    let servable = judge(opened, b"", depth);
    let _ = file::close(opened);
    servable
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

fn judge(fd: i32, path: &[u8], depth: u32) -> bool {
    let mut head = [0u8; image::HEAD];
    let len = file::pread(fd, &mut head, 0).unwrap_or(0);
    let arena = ARENA_BASE..ARENA_BASE + ARENA_LEN;
    match image::inspect(head.get(..len).unwrap_or_default(), &arena) {
        Kind::Dynamic(section) => is_linked(fd, section) && !changes_user(fd),
        Kind::Static => image::is_linker(path),
        Kind::Script(line) => match depth.checked_sub(1) {
            Some(depth) => is_interpreter_servable(line, depth),
            // Too deep for the kernel, too.
            None => true,
        },
        Kind::Linker(_) | Kind::InArena | Kind::Foreign => false,
        // Executed by somebody else, who is asked then.
        Kind::Other => true,
    }
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

fn is_interpreter_servable(line: &[u8], depth: u32) -> bool {
    let mut path = [0u8; MAX_SHEBANG_LEN];
    let word = line.split(u8::is_ascii_whitespace).next();
    let word = word.unwrap_or_default();
    let Some(to) = path.get_mut(..word.len()) else {
        return false;
    };
    to.copy_from_slice(word);
    let Ok(path) = CStr::from_bytes_until_nul(&path) else {
        return false;
    };
    let file = File {
        dir: AT_FDCWD,
        path,
        flags: 0,
    };
    is_servable_within(file, depth)
}
