//! *What*: machine code that leads a C library's system call away: where such a call is, the jump
//! that takes the place of the instruction before it, and the *ramp* that the jump leads to.
//!
//! *Invariants*
//! - All registers but rax, rcx and r11, which a call changes, are as before when the ramp goes on.
//!   What lies below the stack pointer (the red zone) is not touched.
//! - A call that is not served goes on at its `syscall`, with its number in rax.
//!
//! *Locking*: none. *Context*: any.

use core::arch::naked_asm;

/// `mov eax, imm32`, which the jump takes the place of.
const LOAD: u8 = 0xb8;
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const JUMP: u8 = 0xe9;
/// Bytes of the jump, and of the instruction that it replaces.
pub const JUMP_LEN: usize = 5;
/// Bytes of a ramp.
pub const RAMP_LEN: usize = 64;

/// What [`OnCall`] returns.
#[repr(C)]
pub struct Outcome {
    /// The call's result, if it was served.
    pub ret: isize,
    /// 1: served; 0: it is to be issued where it stands.
    pub served: usize,
}

/// Serves a call by its number and arguments.
pub type OnCall = unsafe extern "C" fn(usize, *const [usize; 6]) -> Outcome;

/// Where in `code` the number of call `nr` is loaded right before it is issued.
pub fn sites(code: &[u8], nr: u32) -> impl Iterator<Item = usize> {
    let [a, b, c, d] = nr.to_le_bytes();
    let [e, f] = SYSCALL;
    let pattern = [LOAD, a, b, c, d, e, f];
    code.windows(pattern.len())
        .enumerate()
        .filter_map(move |(at, bytes)| (bytes == pattern).then_some(at))
}

/// The jump from the site at `from` to `to`; `None`: that is too far.
#[must_use]
pub fn jump(from: usize, to: usize) -> Option<[u8; JUMP_LEN]> {
    let distance = to.wrapping_sub(from + JUMP_LEN).cast_signed();
    let [a, b, c, d] = i32::try_from(distance).ok()?.to_le_bytes();
    Some([JUMP, a, b, c, d])
}

/// The ramp at `at` for call `nr` of the site at `site`; `None`: the two are too far apart.
#[must_use]
pub fn ramp(at: usize, site: usize, nr: u32, on_call: OnCall) -> Option<[u8; RAMP_LEN]> {
    let mut code = [0xcc; RAMP_LEN];
    let mut len = 0;
    let mut put = |bytes: &[u8]| {
        for byte in bytes {
            if let Some(to) = code.get_mut(len) {
                *to = *byte;
            }
            len += 1;
        }
        len
    };
    let issued = site + JUMP_LEN;
    put(&[0x48, 0x8d, 0x64, 0x24, 0x80]); // lea rsp, [rsp - 128]
    put(&[0x68]); // push nr
    put(&nr.to_le_bytes());
    put(&[0x49, 0xbb]); // mov r11, on_call
    put(&(on_call as usize).to_le_bytes());
    put(&[0x48, 0xb8]); // mov rax, enter
    put(&(enter as *const () as usize).to_le_bytes());
    put(&[0xff, 0xd0]); // call rax
    put(&[0x48, 0x8d, 0xa4, 0x24, 136, 0, 0, 0]); // lea rsp, [rsp + 136]
    put(&[0x84, 0xc9]); // test cl, cl
    let here = put(&[0x75, 10]); // jnz behind the two instructions that follow
    put(&[LOAD]);
    put(&nr.to_le_bytes());
    put(&jump(at + here + 5, issued)?);
    let here = here + 10;
    let len = put(&jump(at + here, issued + SYSCALL.len())?);
    (len <= RAMP_LEN).then_some(code)
}

/// What ramps call: r11 is the [`OnCall`], and the call's number lies above the return address.
/// Returns its result in rax, and in rcx whether it was served.
#[unsafe(naked)]
unsafe extern "C" fn enter() {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push r9",
        "push r8",
        "push r10",
        "push rdx",
        "push rsi",
        "push rdi",
        "mov rdi, [rbp + 16]",
        "mov rsi, rsp",
        "sub rsp, 256",
        "and rsp, -16",
        "movaps [rsp + 0x00], xmm0",
        "movaps [rsp + 0x10], xmm1",
        "movaps [rsp + 0x20], xmm2",
        "movaps [rsp + 0x30], xmm3",
        "movaps [rsp + 0x40], xmm4",
        "movaps [rsp + 0x50], xmm5",
        "movaps [rsp + 0x60], xmm6",
        "movaps [rsp + 0x70], xmm7",
        "movaps [rsp + 0x80], xmm8",
        "movaps [rsp + 0x90], xmm9",
        "movaps [rsp + 0xa0], xmm10",
        "movaps [rsp + 0xb0], xmm11",
        "movaps [rsp + 0xc0], xmm12",
        "movaps [rsp + 0xd0], xmm13",
        "movaps [rsp + 0xe0], xmm14",
        "movaps [rsp + 0xf0], xmm15",
        "call r11",
        "mov rcx, rdx",
        "movaps xmm0, [rsp + 0x00]",
        "movaps xmm1, [rsp + 0x10]",
        "movaps xmm2, [rsp + 0x20]",
        "movaps xmm3, [rsp + 0x30]",
        "movaps xmm4, [rsp + 0x40]",
        "movaps xmm5, [rsp + 0x50]",
        "movaps xmm6, [rsp + 0x60]",
        "movaps xmm7, [rsp + 0x70]",
        "movaps xmm8, [rsp + 0x80]",
        "movaps xmm9, [rsp + 0x90]",
        "movaps xmm10, [rsp + 0xa0]",
        "movaps xmm11, [rsp + 0xb0]",
        "movaps xmm12, [rsp + 0xc0]",
        "movaps xmm13, [rsp + 0xd0]",
        "movaps xmm14, [rsp + 0xe0]",
        "movaps xmm15, [rsp + 0xf0]",
        "lea rsp, [rbp - 48]",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop r10",
        "pop r8",
        "pop r9",
        "pop rbp",
        "ret",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_of_that_number_are_sites() {
        let code = [
            0x90, 0xb8, 0x13, 0, 0, 0, 0x0f, 0x05, 0xb8, 0x14, 0, 0, 0, 0x0f, 0x05, 0xb8, 0x13, 0,
            0, 0, 0x90, 0x0f, 0x05,
        ];
        assert!(sites(&code, 0x13).eq([1]));
        assert!(sites(&code, 0x14).eq([8]));
    }

    #[test]
    fn what_is_too_far_is_refused() {
        assert_eq!(jump(0x1000, 0x2005), Some([0xe9, 0, 0x10, 0, 0]));
        assert_eq!(jump(0x1000, 0x1000), Some([0xe9, 0xfb, 0xff, 0xff, 0xff]));
        assert_eq!(jump(0x1000, 0x9000_0000), None);
    }
}
