//! *What*: files of `/proc/self` that are read without libc: records that end in a certain byte,
//! and the mappings of this process.
//!
//! *Invariants*: never allocates. *Locking*: none. *Context*: init, signal.

use core::ffi::CStr;

use uzswap_sys::{Errno, file};

/// Calls `f` with every record of the file at `path`: what comes before each byte `end`, cut to
/// `record`'s length. None if the file cannot be read.
pub fn for_each_record(path: &CStr, end: u8, record: &mut [u8], mut f: impl FnMut(&[u8])) {
    let flags = file::O_RDONLY | file::O_CLOEXEC;
    let Ok(fd) = file::openat(file::AT_FDCWD, path, flags, 0) else {
        return;
    };
    for_each_record_of(fd, end, record, &mut f);
    let _ = file::close(fd);
}

/// [`for_each_record`] of what is read from `fd`.
pub fn for_each_record_of(fd: i32, end: u8, record: &mut [u8], mut f: impl FnMut(&[u8])) {
    let mut chunk = [0_u8; 4096];
    let mut len = 0;
    loop {
        let nr = match file::read(fd, &mut chunk) {
            Ok(nr @ 1..) => nr,
            Err(Errno::EINTR) => continue,
            _ => break,
        };
        for &byte in chunk.iter().take(nr) {
            if byte == end {
                f(record.get(..len).unwrap_or_default());
                len = 0;
            } else if let Some(to) = record.get_mut(len) {
                *to = byte;
                len += 1;
            }
        }
    }
}

/// A mapping.
pub struct Mapping<'a> {
    /// First address.
    pub start: usize,
    /// First address after it.
    pub end: usize,
    /// Whether it may be executed.
    pub executable: bool,
    /// Its line in the file, cut at 128 bytes.
    pub line: &'a [u8],
}

/// Calls `f` with every mapping, in order of addresses.
pub fn for_each_mapping(mut f: impl FnMut(&Mapping<'_>)) {
    let mut line = [0_u8; 128];
    for_each_record(c"/proc/self/maps", b'\n', &mut line, |line| {
        if let Some(mapping) = parse(line) {
            f(&mapping);
        }
    });
}

fn parse(line: &[u8]) -> Option<Mapping<'_>> {
    let (start, rest) = hex(line)?;
    let (end, rest) = hex(rest.strip_prefix(b"-")?)?;
    Some(Mapping {
        start,
        end,
        executable: rest.get(3) == Some(&b'x'),
        line,
    })
}

/// A hexadecimal number at the start of `text`, and what follows.
fn hex(text: &[u8]) -> Option<(usize, &[u8])> {
    let digits = text.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let (number, rest) = text.split_at_checked(digits)?;
    let number = core::str::from_utf8(number).ok()?;
    Some((usize::from_str_radix(number, 16).ok()?, rest))
}

/// The values of the auxiliary vector of those kinds, 0 where it has none.
pub fn auxiliary<const N: usize>(kinds: [usize; N]) -> [usize; N] {
    let mut values = [0; N];
    let flags = file::O_RDONLY | file::O_CLOEXEC;
    let Ok(fd) = file::openat(file::AT_FDCWD, c"/proc/self/auxv", flags, 0) else {
        return values;
    };
    let mut vector = [0u8; 1024];
    let len = file::read(fd, &mut vector).unwrap_or(0);
    let _ = file::close(fd);
    for entry in vector.get(..len).unwrap_or_default().chunks_exact(16) {
        let word = |at: usize| {
            let bytes = entry.get(at..at + 8).and_then(|b| b.try_into().ok());
            bytes.map_or(0, usize::from_le_bytes)
        };
        for (kind, value) in kinds.iter().zip(&mut values) {
            if *kind == word(0) {
                *value = word(8);
            }
        }
    }
    values
}
