//! A sample of a process's anonymous private memory.
//!
//! *What*: finds the extents (aligned 64 KiB, the size of a folio) all of whose pages are present,
//! and writes an even choice of them.
//! *Invariants*: whole extents only, in address order, so that blocks of any size up to an extent
//! hold neighbouring pages.
//! *Locking*: none. A process that runs may change its memory meanwhile; the caller stops it if
//! that matters.
//! *Context*: the bench and analyze commands.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};
use uzswap_usemem::corpus::EXTENT;

use crate::PAGE;

/// Bytes of `pagemap` for an extent: a word per page.
const WORDS: usize = EXTENT / PAGE * 8;
/// The bit of a `pagemap` word that says that the page is present.
const PRESENT: u64 = 1 << 63;

/// The extent of a process's memory and of the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// Bytes in extents all of whose pages are present.
    pub resident: usize,
    /// Present pages.
    pub present: usize,
    /// Mapped pages of the extents that have a present page: what would be present if each extent
    /// came in whole.
    pub spanned: usize,
    /// Bytes written.
    pub written: usize,
}

/// Writes up to `bytes` of the memory of `pid`. Extents that are unmapped meanwhile are left out.
///
/// # Errors
/// If the process is gone or may not be read.
pub fn sample(pid: u32, bytes: usize, out: &mut impl Write) -> Result<Sampled> {
    let memory = File::open(format!("/proc/{pid}/mem")).context("cannot read its memory")?;
    let Extents {
        whole: extents,
        present,
        spanned,
    } = extents(pid)?;
    let mut buffer = vec![0; EXTENT];
    let mut written = 0;
    for i in evenly(extents.len(), bytes / EXTENT) {
        if memory.read_exact_at(&mut buffer, extents[i]).is_err() {
            continue;
        }
        out.write_all(&buffer)?;
        written += EXTENT;
    }
    Ok(Sampled {
        resident: extents.len() * EXTENT,
        present,
        spanned,
        written,
    })
}

/// At most `wanted` of the indices below `all`, spread evenly, in order.
pub fn evenly(all: usize, wanted: usize) -> impl Iterator<Item = usize> {
    let wanted = wanted.min(all);
    (0..wanted).map(move |i| i * all / wanted)
}

/// The extents of a process's memory.
#[derive(Default)]
struct Extents {
    /// Addresses of those all of whose pages are present.
    whole: Vec<u64>,
    /// As in [`Sampled`].
    present: usize,
    /// As in [`Sampled`].
    spanned: usize,
}

fn extents(pid: u32) -> Result<Extents> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).context("cannot read its maps")?;
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).context("cannot read its pagemap")?;
    let mut extents = Extents::default();
    let mut words = [0; WORDS];
    for (start, end) in maps.lines().filter_map(anonymous) {
        let mut address = start;
        while address < end {
            let next = end.min((address + 1).next_multiple_of(EXTENT as u64));
            let pages = usize::try_from(next - address)? / PAGE;
            let words = words.get_mut(..pages * 8).context("an odd mapping")?;
            pagemap
                .read_exact_at(words, address / PAGE as u64 * 8)
                .context("cannot read its pagemap")?;
            let present = |word: &&[u8]| {
                let word: Result<[u8; 8], _> = (*word).try_into();
                word.is_ok_and(|word| u64::from_le_bytes(word) & PRESENT != 0)
            };
            let found = words.chunks_exact(8).filter(present).count();
            extents.present += found;
            if found > 0 {
                extents.spanned += pages;
            }
            if found * 8 == WORDS {
                extents.whole.push(address);
            }
            address = next;
        }
    }
    Ok(extents)
}

/// The address range of a line of `maps` if it is anonymous, private and writable, and not a stack.
#[must_use]
pub fn anonymous(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let rights = fields.next()?;
    let inode = fields.nth(2)?;
    let name = fields.next().unwrap_or("");
    let ours = rights.starts_with("rw")
        && rights.ends_with('p')
        && inode == "0"
        && (name.is_empty() || name == "[heap]" || name.starts_with("[anon:"));
    let number = |text| u64::from_str_radix(text, 16).ok();
    ours.then_some((number(start)?, number(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_anonymous_private_writable_memory_counts() {
        for line in [
            "7f0000000000-7f0000010000 rw-p 00000000 00:00 0",
            "55d000000000-55d000021000 rw-p 00000000 00:00 0                          [heap]",
            "7f0000000000-7f0000010000 rw-p 00000000 00:00 0    [anon:v8]",
        ] {
            assert!(anonymous(line).is_some(), "{line}");
        }
        for line in [
            "7f0000000000-7f0000010000 r--p 00000000 00:00 0",
            "7f0000000000-7f0000010000 rw-s 00000000 00:00 0",
            "7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0     [stack]",
            "7f0000000000-7f0000010000 rw-p 00000000 fe:00 1234  /usr/lib/libc.so.6",
            "nonsense",
        ] {
            assert!(anonymous(line).is_none(), "{line}");
        }
    }

    #[test]
    fn a_choice_is_spread_over_everything() {
        let chosen: Vec<usize> = evenly(1000, 4).collect();
        assert_eq!(chosen, [0, 250, 500, 750]);
        assert_eq!(evenly(3, 10).count(), 3);
        assert_eq!(evenly(0, 10).count(), 0);
        assert_eq!(evenly(10, 0).count(), 0);
    }
}
