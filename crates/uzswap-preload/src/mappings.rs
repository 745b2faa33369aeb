//! *What*: the mappings of this process, from `/proc/self/maps`.
//!
//! *Invariants*: none; never allocates. *Locking*: none. *Context*: init.

use uzswap_sys::file;

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

/// Calls `f` with every mapping, in order of addresses. None without /proc.
pub fn for_each(mut f: impl FnMut(&Mapping<'_>)) {
    let flags = file::O_RDONLY | file::O_CLOEXEC;
    let Ok(fd) = file::openat(file::AT_FDCWD, c"/proc/self/maps", flags, 0) else {
        return;
    };
    let mut chunk = [0_u8; 4096];
    let mut line = [0_u8; 128];
    let mut len = 0;
    while let Ok(nr @ 1..) = file::read(fd, &mut chunk) {
        for &byte in chunk.iter().take(nr) {
            if byte == b'\n' {
                if let Some(mapping) = parse(line.get(..len).unwrap_or_default()) {
                    f(&mapping);
                }
                len = 0;
            } else if let Some(to) = line.get_mut(len) {
                *to = byte;
                len += 1;
            }
        }
    }
    let _ = file::close(fd);
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
