//! *What*: the instructions by which the C library issues a system call.
//! *Invariants*: none. *Locking*: none. *Context*: any.

use uzswap_sys::arch::syscall::GATE_CODE;

/// Bytes of `mov eax, imm32; syscall`. That of call 0 is shorter: `xor eax, eax; syscall`.
pub const LEN: usize = 7;
const MOV_EAX: u8 = 0xb8;
const CLEAR_EAX: [u8; 2] = [0x31, 0xc0];

/// The number of the call that `code` issues, if it is those instructions.
#[must_use]
pub fn loaded_nr(code: [u8; LEN]) -> Option<usize> {
    let [first, a, b, c, d, call @ ..] = code;
    if !GATE_CODE.starts_with(&call) {
        return None;
    }
    if [c, d] == CLEAR_EAX {
        return Some(0);
    }
    (first == MOV_EAX).then(|| u32::from_le_bytes([a, b, c, d]) as usize)
}
