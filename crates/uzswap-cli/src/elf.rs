//! *What*: reads from an executable file's first bytes whether a library can be preloaded into it.
//!
//! *Locking*: none. *Context*: any.

use uzswap_core::{ARENA_BASE, ARENA_LEN};

/// Bytes that [`inspect`] needs: program headers follow the ELF header.
pub const HEAD: usize = 4096;

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An x86-64 program with a dynamic linker: glibc's, as far as its path tells.
    Dynamic,
    /// A program without a dynamic linker.
    Static,
    /// A program with another dynamic linker, at this path.
    Linker(String),
    /// A program linked to addresses in the arena.
    InArena,
    /// A program for another processor or word size.
    Foreign,
    /// A script, with the text behind `#!`.
    Script(Vec<u8>),
    /// Anything else, which execvp(3) gives to a shell.
    Other,
}

/// Longest `#!` line that the kernel reads.
const MAX_SHEBANG_LEN: usize = 256;
const ELFCLASS64: u8 = 2;
const EM_X86_64: u16 = 62;
const ET_EXEC: u16 = 2;
const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;

/// Classifies a file by its first [`HEAD`] bytes.
pub fn inspect(head: &[u8]) -> Kind {
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = &line[..line.len().min(MAX_SHEBANG_LEN - 2)];
        let end = line.iter().position(|&b| b == b'\n').unwrap_or(line.len());
        return Kind::Script(line[..end].trim_ascii().to_vec());
    }
    if !head.starts_with(b"\x7fELF") {
        return Kind::Other;
    }
    if head.get(4) != Some(&ELFCLASS64) || u16_at(head, 18) != Some(EM_X86_64) {
        return Kind::Foreign;
    }
    // Only ET_EXEC has fixed addresses; the kernel places other programs elsewhere.
    if u16_at(head, 16) == Some(ET_EXEC) && segments(head).any(|s| s.is_in_arena(head)) {
        return Kind::InArena;
    }
    match interpreter(head) {
        None => Kind::Static,
        Some(path) if path.contains("ld-linux-x86-64") || path.is_empty() => Kind::Dynamic,
        // Nix, Guix and others keep glibc's linker elsewhere, under its usual name.
        Some(path) => Kind::Linker(path),
    }
}

/// A program header, at this offset of the head.
struct Segment {
    at: usize,
    kind: u32,
}

impl Segment {
    fn is_in_arena(&self, head: &[u8]) -> bool {
        let field = |offset| u64_at(head, self.at + offset).and_then(|n| usize::try_from(n).ok());
        match (field(16), field(40)) {
            (Some(start), Some(len)) => {
                self.kind == PT_LOAD
                    && start < ARENA_BASE + ARENA_LEN
                    && start.saturating_add(len) > ARENA_BASE
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
fn interpreter(head: &[u8]) -> Option<String> {
    let at = segments(head).find(|s| s.kind == PT_INTERP)?.at;
    let start = usize::try_from(u64_at(head, at + 8)?).ok()?;
    let len = usize::try_from(u64_at(head, at + 32)?).ok()?;
    let path = head.get(start..start.checked_add(len)?).unwrap_or_default();
    let end = path.iter().position(|&b| b == 0).unwrap_or(path.len());
    Some(String::from_utf8_lossy(&path[..end]).into_owned())
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

    #[test]
    fn programs_are_told_apart() {
        let linux = "/lib64/ld-linux-x86-64.so.2";
        assert_eq!(inspect(&elf(2, 62, PT_INTERP, linux)), Kind::Dynamic);
        assert_eq!(inspect(&elf(2, 62, 1, linux)), Kind::Static);
        assert_eq!(inspect(&elf(1, 3, PT_INTERP, linux)), Kind::Foreign);
        assert_eq!(inspect(&elf(2, 183, PT_INTERP, linux)), Kind::Foreign);
        assert_eq!(
            inspect(&elf(2, 62, PT_INTERP, "/lib/ld-musl-x86_64.so.1")),
            Kind::Linker("/lib/ld-musl-x86_64.so.1".to_owned())
        );
        assert_eq!(inspect(b"\x7fELF"), Kind::Foreign);
        assert_eq!(inspect(&elf(2, 62, PT_INTERP, linux)[..70]), Kind::Static);
    }

    #[test]
    fn a_program_that_fixes_its_addresses_in_the_arena() {
        let mut head = elf(2, 62, PT_LOAD, "");
        head[16..18].copy_from_slice(&ET_EXEC.to_le_bytes());
        head[104..112].copy_from_slice(&4096_u64.to_le_bytes());
        for (start, inside) in [
            (ARENA_BASE - 4096, false),
            (ARENA_BASE - 1, true),
            (ARENA_BASE + ARENA_LEN - 1, true),
            (ARENA_BASE + ARENA_LEN, false),
        ] {
            head[80..88].copy_from_slice(&(start as u64).to_le_bytes());
            assert_eq!(inspect(&head) == Kind::InArena, inside, "{start:#x}");
        }
    }

    #[test]
    fn this_program_is_dynamic() {
        let head = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(inspect(&head[..HEAD]), Kind::Dynamic);
    }

    #[test]
    fn scripts_name_their_interpreter() {
        assert_eq!(
            inspect(b"#! /bin/sh -e \necho"),
            Kind::Script(b"/bin/sh -e".to_vec())
        );
        assert_eq!(inspect(b"#!"), Kind::Script(Vec::new()));
        assert_eq!(inspect(b"echo hi\n"), Kind::Other);
        assert_eq!(inspect(b""), Kind::Other);
    }
}
