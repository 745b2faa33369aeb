//! *What*: the foreign text of this process: what is executable at start and not ours.
//!
//! *Invariants*: ranges do not overlap, hold no instruction of ours or of the stub page, and lie
//! with both ends between two multiples of 4 GiB. Text below 4 GiB is left out: a program that is
//! not position independent lies where other such programs lie, too.
//! *Locking*: none. *Context*: init.

use uzswap_core::in_arena;

use super::stub;
use crate::proc_files::{Mapping, auxiliary, for_each_mapping};

/// Ranges that filter B can name; it does not guard text beyond them.
pub const MAX_RANGES: usize = 12;
const LOW: usize = 1 << 32;
/// Most that may lie between the parts of a range. Libraries lie close together.
const MAX_GAP: usize = 16 << 20;

/// The ranges (first and end address), and how many.
#[must_use]
pub fn foreign() -> ([(usize, usize); MAX_RANGES], usize) {
    let mut found = Ranges::NONE;
    for_each_mapping(|mapping| found.take(mapping));
    (found.ranges, found.nr)
}

struct Ranges {
    ranges: [(usize, usize); MAX_RANGES],
    nr: usize,
    /// Nothing of ours lies between the last range and what follows.
    joinable: bool,
}

impl Ranges {
    const NONE: Self = Ranges {
        ranges: [(0, 0); MAX_RANGES],
        nr: 0,
        joinable: false,
    };

    fn take(&mut self, mapping: &Mapping<'_>) {
        if !mapping.executable {
            return;
        }
        let text = mapping.start..mapping.end;
        let here = stub::window as *const () as usize;
        let ours = text.contains(&here) || text.contains(&stub::STUB);
        let arena = in_arena(text.start);
        let kernels = mapping.line.ends_with(b"[vdso]") || mapping.line.ends_with(b"[vsyscall]");
        if ours || arena {
            self.joinable = false;
        } else if text.start >= LOW && !kernels {
            self.add(text.start, text.end);
        }
    }

    fn add(&mut self, from: usize, to: usize) {
        let last = self.nr.checked_sub(1).and_then(|n| self.ranges.get_mut(n));
        if let Some((first, end)) = last {
            // A range over what is no text may name another program's. Rather that than text which
            // is not guarded.
            let near = from - *end < MAX_GAP || self.nr + 2 > MAX_RANGES;
            if self.joinable && near && *first / LOW == to / LOW {
                *end = to;
                return;
            }
        }
        // A range up to or over a multiple of 4 GiB is cut there. A call's address is that behind
        // its instruction, so it may be the multiple itself.
        let cut = (from / LOW + 1) * LOW;
        if to >= cut {
            self.push(from, cut - 1);
            self.push(cut, to);
        } else {
            self.push(from, to);
        }
    }

    fn push(&mut self, from: usize, to: usize) {
        if let Some(range) = self.ranges.get_mut(self.nr) {
            *range = (from, to);
            self.nr += 1;
            self.joinable = true;
        }
    }
}

/// Whether the program is written in Go. Its runtime makes system calls of its own, blocks all
/// signals by itself, and lies below 4 GiB, where filter B must not go: it cannot be managed.
#[must_use]
pub fn is_go() -> bool {
    const AT_PHDR: usize = 3;
    const AT_PHNUM: usize = 5;
    let [headers, nr] = auxiliary([AT_PHDR, AT_PHNUM]);
    // SAFETY: the kernel says where the program's headers are.
    unsafe { has_go_note(headers as *const ProgramHeader, nr) }
}

/// `Elf64_Phdr`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    file_len: u64,
    len: u64,
    align: u64,
}

/// Looks through the notes of a program for the mark of Go's linker.
///
/// # Safety
/// `headers` are the `nr` program headers of a mapped program.
unsafe fn has_go_note(headers: *const ProgramHeader, nr: usize) -> bool {
    const PT_NOTE: u32 = 4;
    const PT_PHDR: u32 = 6;
    const NOTE_HEADER: usize = 12;
    if headers.is_null() {
        return false;
    }
    // SAFETY: the caller's promise; segments of notes are mapped as their headers say.
    unsafe {
        let all = core::slice::from_raw_parts(headers, nr);
        let Some(own) = all.iter().find(|h| h.kind == PT_PHDR) else {
            return false;
        };
        let base = (headers as usize).wrapping_sub(uzswap_core::page::narrow(own.address));
        for notes in all.iter().filter(|h| h.kind == PT_NOTE) {
            let mut at = base.wrapping_add(uzswap_core::page::narrow(notes.address));
            let end = at + uzswap_core::page::narrow(notes.len);
            while at + NOTE_HEADER < end {
                let [name_len, len, _kind] = (at as *const [u32; 3]).read_unaligned();
                let name = at + NOTE_HEADER;
                if name_len == 4 && (name as *const [u8; 4]).read_unaligned() == *b"Go\0\0" {
                    return true;
                }
                at = name
                    + (name_len as usize).next_multiple_of(4)
                    + (len as usize).next_multiple_of(4);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const BASE: usize = 0x7f12_0000_0000;

    /// The ranges over texts of 1 MiB that begin so many MiB above [`BASE`].
    fn ranges(starts: &[usize]) -> Vec<(usize, usize)> {
        let mut found = Ranges::NONE;
        for start in starts {
            let start = BASE + start * MIB;
            found.take(&Mapping {
                start,
                end: start + MIB,
                executable: true,
                line: b"",
            });
        }
        let range = |(from, to): &(usize, usize)| ((from - BASE) / MIB, (to - BASE) / MIB);
        found.ranges[..found.nr].iter().map(range).collect()
    }

    #[test]
    fn libraries_side_by_side_are_one_range() {
        assert_eq!(ranges(&[0, 2, 10, 11]), [(0, 12)]);
    }

    #[test]
    fn what_lies_far_away_is_another() {
        assert_eq!(ranges(&[0, 2, 1000, 1002]), [(0, 3), (1000, 1003)]);
    }

    #[test]
    fn where_ranges_run_out_all_text_is_covered() {
        let starts: Vec<usize> = (0..40).map(|n| n * 50).collect();
        let found = ranges(&starts);
        let covered = |at: &usize| found.iter().any(|(from, to)| from <= at && at < to);
        assert!(found.len() <= MAX_RANGES && starts.iter().all(covered));
    }

    #[test]
    fn no_range_reaches_a_multiple_of_4_gib() {
        let cut = 5 * LOW;
        let found = |texts: &[(usize, usize)]| {
            let mut found = Ranges::NONE;
            texts.iter().for_each(|(from, to)| found.add(*from, *to));
            found.ranges[..found.nr].to_vec()
        };
        let from = cut - 0x8000;
        assert_eq!(found(&[(from, cut - 1)]), [(from, cut - 1)]);
        assert_eq!(found(&[(from, cut)]), [(from, cut - 1), (cut, cut)]);
        let beyond = cut + 0x1000;
        let cut_in_two = [(from, cut - 1), (cut, beyond)];
        assert_eq!(found(&[(from, beyond)]), cut_in_two);
        // Nor by joining two that lie close together.
        assert_eq!(
            found(&[(from, cut - 0x4000), (cut - 0x2000, cut)]),
            [(from, cut - 0x4000), (cut - 0x2000, cut - 1), (cut, cut)]
        );
        assert_eq!(found(&[(from, cut), (cut, beyond)]), cut_in_two);
    }
}
