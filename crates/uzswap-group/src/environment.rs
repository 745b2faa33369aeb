//! *What*: [`Told`], what a process is told in its environment: where its group is, whose run it
//! belongs to, and the files of the engine, which it gives to what it executes.
//!
//! *Invariants*: paths of code stand nowhere in the group file, which every process of a run may
//! write, also one with fewer rights than the others. An environment comes from whoever executes
//! the program, and could name libraries to preload anyway.
//! *Locking*: none. *Context*: any.

use core::fmt::Write;

use uzswap_sys::fmt::StackBuf;

/// The environment variable, `FILE#SUPERVISOR:LIBRARY:IMAGE`.
pub const GROUP_ENV: &str = "UZSWAP_GROUP_FILE";
/// What separates the group's file from the supervisor.
const RUN_MARK: u8 = b'#';
/// What separates the engine's files, whose paths do not hold it, as LD_PRELOAD could not name
/// them.
const FILE_MARK: u8 = b':';

/// Longest path of a file of the engine, its zero byte included.
pub const MAX_FILE: usize = 256;

/// What [`GROUP_ENV`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told<'a> {
    /// Path of the group file.
    pub group: &'a [u8],
    /// Process id of the supervisor.
    pub supervisor: u32,
    /// Path of the preload library, for programs that execute what the library serves and are not
    /// served by it themselves. Empty: they go without.
    pub library: &'a [u8],
    /// Path of the image, which serves what the library does not. Empty: nothing does.
    pub image: &'a [u8],
}

impl<'a> Told<'a> {
    /// Reads a value of the variable; `None`: it is none of this version's.
    #[must_use]
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        // From the end: only the group's path may hold any byte.
        let (rest, image) = split_last(value, FILE_MARK)?;
        let (rest, library) = split_last(rest, FILE_MARK)?;
        let (group, supervisor) = split_last(rest, RUN_MARK)?;
        Some(Told {
            group,
            supervisor: core::str::from_utf8(supervisor).ok()?.parse().ok()?,
            library,
            image,
        })
    }

    /// Calls `put` with the parts of the value that [`Told::parse`] reads. A file of the engine
    /// whose path cannot be told is left out.
    pub fn write(&self, mut put: impl FnMut(&[u8])) {
        let mut run = StackBuf::<16>::new();
        let _ = write!(run, "{}{}", char::from(RUN_MARK), self.supervisor);
        put(self.group);
        put(run.as_bytes());
        for path in [self.library, self.image] {
            put(&[FILE_MARK]);
            if path.len() < MAX_FILE && !path.contains(&FILE_MARK) {
                put(path);
            }
        }
    }
}

/// What is before and behind the last `mark`.
fn split_last(text: &[u8], mark: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().rposition(|byte| *byte == mark)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(told: &Told<'_>) -> Vec<u8> {
        let mut value = Vec::new();
        told.write(|part| value.extend_from_slice(part));
        value
    }

    #[test]
    fn what_is_told_is_read() {
        let told = Told {
            group: b"/tmp/a:b#c/run-1.group",
            supervisor: 4711,
            library: b"/run/uzswap/libuzswap-1.so",
            image: b"/proc/4711/fd/5#",
        };
        assert_eq!(Told::parse(&written(&told)), Some(told));
    }

    #[test]
    fn a_path_that_cannot_be_told_is_left_out_alone() {
        let long = [b'x'; MAX_FILE];
        for path in [&b"/a:b"[..], &long] {
            let told = Told {
                group: b"/g",
                supervisor: 1,
                library: path,
                image: b"/i",
            };
            let read = Told {
                library: b"",
                ..told
            };
            assert_eq!(Told::parse(&written(&told)), Some(read));
        }
    }

    #[test]
    fn what_another_version_tells_is_not_read() {
        for value in [
            "",
            "/g#1",
            "/g#1:/l",
            "/g:/l:/i",
            "/g#:/l:/i",
            "/g#-1:/l:/i",
        ] {
            assert_eq!(Told::parse(value.as_bytes()), None, "{value}");
        }
    }
}
