//! *What*: the instructions by which the C library issues a system call.
//! *Invariants*: none. *Locking*: none. *Context*: any.

use uzswap_sys::arch::syscall::GATE_CODE;

/// Bytes of `mov eax, imm32; syscall`.
pub const LEN: usize = 7;
const MOV_EAX: u8 = 0xb8;

/// The number of the call that `code` issues, if it is those instructions.
#[must_use]
pub fn loaded_nr(code: [u8; LEN]) -> Option<usize> {
    let [MOV_EAX, nr @ .., a, b] = code else {
        return None;
    };
    GATE_CODE
        .starts_with(&[a, b])
        .then(|| u32::from_le_bytes(nr) as usize)
}
