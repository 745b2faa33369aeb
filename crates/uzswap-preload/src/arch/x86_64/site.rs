//! *What*: the instructions around a system call, and the jump that takes the place of those before
//! it.
//!
//! The instruction before `syscall` is replaced by a `jmp rel32` whose last bytes, where it is
//! longer than that instruction, are the `syscall` that stands there anyway: only addresses are
//! jumped to whose distance has those bytes. So no byte of the system call changes. A thread that
//! stands before it, or comes back to it, executes what it would have executed; and no instruction
//! lies inside the other bytes.
//!
//! *Invariants*: an instruction is only displaced if it takes registers, constants and the stack
//! alone, so that it does the same elsewhere. *Locking*: none. *Context*: signal.

use uzswap_sys::arch::syscall::{GATE_CODE, SYSCALL_LEN};
use uzswap_sys::signal::{MContext, UContext};
use yaxpeax_arch::LengthedInstruction;
use yaxpeax_x86::long_mode::InstDecoder;

use super::shortcut::MAX_DISPLACED;

/// Bytes before a system call that are looked at: enough for any reading of them to have come to
/// the boundaries of instructions that all others have.
pub const BEFORE: usize = 48;
/// Longest instruction.
const MAX_INSTRUCTION: usize = 15;
/// Bytes of `jmp rel32`.
pub const JUMP_LEN: usize = 5;
/// Bytes behind a system call that a jump may extend to.
pub const BEHIND: usize = 1;
/// `int3`.
pub const BREAKPOINT: u8 = 0xcc;
const JUMP: u8 = 0xe9;

/// The code around a system call.
pub type Around = [u8; BEFORE + SYSCALL_LEN + BEHIND];

/// Length of the instruction before the system call, if it can be displaced: if it is one however
/// the bytes before are read, and if it has just done in `uc` what it does.
#[must_use]
pub fn displaceable(code: &Around, uc: &UContext) -> Option<usize> {
    let call = code.get(BEFORE..)?;
    if !GATE_CODE.starts_with(call.get(..SYSCALL_LEN)?) {
        return None;
    }
    let start = boundary(code)?;
    let displaced = code.get(start..BEFORE)?;
    let effect = effect(displaced)?;
    effect.holds(&uc.uc_mcontext).then_some(BEFORE - start)
}

/// Where the instruction before the system call begins; `None`: that depends on where one begins to
/// read.
///
/// Text is one instruction after the other, padding included, and one of them begins within any
/// fifteen bytes. So one of these readings is right, and where all that come to the call agree,
/// what they say is.
fn boundary(code: &Around) -> Option<usize> {
    let mut found = None;
    for from in 0..MAX_INSTRUCTION {
        let last = last_before_call(code, from);
        if last.is_some() && found.is_some() && last != found {
            return None;
        }
        found = found.or(last);
    }
    found
}

/// Where the last instruction before the call begins if one begins at `from`; `None`: those that
/// follow from there do not end at the call.
fn last_before_call(code: &Around, from: usize) -> Option<usize> {
    let decoder = InstDecoder::default();
    let mut at = from;
    loop {
        let instruction = decoder.decode_slice(code.get(at..)?).ok()?;
        let len = usize::try_from(instruction.len().to_const()).ok()?;
        let next = at.checked_add(len.max(1))?;
        if next == BEFORE {
            return Some(at);
        }
        if next > BEFORE {
            return None;
        }
        at = next;
    }
}

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// A register has this value.
    Is { register: u8, value: u64 },
    /// A register is loaded from the stack, or stored there.
    OfStack { register: u8 },
    /// A register has the value of another, or its lower half.
    Copy { to: u8, from: u8, is_half: bool },
}

/// The numbers of the stack pointer, and of the registers that a system call changes.
const RSP: u8 = 4;
const RCX: u8 = 1;
const R11: u8 = 11;

/// What `code` does, if it is one of the instructions that may be displaced.
fn effect(code: &[u8]) -> Option<Effect> {
    const REX: u8 = 0x40;
    const W: u8 = 8;
    const R: u8 = 4;
    const B: u8 = 1;
    let (rex, code) = match code {
        [rex @ 0x40..=0x4f, rest @ ..] => (*rex, rest),
        _ => (REX, code),
    };
    let high = |bit: u8| if rex & bit != 0 { 8 } else { 0 };
    let is_half = rex & W == 0;
    let effect = match *code {
        // xor and mov between registers.
        [op @ (0x31 | 0x33 | 0x89 | 0x8b), modrm @ 0xc0..=0xff] => {
            let reg = (modrm >> 3 & 7) + high(R);
            let rm = (modrm & 7) + high(B);
            match op {
                0x31 | 0x33 if reg == rm => Effect::Is {
                    register: rm,
                    value: 0,
                },
                0x89 => Effect::Copy {
                    to: rm,
                    from: reg,
                    is_half,
                },
                0x8b => Effect::Copy {
                    to: reg,
                    from: rm,
                    is_half,
                },
                _ => return None,
            }
        }
        // mov from or to [rsp + disp8].
        [0x89 | 0x8b, modrm @ 0x44..=0x7c, 0x24, _] if modrm & 7 == RSP && !is_half => {
            Effect::OfStack {
                register: (modrm >> 3 & 7) + high(R),
            }
        }
        // mov of a constant.
        [op @ 0xb8..=0xbf, a, b, c, d] if is_half => Effect::Is {
            register: (op & 7) + high(B),
            value: u64::from(u32::from_le_bytes([a, b, c, d])),
        },
        [0xc7, modrm @ 0xc0..=0xc7, a, b, c, d] if !is_half => Effect::Is {
            register: (modrm & 7) + high(B),
            value: i64::from(i32::from_le_bytes([a, b, c, d])).cast_unsigned(),
        },
        _ => return None,
    };
    let (Effect::Is { register: to, .. }
    | Effect::OfStack { register: to }
    | Effect::Copy { to, .. }) = effect;
    (to != RSP).then_some(effect)
}

impl Effect {
    /// Whether the registers are as the instruction leaves them.
    fn holds(self, regs: &MContext) -> bool {
        match self {
            Effect::Is { register, value } => read(regs, register) == value,
            Effect::OfStack { .. } => true,
            // The call has changed what it was copied from.
            Effect::Copy {
                from: RCX | R11, ..
            } => true,
            Effect::Copy { to, from, is_half } => {
                let mask = if is_half {
                    u64::from(u32::MAX)
                } else {
                    u64::MAX
                };
                read(regs, to) == read(regs, from) & mask
            }
        }
    }
}

/// The register of that number.
fn read(regs: &MContext, register: u8) -> u64 {
    match register {
        0 => regs.rax,
        1 => regs.rcx,
        2 => regs.rdx,
        3 => regs.rbx,
        4 => regs.rsp,
        5 => regs.rbp,
        6 => regs.rsi,
        7 => regs.rdi,
        8 => regs.r8,
        9 => regs.r9,
        10 => regs.r10,
        11 => regs.r11,
        12 => regs.r12,
        13 => regs.r13,
        14 => regs.r14,
        _ => regs.r15,
    }
}

/// Where a jump may lead that takes the place of an instruction of `len` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// First address.
    pub first: usize,
    /// Last address.
    pub last: usize,
}

/// The reach of a jump at `start`, in place of the last `len` bytes before the call in `code`.
#[must_use]
pub fn reach(code: &Around, start: usize, len: usize) -> Option<Reach> {
    let distance = |fill: u8| {
        let mut bytes = [fill; JUMP_LEN - 1];
        for (n, byte) in bytes.iter_mut().enumerate() {
            // Bytes of the call and behind it stay.
            if n + 1 >= len {
                *byte = *code.get(BEFORE - len + n + 1)?;
            }
        }
        let distance = i32::from_le_bytes(bytes);
        start
            .checked_add(JUMP_LEN)?
            .checked_add_signed(distance as isize)
    };
    let (first, last) = if len < JUMP_LEN {
        (distance(0)?, distance(0xff)?)
    } else {
        let near = i32::MAX as usize - (1 << 20);
        (
            start.checked_sub(near).unwrap_or(1 << 20),
            start.checked_add(near)?,
        )
    };
    (first <= last && first >= 1 << 16).then_some(Reach { first, last })
}

/// The jump from `start` to `to`.
#[must_use]
pub fn jump(start: usize, to: usize) -> Option<[u8; JUMP_LEN]> {
    let distance = to.wrapping_sub(start + JUMP_LEN).cast_signed();
    let [a, b, c, d] = i32::try_from(distance).ok()?.to_le_bytes();
    Some([JUMP, a, b, c, d])
}

const _: () = assert!(BEFORE >= 2 * MAX_INSTRUCTION + MAX_DISPLACED);
