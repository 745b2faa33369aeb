//! *What*: the code behind a rewritten call site ([`crate::loader::shortcut`]): a *ramp* beside the
//! program, one for each site, and what all ramps lead to.
//!
//! *Invariants*
//! - Between the site and the place where the program goes on, its stack and what lies below are
//!   not touched: the code works on memory of the thread's record, which the GS base names. A
//!   thread whose GS base does not lie in the handler stacks makes the trapped call instead.
//! - The program gets back every register, flags included, but rcx and r11, which a system call
//!   changes: these are what the kernel leaves there.
//! - From [`saved`](state) on, what the program had is in [`Saved`] alone, until it has it again.
//!
//! *Locking*: none. *Context*: the program's.

use core::arch::naked_asm;
use core::mem::offset_of;

use uzswap_sys::arch::syscall::SYSCALL_LEN;
use uzswap_sys::signal::UContext;
use uzswap_sys::syscall::call2;
use uzswap_sys::{Errno, nr};

use crate::guard::stub::{Call, PROGRAM_GATE, PROGRAM_GATE_RETURN};
use crate::loader::shortcut::{finish, prepare};
use crate::threads::STACKS;

/// Bytes of the stack that [`prepare`] and [`finish`] run on.
const STACK_LEN: usize = 8 << 10;

/// A thread's memory for calls by rewritten sites. The GS base points at [`Shortcut::saved`].
#[repr(C, align(16))]
pub struct Shortcut {
    stack: [u8; STACK_LEN],
    saved: Saved,
}

/// What the program had in its registers, and how far the call has come.
#[repr(C, align(16))]
pub struct Saved {
    xmm: [[u64; 2]; 16],
    rax: u64,
    rdi: u64,
    rsi: u64,
    rdx: u64,
    r10: u64,
    r8: u64,
    r9: u64,
    rbx: u64,
    rbp: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    rsp: u64,
    flags: u64,
    /// The address behind the site's system call instruction.
    behind: u64,
    /// Where the thread goes on.
    onward: u64,
    /// What the call returned, once `returned` is 1.
    pub ret: isize,
    /// The call has returned, and its result is the program's.
    pub returned: u64,
    /// 1: the call is made again, trapped, if it fails with `EFAULT`; 2: if its buffer may be
    /// written.
    pub again: u64,
    /// Always 0: the word of a call that announces nothing.
    pub nothing: u64,
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "registers and usize have 64 bits"
)]
impl Saved {
    /// The call that the program makes.
    #[must_use]
    pub const fn call(&self) -> Call {
        let args = [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9];
        let [a, b, c, d, e, f] = args;
        Call {
            nr: self.rax as usize,
            args: [
                a as usize, b as usize, c as usize, d as usize, e as usize, f as usize,
            ],
        }
    }

    /// Makes `uc` what the program had at its call: about to issue it, or, with `ret`, just
    /// returned from it.
    ///
    /// # Safety
    /// `uc` is the frame of a signal that interrupted this thread past [`saved`](state), its
    /// floating-point state included.
    unsafe fn restore(&self, uc: &mut UContext, ret: Option<isize>) {
        let regs = &mut uc.uc_mcontext;
        (regs.rdi, regs.rsi, regs.rdx) = (self.rdi, self.rsi, self.rdx);
        (regs.r10, regs.r8, regs.r9) = (self.r10, self.r8, self.r9);
        (regs.rbx, regs.rbp) = (self.rbx, self.rbp);
        (regs.r12, regs.r13, regs.r14, regs.r15) = (self.r12, self.r13, self.r14, self.r15);
        (regs.rsp, regs.eflags) = (self.rsp, self.flags);
        (regs.rcx, regs.r11) = (self.behind, self.flags);
        regs.rip = self.behind;
        match ret {
            Some(ret) => uc.set_syscall_return(ret),
            None => {
                regs.rax = self.rax;
                uc.rewind_syscall();
            }
        }
        // SAFETY: the caller's promise.
        unsafe { uc.set_vectors(&self.xmm) };
    }
}

impl Shortcut {
    /// Has the program's calls find this memory: called by its thread.
    pub fn attach(&mut self) {
        const ARCH_SET_GS: usize = 0x1001;
        let at = (&raw mut self.saved).addr();
        // SAFETY: the program has not used the GS base, or finds its own again by arch_prctl. Where
        // the call is refused, its calls are trapped.
        let _: Result<usize, Errno> = unsafe { call2(nr::ARCH_PRCTL, ARCH_SET_GS, at) };
    }

    /// Whether `sp` is on the stack that the code behind the site works on.
    fn is_on(&self, sp: usize) -> bool {
        let low = (&raw const self.stack).addr();
        (low..=low + STACK_LEN).contains(&sp)
    }

    /// Where a thread stands that was interrupted with `uc`.
    #[must_use]
    pub fn state(&self, uc: &UContext) -> State {
        let ip = uc.instruction_pointer();
        let [start, saved, returned, recorded, end] = [
            entry as *const (),
            uzswap_shortcut_saved as *const (),
            uzswap_shortcut_returned as *const (),
            uzswap_shortcut_recorded as *const (),
            uzswap_shortcut_end as *const (),
        ]
        .map(|label| label as usize);
        if (start..saved).contains(&ip) {
            State::Entering
        } else if !(saved..end).contains(&ip) && !self.is_on(uc.stack_pointer()) {
            State::Elsewhere
        } else if self.saved.returned != 0 {
            State::Returned(self.saved.ret)
        } else if (PROGRAM_GATE_RETURN..=PROGRAM_GATE_RETURN + 1).contains(&ip)
            || (returned..recorded).contains(&ip)
        {
            State::Returned(uc.syscall_return())
        } else {
            State::NotIssued
        }
    }

    /// The thread's registers, for [`prepare`] and [`finish`].
    pub const fn saved(&mut self) -> &mut Saved {
        &mut self.saved
    }

    /// Puts a thread in `state` where it would be with its site as it was: `uc` is made the context
    /// of that. `behind` is the address behind the site that a thread on a ramp comes from.
    ///
    /// # Safety
    /// `uc` is the frame of the signal that interrupted this thread in `state`.
    pub unsafe fn take_back(&self, uc: &mut UContext, state: State) {
        match state {
            State::Elsewhere => {}
            State::Entering => {
                if self.is_on(uc.stack_pointer()) {
                    uc.uc_mcontext.rsp = self.saved.rsp;
                }
                uc.uc_mcontext.rip = uc.uc_mcontext.rcx;
                uc.rewind_syscall();
            }
            State::NotIssued => {
                let (ip, number) = (uc.instruction_pointer(), uc.uc_mcontext.rax);
                // SAFETY: the caller's promise.
                unsafe { self.saved.restore(uc, None) };
                // The kernel may want another call made, which continues this one.
                if ip == PROGRAM_GATE {
                    uc.uc_mcontext.rax = number;
                }
            }
            // SAFETY: the caller's promise.
            State::Returned(ret) => unsafe { self.saved.restore(uc, Some(ret)) },
        }
    }
}

/// How far a thread has come behind a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is not there.
    Elsewhere,
    /// It has its registers, and rcx says where it came from.
    Entering,
    /// Its registers are saved, and the call is not issued.
    NotIssued,
    /// The call returned this.
    Returned(isize),
}

/// A word, and what it must say for the call to be issued; null: it is to be trapped.
#[repr(C)]
pub struct Go {
    /// See above.
    pub word: *const u64,
    /// See above.
    pub says: u64,
}

/// What a ramp leads to. r11: the thread's [`Saved`]; rcx: the address behind the site.
#[unsafe(naked)]
unsafe extern "C" fn entry() {
    naked_asm!(
        "mov [r11 + {behind}], rcx",
        "mov [r11 + {rax}], rax",
        "mov [r11 + {rdi}], rdi",
        "mov [r11 + {rsi}], rsi",
        "mov [r11 + {rdx}], rdx",
        "mov [r11 + {r10}], r10",
        "mov [r11 + {r8}], r8",
        "mov [r11 + {r9}], r9",
        "mov [r11 + {rbx}], rbx",
        "mov [r11 + {rbp}], rbp",
        "mov [r11 + {r12}], r12",
        "mov [r11 + {r13}], r13",
        "mov [r11 + {r14}], r14",
        "mov [r11 + {r15}], r15",
        "movaps [r11 + 0x00], xmm0",
        "movaps [r11 + 0x10], xmm1",
        "movaps [r11 + 0x20], xmm2",
        "movaps [r11 + 0x30], xmm3",
        "movaps [r11 + 0x40], xmm4",
        "movaps [r11 + 0x50], xmm5",
        "movaps [r11 + 0x60], xmm6",
        "movaps [r11 + 0x70], xmm7",
        "movaps [r11 + 0x80], xmm8",
        "movaps [r11 + 0x90], xmm9",
        "movaps [r11 + 0xa0], xmm10",
        "movaps [r11 + 0xb0], xmm11",
        "movaps [r11 + 0xc0], xmm12",
        "movaps [r11 + 0xd0], xmm13",
        "movaps [r11 + 0xe0], xmm14",
        "movaps [r11 + 0xf0], xmm15",
        "mov qword ptr [r11 + {returned}], 0",
        "mov [r11 + {rsp}], rsp",
        "mov rsp, r11",
        "pushfq",
        "pop qword ptr [r11 + {flags}]",
        ".globl uzswap_shortcut_saved",
        ".hidden uzswap_shortcut_saved",
        "uzswap_shortcut_saved:",
        "cld",
        "xor ebp, ebp",
        "mov rbx, r11",
        "mov rdi, r11",
        "call {prepare}",
        "test rax, rax",
        "jz 3f",
        "mov rcx, rax",
        "mov r11, rdx",
        "mov rax, [rbx + {rax}]",
        "mov rdi, [rbx + {rdi}]",
        "mov rsi, [rbx + {rsi}]",
        "mov rdx, [rbx + {rdx}]",
        "mov r10, [rbx + {r10}]",
        "mov r8, [rbx + {r8}]",
        "mov r9, [rbx + {r9}]",
        "cmp [rcx], r11",
        "jne 3f",
        "movabs rcx, {program_gate}",
        "call rcx",
        ".globl uzswap_shortcut_returned",
        ".hidden uzswap_shortcut_returned",
        "uzswap_shortcut_returned:",
        "mov [rbx + {ret}], rax",
        "mov qword ptr [rbx + {returned}], 1",
        ".globl uzswap_shortcut_recorded",
        ".hidden uzswap_shortcut_recorded",
        "uzswap_shortcut_recorded:",
        "mov rdi, rbx",
        "call {finish}",
        "mov r11, rbx",
        "test al, al",
        "jz 4f",
        "mov rax, [r11 + {ret}]",
        "mov rcx, [r11 + {behind}]",
        "jmp 5f",
        // To be trapped.
        "3:",
        "mov r11, rbx",
        "4:",
        "mov rax, [r11 + {rax}]",
        "mov rcx, [r11 + {behind}]",
        "sub rcx, {syscall_len}",
        "5:",
        "mov [r11 + {onward}], rcx",
        "movaps xmm0, [r11 + 0x00]",
        "movaps xmm1, [r11 + 0x10]",
        "movaps xmm2, [r11 + 0x20]",
        "movaps xmm3, [r11 + 0x30]",
        "movaps xmm4, [r11 + 0x40]",
        "movaps xmm5, [r11 + 0x50]",
        "movaps xmm6, [r11 + 0x60]",
        "movaps xmm7, [r11 + 0x70]",
        "movaps xmm8, [r11 + 0x80]",
        "movaps xmm9, [r11 + 0x90]",
        "movaps xmm10, [r11 + 0xa0]",
        "movaps xmm11, [r11 + 0xb0]",
        "movaps xmm12, [r11 + 0xc0]",
        "movaps xmm13, [r11 + 0xd0]",
        "movaps xmm14, [r11 + 0xe0]",
        "movaps xmm15, [r11 + 0xf0]",
        "mov rdi, [r11 + {rdi}]",
        "mov rsi, [r11 + {rsi}]",
        "mov rdx, [r11 + {rdx}]",
        "mov r10, [r11 + {r10}]",
        "mov r8, [r11 + {r8}]",
        "mov r9, [r11 + {r9}]",
        "mov rbx, [r11 + {rbx}]",
        "mov rbp, [r11 + {rbp}]",
        "push qword ptr [r11 + {flags}]",
        "popfq",
        "mov rsp, [r11 + {rsp}]",
        "mov rcx, [r11 + {onward}]",
        "mov r11, [r11 + {flags}]",
        "jmp rcx",
        ".globl uzswap_shortcut_end",
        ".hidden uzswap_shortcut_end",
        "uzswap_shortcut_end:",
        "ud2",
        behind = const offset_of!(Saved, behind),
        rax = const offset_of!(Saved, rax),
        rdi = const offset_of!(Saved, rdi),
        rsi = const offset_of!(Saved, rsi),
        rdx = const offset_of!(Saved, rdx),
        r10 = const offset_of!(Saved, r10),
        r8 = const offset_of!(Saved, r8),
        r9 = const offset_of!(Saved, r9),
        rbx = const offset_of!(Saved, rbx),
        rbp = const offset_of!(Saved, rbp),
        r12 = const offset_of!(Saved, r12),
        r13 = const offset_of!(Saved, r13),
        r14 = const offset_of!(Saved, r14),
        r15 = const offset_of!(Saved, r15),
        rsp = const offset_of!(Saved, rsp),
        flags = const offset_of!(Saved, flags),
        onward = const offset_of!(Saved, onward),
        ret = const offset_of!(Saved, ret),
        returned = const offset_of!(Saved, returned),
        prepare = sym prepare,
        finish = sym finish,
        program_gate = const PROGRAM_GATE,
        syscall_len = const SYSCALL_LEN,
    )
}

unsafe extern "C" {
    fn uzswap_shortcut_saved();
    fn uzswap_shortcut_returned();
    fn uzswap_shortcut_recorded();
    fn uzswap_shortcut_end();
}

/// Longest instruction that a ramp begins with.
pub const MAX_DISPLACED: usize = 7;
/// Bytes of a ramp.
pub const RAMP_LEN: usize = 64 + MAX_DISPLACED;

/// The code of a ramp for the site whose system call instruction is followed by address `behind`,
/// and which begins with the instruction `displaced`.
///
/// Until it has its [`Saved`] it changes rcx and r11 alone, and no flags: what lies in the upper
/// half of the GS base is compared by bytes.
#[must_use]
pub fn ramp(displaced: &[u8], behind: usize) -> [u8; RAMP_LEN] {
    /// The upper half of every handler stack's address, its bytes in reverse order.
    #[expect(clippy::cast_possible_truncation, reason = "the upper half")]
    const MARK: u32 = ((STACKS >> 32) as u32).swap_bytes();
    let mut code = Code {
        bytes: [0xcc; RAMP_LEN],
        len: 0,
    };
    code.put(displaced);
    // rdgsbase r11; mov rcx, r11; bswap rcx; mov ecx, ecx
    code.put(&[0xf3, 0x49, 0x0f, 0xae, 0xcb]);
    code.put(&[0x4c, 0x89, 0xd9, 0x48, 0x0f, 0xc9, 0x89, 0xc9]);
    // lea ecx, [rcx - MARK]
    code.put(&[0x8d, 0x89]);
    code.put(&MARK.wrapping_neg().to_le_bytes());
    // jrcxz over the jump to the site's system call
    code.put(&[0xe3, JUMP_LEN]);
    code.jump(behind - SYSCALL_LEN);
    // movabs rcx, behind
    code.put(&[0x48, 0xb9]);
    code.put(&behind.to_le_bytes());
    code.jump(entry as *const () as usize);
    code.bytes
}

/// Bytes of [`Code::jump`].
const JUMP_LEN: u8 = 14;

struct Code {
    bytes: [u8; RAMP_LEN],
    len: usize,
}

impl Code {
    fn put(&mut self, bytes: &[u8]) {
        if let Some(to) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            to.copy_from_slice(bytes);
        }
        self.len += bytes.len();
    }

    /// `jmp qword ptr [rip]`, and the address.
    fn jump(&mut self, to: usize) {
        self.put(&[0xff, 0x25, 0, 0, 0, 0]);
        self.put(&to.to_le_bytes());
    }
}

const _: () = {
    assert!(offset_of!(Shortcut, saved) == STACK_LEN);
    assert!(offset_of!(Saved, xmm) == 0);
    assert!(STACKS.is_multiple_of(1 << 32) && crate::threads::STACKS_LEN <= 1 << 32);
};
