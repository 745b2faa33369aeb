//! *What*: the reader of executables. Whatever the file says, what is found lies in the bytes that
//! were read, and a file of another kind is not taken for one of ours.

use std::ops::Range;

use uzswap_core::{ARENA_BASE, ARENA_LEN};
use uzswap_group::image::{DYNAMIC_HEAD, HEAD, Kind, inspect, is_linked, is_linker};

const ARENA: Range<usize> = ARENA_BASE..ARENA_BASE + ARENA_LEN;

/// See the head.
pub fn stays_in_the_head(input: &[u8]) {
    // As it is read, in an allocation of its own.
    let head: Box<[u8]> = input[..input.len().min(HEAD)].into();
    let is_elf = head.starts_with(b"\x7fELF");
    let lies_within = |part: &[u8]| {
        let (outer, inner) = (head.as_ptr_range(), part.as_ptr_range());
        part.is_empty() || outer.start <= inner.start && inner.end <= outer.end
    };
    match inspect(&head, &ARENA) {
        Kind::Script(line) => {
            assert!(head.starts_with(b"#!") && lies_within(line));
            assert!(!line.contains(&b'\n'));
        }
        Kind::Linker(path) => {
            assert!(is_elf && lies_within(path) && !is_linker(path));
            assert!(!path.is_empty() && !path.contains(&0));
        }
        Kind::Other => assert!(!is_elf && !head.starts_with(b"#!")),
        Kind::Dynamic(_) | Kind::Go | Kind::Static | Kind::InArena | Kind::Foreign => {
            assert!(is_elf);
        }
    }
    let section: Box<[u8]> = input[..input.len().min(DYNAMIC_HEAD)].into();
    let _ = is_linked(&section);
}
