//! Which call sites may be rewritten, and to what: the library itself cannot be linked into a test.
#![allow(missing_docs, dead_code, reason = "modules of the library, in part")]

#[path = "../src/arch/x86_64"]
mod arch {
    /// What stands for the module of that name.
    pub mod shortcut {
        pub const MAX_DISPLACED: usize = 7;
    }
    pub mod site;
}

use arch::site::{Around, BEFORE, JUMP_LEN, displaceable, jump, reach};
use uzswap_sys::signal::{MContext, UContext};

const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// `cmp rax, -4095`, as most code goes on.
const BEHIND: u8 = 0x48;
/// What a loaded register has here.
const VALUE: u64 = 0xca;

/// The site with `code` before its call, after padding of one-byte instructions.
fn around(code: &[u8]) -> Around {
    let mut all: Around = [0x90; size_of::<Around>()];
    all[BEFORE - code.len()..BEFORE].copy_from_slice(code);
    all[BEFORE..BEFORE + 2].copy_from_slice(&SYSCALL);
    all[BEFORE + 2] = BEHIND;
    all
}

/// A thread that was trapped: all registers have [`VALUE`].
fn trapped(change: impl FnOnce(&mut MContext)) -> UContext {
    // SAFETY: numbers, and pointers that may be null.
    let mut uc: UContext = unsafe { std::mem::zeroed() };
    let regs = &mut uc.uc_mcontext;
    for register in [
        &mut regs.rax,
        &mut regs.rcx,
        &mut regs.rdx,
        &mut regs.rbx,
        &mut regs.rbp,
        &mut regs.rsi,
        &mut regs.rdi,
        &mut regs.r8,
        &mut regs.r9,
        &mut regs.r10,
        &mut regs.r11,
    ] {
        *register = VALUE;
    }
    change(regs);
    uc
}

fn displaced(code: &[u8]) -> Option<usize> {
    displaceable(&around(code), &trapped(|_| {}))
}

#[test]
fn the_sites_of_common_libraries_are_rewritten() {
    // glibc, behind the padding of the function before: mov eax, 202.
    let glibc = b"\xc3\x0f\x1f\x84\x00\x00\x00\x00\x00\xb8\xca\x00\x00\x00";
    assert_eq!(displaced(glibc), Some(5));
    // Go's Syscall6: mov rdi, rbx.
    let go = b"\xcc\xcc\x49\x89\xf2\x48\x89\xfa\x48\x89\xce\x48\x89\xdf";
    assert_eq!(displaced(go), Some(3));
    // Go's call without an error: mov rax, [rsp + 8].
    assert_eq!(displaced(b"\x48\x8b\x44\x24\x08"), Some(5));
    // musl: mov rdx, rcx, of which the call changes the source.
    assert_eq!(displaced(b"\x48\x89\xf7\x4d\x89\xc8\x48\x89\xca"), Some(3));
    // musl, where threads are cancelled: mov [rsp + 8], r11.
    assert_eq!(displaced(b"\x4c\x89\x5c\x24\x08"), Some(5));
    // read of glibc: xor eax, eax.
    let zero = trapped(|regs| regs.rax = 0);
    assert_eq!(displaceable(&around(b"\x31\xc0"), &zero), Some(2));
}

#[test]
fn an_instruction_is_displaced_as_a_whole() {
    // mov r8d, 202: not its last five bytes, which would be mov eax, 202.
    assert_eq!(displaced(b"\x41\xb8\xca\x00\x00\x00"), Some(6));
    // mov dword ptr [rsp - 72], 202.
    assert_eq!(displaced(b"\xc7\x44\x24\xb8\xca\x00\x00\x00"), None);
    // add esp, 72; mov edi, ebx: not mov rdi, rbx.
    assert_eq!(displaced(b"\x83\xc4\x48\x89\xdf"), Some(2));
}

#[test]
fn what_depends_on_where_it_stands_is_left() {
    // lea rdi, [rip + 64]; pop rdi; mov rdi, [rbx]; mov esp, ebx; a jump.
    for code in [
        &b"\x48\x8d\x3d\x40\x00\x00\x00"[..],
        b"\x5f",
        b"\x48\x8b\x3b",
        b"\x89\xdc",
        b"\xe9\x00\x00\x00\x00",
    ] {
        assert_eq!(displaced(code), None, "{code:x?}");
    }
}

#[test]
fn what_did_not_happen_was_no_instruction() {
    let other = trapped(|regs| regs.rax = VALUE + 1);
    let code = around(b"\xb8\xca\x00\x00\x00");
    assert_eq!(displaceable(&code, &other), None);
}

#[test]
fn readings_that_differ_leave_the_site() {
    // All zeroes before mov eax, 202: read from odd places, they take its first byte along.
    let mut code = around(b"\xb8\xca\x00\x00\x00");
    code[..BEFORE - 5].fill(0);
    assert_eq!(displaceable(&code, &trapped(|_| {})), None);
}

#[test]
fn the_call_stays_whatever_the_jump_leads_to() {
    let start = 0x40_5000;
    for (code, len) in [
        (&b"\x31\xc0"[..], 2),
        (b"\x48\x89\xdf", 3),
        (b"\xb8\xca\x00\x00\x00", 5),
    ] {
        let code = around(code);
        let within = reach(&code, start, len).expect("some addresses");
        let (first, last) = (within.first, within.last);
        for to in [first, first + (last - first) / 3, last] {
            let jump = jump(start, to).expect("in reach");
            let mut text = code[BEFORE - len..].to_vec();
            let n = JUMP_LEN.min(len);
            text[..n].copy_from_slice(&jump[..n]);
            assert_eq!(text[len..len + 2], SYSCALL);
            // What stands there now leads there.
            let distance = i32::from_le_bytes(text[1..JUMP_LEN].try_into().unwrap_or_default());
            let leads_to = (start + JUMP_LEN).wrapping_add_signed(distance as isize);
            assert_eq!(leads_to, to, "{len}");
        }
    }
}
