//! *What*: tells from an executable file's bytes whether a library can be preloaded into it.
//!
//! *Invariants*: nothing that the file says is trusted. *Locking*: none. *Context*: any.

use core::ops::Range;

/// Bytes that [`inspect`] needs: program headers follow the ELF header.
pub const HEAD: usize = 4096;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// An x86-64 program with a dynamic linker: glibc's, as far as its path tells. If it is not
    /// [linked](is_linked) with a library, as Go's are, there is no C library in it either.
    Dynamic(Section),
    /// A program of Go with glibc's dynamic linker (cgo): its run-time makes system calls behind the
    /// C library.
    Go,
    /// A program without a dynamic linker, or a dynamic linker.
    Static,
    /// A program with another dynamic linker, at this path.
    Linker(&'a [u8]),
    /// A program linked to addresses that are to be managed.
    InArena,
    /// A program for another processor or word size.
    Foreign,
    /// A script, with the text behind `#!`.
    Script(&'a [u8]),
    /// Anything else, which execvp(3) gives to a shell.
    Other,
}

/// Where a program's dynamic section is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Offset.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Longest `#!` line that the kernel reads.
pub const MAX_SHEBANG_LEN: usize = 256;
/// Bytes of a dynamic section that [`is_linked`] needs: the libraries are named first.
pub const DYNAMIC_HEAD: usize = 1024;
const ELFCLASS64: u8 = 2;
const EM_X86_64: u16 = 62;
const ET_EXEC: u16 = 2;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;

/// Classifies a file by its first [`HEAD`] bytes; `arena`: the addresses to be managed.
#[must_use]
pub fn inspect<'a>(head: &'a [u8], arena: &Range<usize>) -> Kind<'a> {
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.get(..MAX_SHEBANG_LEN - 2).unwrap_or(line);
        let line = line.split(|&b| b == b'\n').next().unwrap_or_default();
        return Kind::Script(line.trim_ascii());
    }
    if !head.starts_with(b"\x7fELF") {
        return Kind::Other;
    }
    if head.get(4) != Some(&ELFCLASS64) || u16_at(head, 18) != Some(EM_X86_64) {
        return Kind::Foreign;
    }
    // Only ET_EXEC has fixed addresses; the kernel places other programs elsewhere.
    if u16_at(head, 16) == Some(ET_EXEC) && segments(head).any(|s| s.is_in(head, arena)) {
        return Kind::InArena;
    }
    match interpreter(head) {
        None => Kind::Static,
        Some(path) if is_linker(path) && has_go_note(head) => Kind::Go,
        Some(path) if is_linker(path) || path.is_empty() => Kind::Dynamic(dynamic(head)),
        // Nix, Guix and others keep glibc's linker elsewhere, under its usual name.
        Some(path) => Kind::Linker(path),
    }
}

/// Whether a path is that of glibc's dynamic linker, by its usual name.
#[must_use]
pub fn is_linker(path: &[u8]) -> bool {
    const NAME: &[u8] = b"ld-linux-x86-64";
    path.windows(NAME.len()).any(|part| part == NAME)
}

/// Whether the beginning of a dynamic section, [`DYNAMIC_HEAD`] bytes, names a library.
#[must_use]
pub fn is_linked(dynamic: &[u8]) -> bool {
    const DT_NULL: u64 = 0;
    const DT_NEEDED: u64 = 1;
    dynamic
        .chunks_exact(16)
        .map_while(|entry| u64_at(entry, 0).filter(|tag| *tag != DT_NULL))
        .any(|tag| tag == DT_NEEDED)
}

/// A program header, at this offset of the head.
struct Segment {
    at: usize,
    kind: u32,
}

impl Segment {
    fn is_in(&self, head: &[u8], arena: &Range<usize>) -> bool {
        let field = |offset| u64_at(head, self.at + offset).and_then(|n| usize::try_from(n).ok());
        match (field(16), field(40)) {
            (Some(start), Some(len)) => {
                self.kind == PT_LOAD && start < arena.end && start.saturating_add(len) > arena.start
            }
            _ => false,
        }
    }
}

fn segments(head: &[u8]) -> impl Iterator<Item = Segment> {
    let offset = u64_at(head, 32).and_then(|n| usize::try_from(n).ok());
    let size = usize::from(u16_at(head, 54).unwrap_or(0));
    let count = usize::from(u16_at(head, 56).unwrap_or(0));
    (0..count).map_while(move |i| {
        let at = offset?.checked_add(i * size)?;
        let kind = u32_at(head, at)?;
        Some(Segment { at, kind })
    })
}

/// Path in the PT_INTERP segment; empty if it lies outside the head.
fn interpreter(head: &[u8]) -> Option<&[u8]> {
    let at = segments(head).find(|s| s.kind == PT_INTERP)?.at;
    let start = usize::try_from(u64_at(head, at + 8)?).ok()?;
    let len = usize::try_from(u64_at(head, at + 32)?).ok()?;
    let path = head.get(start..start.checked_add(len)?).unwrap_or_default();
    path.split(|&b| b == 0).next()
}

/// The PT_DYNAMIC segment; of length 0 if there is none.
fn dynamic(head: &[u8]) -> Section {
    let at = segments(head).find(|s| s.kind == PT_DYNAMIC).map(|s| s.at);
    let field = |offset| at.and_then(|at| u64_at(head, at + offset)).unwrap_or(0);
    Section {
        offset: field(8),
        len: field(32),
    }
}

/// Whether Go's linker has left its mark: a note of its own, which lies right behind the headers.
fn has_go_note(head: &[u8]) -> bool {
    let segments = segments(head).filter(|s| s.kind == PT_NOTE);
    segments
        .filter_map(|s| contents(head, &s))
        .any(|mut notes| {
            while let Some((owner, rest)) = first_note(notes) {
                if owner == b"Go\0\0" {
                    return true;
                }
                notes = rest;
            }
            false
        })
}

/// As much of a segment as lies in the head; none if it begins outside.
fn contents<'a>(head: &'a [u8], segment: &Segment) -> Option<&'a [u8]> {
    let field = |offset| u64_at(head, segment.at + offset).and_then(|n| usize::try_from(n).ok());
    let rest = head.get(field(8)?..)?;
    Some(rest.get(..field(32)?).unwrap_or(rest))
}

/// The owner of the first note, and the notes behind it.
fn first_note(notes: &[u8]) -> Option<(&[u8], &[u8])> {
    const HEADER: usize = 12;
    let size = |at| {
        Some(
            usize::try_from(u32_at(notes, at)?)
                .ok()?
                .next_multiple_of(4),
        )
    };
    let (owner, len) = (size(0)?, size(4)?);
    let behind = notes.get(HEADER..)?;
    let owned = behind.get(..owner)?;
    Some((owned, behind.get(owner + len..).unwrap_or_default()))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARENA: Range<usize> = 0x1000_0000_0000..0x1400_0000_0000;

    /// An ELF head with one program header of type `kind` that points at `interpreter`.
    fn elf(class: u8, machine: u16, kind: u32, interpreter: &str) -> Vec<u8> {
        let mut head = vec![0; 120];
        head[..5].copy_from_slice(&[0x7f, b'E', b'L', b'F', class]);
        head[18..20].copy_from_slice(&machine.to_le_bytes());
        head[32..40].copy_from_slice(&64_u64.to_le_bytes());
        head[54..56].copy_from_slice(&56_u16.to_le_bytes());
        head[56..58].copy_from_slice(&1_u16.to_le_bytes());
        head[64..68].copy_from_slice(&kind.to_le_bytes());
        head[72..80].copy_from_slice(&120_u64.to_le_bytes());
        head[96..104].copy_from_slice(&(interpreter.len() as u64 + 1).to_le_bytes());
        head.extend_from_slice(interpreter.as_bytes());
        head.push(0);
        head
    }

    fn is_dynamic(head: &[u8]) -> bool {
        matches!(inspect(head, &ARENA), Kind::Dynamic(_))
    }

    #[test]
    fn programs_are_told_apart() {
        let linux = "/lib64/ld-linux-x86-64.so.2";
        assert!(is_dynamic(&elf(2, 62, PT_INTERP, linux)));
        let kind = |head: &[u8], expected| assert_eq!(inspect(head, &ARENA), expected);
        kind(&elf(2, 62, 1, linux), Kind::Static);
        kind(&elf(1, 3, PT_INTERP, linux), Kind::Foreign);
        kind(&elf(2, 183, PT_INTERP, linux), Kind::Foreign);
        let musl = "/lib/ld-musl-x86_64.so.1";
        kind(&elf(2, 62, PT_INTERP, musl), Kind::Linker(musl.as_bytes()));
        kind(b"\x7fELF", Kind::Foreign);
        kind(&elf(2, 62, PT_INTERP, linux)[..70], Kind::Static);
    }

    #[test]
    fn a_go_program_is_told_by_its_note() {
        let mut head = elf(2, 62, PT_INTERP, "/lib64/ld-linux-x86-64.so.2");
        // A second program header, of two notes behind all else.
        head[56] = 2;
        let interpreter = head.split_off(120);
        head.resize(120 + 56, 0);
        head[72..80].copy_from_slice(&176_u64.to_le_bytes());
        head.extend_from_slice(&interpreter);
        let notes = head.len().next_multiple_of(4);
        head.resize(notes, 0);
        let note = |owner: &[u8; 4], len: u32| {
            let numbers = [4, len, 4].map(u32::to_le_bytes).concat();
            [&numbers, &owner[..], &vec![7; len as usize]].concat()
        };
        let both = [note(b"GNU\0", 20), note(b"Go\0\0", 83)].concat();
        head[120..124].copy_from_slice(&PT_NOTE.to_le_bytes());
        head[128..136].copy_from_slice(&(notes as u64).to_le_bytes());
        head[152..160].copy_from_slice(&(both.len() as u64).to_le_bytes());
        head.extend_from_slice(&both);
        assert_eq!(inspect(&head, &ARENA), Kind::Go);
        // Notes that lie, or lie outside the head.
        for len in 0..both.len() - 87 {
            assert!(is_dynamic(&head[..notes + len]), "{len}");
        }
        head[notes + 4..notes + 8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(is_dynamic(&head));
    }

    #[test]
    fn a_program_that_fixes_its_addresses_in_the_arena() {
        let mut head = elf(2, 62, PT_LOAD, "");
        head[16..18].copy_from_slice(&ET_EXEC.to_le_bytes());
        head[104..112].copy_from_slice(&4096_u64.to_le_bytes());
        for (start, inside) in [
            (ARENA.start - 4096, false),
            (ARENA.start - 1, true),
            (ARENA.end - 1, true),
            (ARENA.end, false),
        ] {
            head[80..88].copy_from_slice(&(start as u64).to_le_bytes());
            let found = inspect(&head, &ARENA) == Kind::InArena;
            assert_eq!(found, inside, "{start:#x}");
        }
    }

    #[test]
    fn this_program_is_dynamic_and_linked() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let Kind::Dynamic(Section { offset, len }) = inspect(&file[..HEAD], &ARENA) else {
            panic!("not dynamic");
        };
        let (offset, len) = (offset.try_into().unwrap(), usize::try_from(len).unwrap());
        let section: &[u8] = &file[offset..][..len];
        assert!(is_linked(section));
        assert!(!is_linked(&[&[0; 16], section].concat()));
    }

    #[test]
    fn scripts_name_their_interpreter() {
        let kind = |head, expected| assert_eq!(inspect(head, &ARENA), expected);
        kind(b"#! /bin/sh -e \necho", Kind::Script(b"/bin/sh -e"));
        kind(b"#!", Kind::Script(b""));
        kind(b"echo hi\n", Kind::Other);
        kind(b"", Kind::Other);
    }
}
