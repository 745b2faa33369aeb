//! *What*: which entries of an `LD_PRELOAD` name our library: the command puts it there, and exec
//! of what it cannot serve takes it out.
//!
//! *Invariants*: a library of another's stays, whatever its path looks like. What cannot be looked
//! at counts as another's: nobody can load it either.
//! *Locking*: none. *Context*: any.

use core::ffi::CStr;

use uzswap_sys::file;

/// How the names of the library's files begin, memory files among them.
pub const LIBRARY_PREFIX: &str = "libuzswap-";

/// Longest path of a memory file, its zero byte included: `/proc/PID/fd/N`.
const MAX_LINK: usize = 64;

/// Whether the library at `path` is ours, by its name, as `/proc/PID/maps` has it too. A file in
/// the supervisor's memory is reached by a number; its name is where that leads.
#[must_use]
pub fn is_library(path: &[u8]) -> bool {
    has_name(path) || is_in_memory(path)
}

fn has_name(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let name = name.strip_prefix(b"memfd:").unwrap_or(name);
    name.starts_with(LIBRARY_PREFIX.as_bytes())
}

fn is_in_memory(path: &[u8]) -> bool {
    if !path.starts_with(b"/proc/") {
        return false;
    }
    let mut link = [0; MAX_LINK];
    let Some(to) = link.get_mut(..path.len()) else {
        return false;
    };
    to.copy_from_slice(path);
    let Ok(link) = CStr::from_bytes_until_nul(&link) else {
        return false;
    };
    let mut target = [0; MAX_LINK];
    let len = file::readlink(link, &mut target).unwrap_or(0);
    target.get(..len).is_some_and(has_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_ours_by_its_name() {
        assert!(is_library(b"/run/user/0/uzswap/libuzswap-0.so"));
        assert!(is_library(b"libuzswap-0.so"));
        assert!(is_library(b"/memfd:libuzswap-0.so (deleted)"));
        assert!(!is_library(b"/usr/lib/libuzswap-0.so.d/other.so"));
        assert!(!is_library(b""));
    }

    #[test]
    fn a_memory_file_is_ours_by_the_name_that_it_was_given() {
        let path = |name| {
            let fd = file::memfd_create(name, file::MFD_CLOEXEC).unwrap();
            format!("/proc/self/fd/{fd}")
        };
        assert!(is_library(path(c"libuzswap-0.so").as_bytes()));
        assert!(!is_library(path(c"theirs.so").as_bytes()));
        assert!(!is_library(b"/proc/self/fd/-1"));
        assert!(!is_library(&[b"/proc/", [b'1'; 100].as_slice()].concat()));
    }
}
